package httpapi_test

import (
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
)

// TestOnEventStoreDB runs tests whose outcome may depend on the store with the log in EventStoreDB: order, positions,
// erasure and reads as of a time. The conformance tests of storetest are not repeated.
func TestOnEventStoreDB(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"capture":          TestCapture_CreatesAndMerges,
		"repeat":           TestIdempotency_RepeatsFirstAnswer,
		"erasure":          TestErase_RemovesPersonEverywhere,
		"deleted visitor":  TestVisitors_DeleteForgetsActivity,
		"join":             TestJoin_TwoLeads,
		"source report":    TestSources_Report,
		"asOf":             TestLeads_AsOf,
		"token lifecycle":  TestTokens_Lifecycle,
		"revocation":       TestTokens_RevokedInEveryProcess,
		"account rate":     TestQuota_AccountRateInEveryProcess,
		"audit trail":      TestAudit_Formats,
		"minPosition":      TestMinPosition_ViewBehind,
		"feed":             TestFeed_SameAsEventLists,
		"feed and erasure": TestFeed_Erasure,
		"receipts":         TestReceipt_OfEveryEvent,
		"evidence":         TestEvidence_OfEveryEvent,
	} {
		t.Run(name, test)
	}
}

// TestOnEventStoreDB_Concurrent runs the tests with concurrent requests.
func TestOnEventStoreDB_Concurrent(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"captures":    TestCapture_ConcurrentFirstArrivals,
		"repeats":     TestIdempotency_ConcurrentCalls,
		"erasures":    TestErase_ConcurrentCapturesAndRepeats,
		"changes":     TestLeadChanges_ConcurrentWithCaptures,
		"joins":       TestJoin_ConcurrentJoinsAndCaptures,
		"tokens":      TestTokens_ConcurrentCreations,
		"rotations":   TestTokens_ConcurrentRotations,
		"feed's wait": TestFeed_WaitEndsAtEvent,
	} {
		t.Run(name, test)
	}
}

// logOf returns the address of a new log. It is in the database of the views or, in a test of TestOnEventStoreDB or
// TestOnEventStoreDB_Concurrent, on a new server.
func logOf(t *testing.T, views string) string {
	t.Helper()
	if onEventStoreDB(t) {
		return esdbtest.Empty(t)
	}
	return views
}

func onEventStoreDB(t *testing.T) bool {
	return strings.HasPrefix(t.Name(), "TestOnEventStoreDB/") ||
		strings.HasPrefix(t.Name(), "TestOnEventStoreDB_Concurrent/")
}

// openStore is a log that may be closed before the test ends.
type openStore struct {
	*sealed.Store
	below eventstore.Store
	Close func()
}

// openLog opens the log at an address, with keys of persons in the pool's database.
func openLog(t testing.TB, address string, pool *pgxpool.Pool, log *slog.Logger) openStore {
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
	return openStore{sealed.Wrap(store, vault, !esdb.Understands(address), log), store, store.Close}
}

// A capture of a new lead needs its appends and one more round trip, in which the cached token and account are
// validated concurrently. There are no views, because their subscriptions also validate appends.
func TestOnEventStoreDB_CaptureReads(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	s := startOn(t, migrated(t), server.URL(), nil)
	id, token := s.token()
	capture := func(body string) {
		t.Helper()
		s.send(call{method: http.MethodPost, path: leads, credential: token, body: body}).is(http.StatusCreated)
	}
	// from here on both are cached
	capture(`{"phone":"9876543210","email":"a@example.com"}`)
	// a token's use is recorded separately
	of := []string{event.LeadPrefix, event.ClaimPrefix, event.TokenPrefix, event.AccountPrefix}
	appends, before := server.Appends(of...), server.StreamReads(of...)
	capture(`{"phone":"9876543220","email":"b@example.com"}`)
	require.Equal(t, appends+3, server.Appends(of...), "the phone, the email and the lead")
	reads := server.StreamReads(of...)
	for stream, n := range before {
		reads[stream] -= n
	}
	maps.DeleteFunc(reads, func(_ string, n int) bool { return n == 0 })
	require.Equal(t, map[string]int{event.TokenStream(id): 1, event.AccountStream(s.account): 1}, reads)
}
