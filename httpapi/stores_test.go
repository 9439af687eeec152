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
		"an erased person":                    TestAfterAnErasureNothingOfThePersonIsAnywhere,
		"a deleted visitor":                   TestDeleteVisitor_ForgetsActivity,
		"a repeat after an erasure":           TestARepeatUnderItsKeyAfterAnErasureIsGone,
		"erasures, captures and repeats":      TestErasuresCapturesAndRepeatsAtOnce,
		"new and known people":                TestANewPersonIsCreatedAndAKnownOneMerged,
		"a repeat from a curated source":      TestARepeatFromACuratedSourceIsAConflictThatNamesTheLead,
		"32 first arrivals":                   Test32FirstArrivalsOfOnePhoneAreOneLead,
		"who may capture":                     TestOnlyWhoMayCapturesALead,
		"an account's own rate":               TestAnAccountsOwnRateCountsInEveryProcessOnceItIsSet,
		"a repeat under its key":              TestARepeatUnderItsKeyGetsTheFirstAnswerWhateverCameAfter,
		"a key and its body":                  TestAKeyIsBoundToOneBodyOfOneAccount,
		"a key that is free":                  TestAKeyStaysFreeAfterAnAnswerThatDecidedNothing,
		"a repeat by who is not let in":       TestWhoIsNotLetInAnyMoreGetsNoAnswerAgain,
		"calls at once with one key":          TestCallsAtOnceWithOneKeyHaveOneEffect,
		"a lead changed by hand":              TestALeadIsChangedByHandAndTheHistorySaysSo,
		"changes and captures at once":        TestChangesAndCapturesAtOnceAllCount,
		"two leads that are joined":           TestTwoLeadsThatAreOnePersonAreJoined,
		"what is asked of a joined lead":      TestWhatIsAskedOfALeadThatWasJoined,
		"two forms of one phone":              TestPhone_RetiredForms,
		"joins at once":                       TestJoinsInEveryDirectionAndArrivalsAtOnce,
		"an endpoint's life":                  TestAWebhookEndpointsLife,
		"accounts":                            TestAnAdministratorProvisionsAccounts,
		"the source history":                  TestTheSourceHistoryGoesOutAsJSONCSVAndLines,
		"the report":                          TestTheReportSaysWhatBecameOfEachSourcesArrivals,
		"a lead at any time":                  TestALeadIsShownAsItWasAtAnyTime,
		"a token's life":                      TestATokensLife,
		"24 simultaneous creations":           Test24SimultaneousCreationsGiveFiveTokens,
		"8 simultaneous rotations":            TestEightSimultaneousRotationsLeaveOneValueAlive,
		"another process refuses a token":     TestAnotherProcessRefusesATokenAtOnce,
		"the audit trail":                     TestTheAuditTrailGoesOutAsJSONCSVAndLines,
		"a position that is not reached yet":  TestAViewThatIsBehindIsAskedForAgain,
		"the claim of a key and the person":   TestTheClaimOfAKeyHoldsNothingOfThePerson,
		"settings that came after the answer": TestARepeatIsNotJudgedBySettingsThatCameAfter,
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
func TestACaptureOnEventStoreDBReadsNothingButItsTokenAndAccount(t *testing.T) {
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
