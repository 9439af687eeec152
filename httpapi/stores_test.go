package httpapi_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
)

// TestOnEventStoreDB asks again, with the log in EventStoreDB, what the other tests ask with the log in PostgreSQL.
func TestOnEventStoreDB(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"an erased person":                    TestErase_RemovesPersonEverywhere,
		"a deleted visitor":                   TestVisitors_DeleteForgetsActivity,
		"a repeat after an erasure":           TestErase_IdempotentRepeatIsGone,
		"erasures, captures and repeats":      TestErase_ConcurrentCapturesAndRepeats,
		"new and known people":                TestCapture_CreatesAndMerges,
		"a repeat from a curated source":      TestCapture_CuratedSourceConflict,
		"32 first arrivals":                   TestCapture_ConcurrentFirstArrivals,
		"who may capture":                     TestCapture_Authorization,
		"an account's own rate":               TestQuota_AccountRateInEveryProcess,
		"a repeat under its key":              TestIdempotency_RepeatsFirstAnswer,
		"a key and its body":                  TestIdempotency_BoundToBodyAndAccount,
		"a key that is free":                  TestIdempotency_FreeAfterFailure,
		"a repeat by who is not let in":       TestIdempotency_RevokedCaller,
		"calls at once with one key":          TestIdempotency_ConcurrentCalls,
		"a lead changed by hand":              TestLeadChanges_UpdateIsRecorded,
		"changes and captures at once":        TestLeadChanges_ConcurrentWithCaptures,
		"two leads that are joined":           TestJoin_TwoLeads,
		"what is asked of a joined lead":      TestJoin_RequestsForSourceLead,
		"two forms of one phone":              TestPhone_RetiredForms,
		"joins at once":                       TestJoin_ConcurrentJoinsAndCaptures,
		"an endpoint's life":                  TestWebhooks_Lifecycle,
		"accounts":                            TestAccount_ProvisionedByAdministrator,
		"the source history":                  TestSources_HistoryFormats,
		"the report":                          TestSources_Report,
		"a lead at any time":                  TestLeads_AsOf,
		"a token's life":                      TestTokens_Lifecycle,
		"24 simultaneous creations":           TestTokens_ConcurrentCreations,
		"8 simultaneous rotations":            TestTokens_ConcurrentRotations,
		"another process refuses a token":     TestTokens_RevokedInEveryProcess,
		"the audit trail":                     TestAudit_Formats,
		"a position that is not reached yet":  TestMinPosition_ViewBehind,
		"the claim of a key and the person":   TestIdempotency_ClaimHasNoPersonalData,
		"settings that came after the answer": TestIdempotency_IgnoresLaterSettings,
	} {
		t.Run(name, test)
	}
}

// logOf is the address of a new log: in the database of the views, or, for a test that TestOnEventStoreDB runs, in a
// server of the test's own.
func logOf(t *testing.T, views string) string {
	t.Helper()
	if strings.HasPrefix(t.Name(), "TestOnEventStoreDB/") {
		return esdbtest.Empty(t)
	}
	return views
}

// openStore is a log that may be closed before the test ends.
type openStore struct {
	*sealed.Store
	Close func()
}

// openLog opens the log at an address, with keys of persons in the pool's database.
func openLog(t *testing.T, address string, pool *pgxpool.Pool, log *slog.Logger) openStore {
	t.Helper()
	var store interface {
		eventstore.Store
		Close()
	}
	var err error
	if esdb.Understands(address) {
		store, err = esdb.Open(t.Context(), esdb.Options{URL: address, Log: log})
	} else {
		store, err = postgres.Open(t.Context(), postgres.Options{URL: address, Log: log})
	}
	require.NoError(t, err)
	t.Cleanup(store.Close)
	box, err := sealbox.New([]byte(jwtSecret))
	require.NoError(t, err)
	vault := sealed.NewVault(pool, box)
	return openStore{sealed.Wrap(store, vault, !esdb.Understands(address), log), store.Close}
}

// A capture of a new lead costs its appends and one round trip more: what it believes of its token and its account is
// checked at the same time.
func TestOnEventStoreDB_CaptureReads(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	s := startOn(t, server.URL())
	_, token := s.token()
	capture := func(body string) {
		t.Helper()
		s.send(call{method: http.MethodPost, path: leads, credential: token, body: body}).is(http.StatusCreated)
	}
	capture(`{"phone":"9876543210","email":"a@example.com"}`)                                   // from here on the process knows both
	of := []string{event.LeadPrefix, event.ClaimPrefix, event.TokenPrefix, event.AccountPrefix} // a token's use is noted beside
	appends, reads := server.Appends(of...), server.StreamReads(of...)
	capture(`{"phone":"9876543211","email":"b@example.com"}`)
	require.Equal(t, appends+3, server.Appends(of...), "the phone, the email and the lead")
	require.Equal(t, reads+2, server.StreamReads(of...), "the token and the account")
}
