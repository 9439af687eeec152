package verify_test

import (
	"context"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/verify"
	"github.com/leadlog/leadlog/projection/view"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// run verifies the log and its views: all, or those of the projectors.
func run(t *testing.T, w *projectiontest.World, projectors ...projection.Projector) []string {
	t.Helper()
	findings, err := of(w).Only(projectors...).Run(t.Context())
	require.NoError(t, err)
	return findings
}

// runLog verifies only the log.
func runLog(t *testing.T, w *projectiontest.World, signed ...merkle.Checkpoint) []string {
	t.Helper()
	findings, err := of(w, signed...).RunLog(t.Context())
	require.NoError(t, err)
	return findings
}

func of(w *projectiontest.World, signed ...merkle.Checkpoint) verify.Verification {
	return verify.Verification{
		URL: w.URL, Pool: w.Pool, Store: w.Store, Signed: signed, Limit: 3, Progress: func(_, _ eventstore.Position) {},
	}
}

// ofLog lists the projectors of the views that the log is verified against.
var ofLog = []projection.Projector{view.Lead{}, view.TokenEvent{}}

// project updates the views that the log is verified against.
func project(t *testing.T, w *projectiontest.World) {
	t.Helper()
	projectiontest.CatchUp(t, w.Runner(t, ofLog...))
}

// sound returns a log with two leads that hold their claims, and its views: all, or those of the projectors.
func sound(t *testing.T, projectors ...projection.Projector) (w *projectiontest.World, first, second string) {
	t.Helper()
	w = projectiontest.New(t)
	first, second = writeSound(t, w, projectors...)
	return w, first, second
}

// writeSound is sound for a given World.
func writeSound(t *testing.T, w *projectiontest.World, projectors ...projection.Projector) (first, second string) {
	t.Helper()
	w.Append(t, "acme", event.AccountStream("acme"), event.AccountConfigured{Stages: []string{"new"}, Region: "IN"})
	arrive := func(phone string) string {
		id := w.NewID()
		w.Append(t, "acme", event.ClaimPrefix+w.NewID(), event.ClaimTaken{Kind: "phone", Holder: id})
		w.Append(t, "acme", event.LeadStream(id), event.LeadCreated{
			LeadFields: event.LeadFields{Name: "N", Phone: phone, Status: "new"}, Source: "api",
		})
		return id
	}
	first, second = arrive("+911"), arrive("+912")
	w.Append(t, "acme", event.RefusedStream(w.NewID()), event.LeadRefused{
		Source: "api", Code: "DUPLICATE_LEAD_SOURCE", LeadID: first,
	})
	w.Append(t, "acme", event.VisitorStream("acme", "0a1b"), event.VisitorActed{
		VisitorID: "v", Kind: "click", At: projectiontest.Start,
	})
	projectiontest.CatchUp(t, w.Runner(t, projectors...))
	return first, second
}

func TestVerify_SoundLog(t *testing.T) {
	t.Parallel()
	w, _, _ := sound(t)
	require.Empty(t, run(t, w))
	left := pgtest.Value[int](t, w.Pool, `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'verify%'`)
	require.Zero(t, left, "nothing is left behind")
}

func TestVerify_DetectsDifferences(t *testing.T) {
	t.Parallel()
	for name, differences := range map[string][]struct {
		name  string
		spoil string
		says  string
	}{
		"rows": {
			{
				"a row was changed", `UPDATE views.lead SET status = 'won' WHERE phone = '+911'`,
				"view lead, row LEAD: differs from the log",
			},
			{
				"a row was made up", `UPDATE views.account SET account_id = 'other'`,
				"view account, row other: is not from the log",
			},
			{
				"a sum is wrong", `INSERT INTO views.won_day VALUES ('acme', '2026-03-01', 'api', 1, 1)`,
				"view lead, table won_day, row acme 2026-03-01 api: is not from the log",
			},
			{
				"a count is wrong", `UPDATE views.source_day SET created = 7`,
				"view source_day, row acme 2026-03-01 api: differs from the log",
			},
			{
				"a refusal was changed", `UPDATE views.refused SET code = 'X'`,
				"view refused, row 6: differs from the log",
			},
			{
				"an activity was changed", `UPDATE views.visitor_activity SET visitor_id = 'w'`,
				"view visitor_activity, row 7: differs from the log",
			},
		},
		"missing rows": {
			{"a row was deleted", `DELETE FROM views.lead`, "view lead, row LEAD: is missing"},
			{"a refusal was deleted", `DELETE FROM views.refused`, "view refused, row 6: is missing"},
			{
				"an activity was made up", `UPDATE views.visitor_activity SET position = 70`,
				"view visitor_activity, row 70: is not from the log",
			},
			{
				"another version's view", `UPDATE views.checkpoint SET version = 9 WHERE projector = 'token'`,
				"view token: the view was built by another version",
			},
		},
		"events": {
			{"an event is gone", `DELETE FROM log.event WHERE position = 2`, "position 3 follows position 1"},
			{"an event was changed",
				`UPDATE log.event SET data = replace(convert_from(data, 'UTF8'), '"N"', '"M"')::bytea
					WHERE position = 3`,
				"view lead, row LEAD: differs from the log"},
			{
				"an event is not readable", `UPDATE log.event SET type = 'x.v1' WHERE position = 4`,
				"event at position 4 of stream claim-",
			},
			{"a stream has a gap", `UPDATE log.event SET revision = 4 WHERE position = 6`, "has revision 4, not 0"},
			{"another log was restored",
				`UPDATE views.checkpoint SET seen_event = 'other' WHERE projector = 'source_day'`,
				"view source_day: the view has events that the log does not have"},
		},
		"last event": {
			{
				"the last event is gone", `DELETE FROM log.event WHERE position = 7`,
				"view lead: the view has events that the log does not have",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, projectors := projectiontest.NewOnPostgres(t), view.All()
			if name != "rows" {
				projectors = []projection.Projector{
					view.Lead{}, view.SourceDay{}, view.Token{}, view.TokenEvent{}, view.Refused{},
					view.VisitorActivity{},
				}
			}
			first, _ := writeSound(t, w, projectors...)
			pgtest.Exec(t, w.Pool, `ALTER TABLE log.event DISABLE TRIGGER ALL`)
			for _, d := range differences {
				pgtest.Exec(t, w.Pool, d.spoil)
			}
			found := run(t, w, projectors...)
			for _, d := range differences {
				says := replaced(d.says, first)
				require.Condition(t, func() bool {
					return anyContains(found, says)
				}, "%s: %q in %q", d.name, says, found)
			}
		})
	}
}

// A row of a delivery endpoint is changed.
func TestVerify_DeliveryEndpointDiffers(t *testing.T) {
	t.Parallel()
	w, _, _ := sound(t, ofLog...)
	require.NoError(t, delivery.Begin(t.Context(), w.Pool, w.Store))
	register := func(later ...event.Data) string {
		id := w.NewID()
		w.Append(t, "acme", event.WebhookStream(id), event.WebhookRegistered{
			WebhookSettings: event.WebhookSettings{URL: "https://example.com", Events: []string{"*"}},
		})
		for _, data := range later {
			w.Append(t, "acme", event.WebhookStream(id), data)
		}
		return id
	}
	id := register(event.WebhookUpdated{
		WebhookSettings: event.WebhookSettings{URL: "https://example.com/2", Events: []string{"lead.created"}},
	})
	register(event.WebhookDisabled{Reason: "owner"})
	register(event.WebhookDeleted{})
	project(t, w)
	fanOut(t, w)
	require.Empty(t, run(t, w, ofLog...))

	for _, c := range []struct{ spoil, says string }{
		{
			`UPDATE delivery.endpoint SET url = 'https://elsewhere.example' WHERE webhook_id = $1`,
			"differs from the log",
		},
		{`DELETE FROM delivery.endpoint WHERE webhook_id = $1`, "is missing"},
	} {
		pgtest.Exec(t, w.Pool, c.spoil, id)
		found, err := of(w).RunDeliveries(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"deliveries, endpoint " + id + ": " + c.says}, found)
	}

	runbook, err := os.ReadFile("../../deploy/docs/runbook.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(runbook), "\n### What deliveries know of endpoints\n")
	_, rest, _ = strings.Cut(rest, "\n```sql\n")
	remedy, _, found := strings.Cut(rest, "```")
	require.True(t, found)
	pgtest.Exec(t, w.Pool, remedy)
	fanOut(t, w)
	require.Empty(t, run(t, w, ofLog...))
}

func TestVerify_JoinedLeads(t *testing.T) {
	t.Parallel()
	w, first, second := sound(t, ofLog...)
	var claimed string // the claim of the second lead
	for _, e := range storetest.Events(t, w.Store, eventstore.Filter{StreamPrefixes: []string{event.ClaimPrefix}}) {
		data, err := e.Decode()
		require.NoError(t, err)
		if taken, ok := data.(event.ClaimTaken); ok && taken.Holder == second {
			claimed = e.Stream
		}
	}
	was := event.LeadSnapshot{Phones: []string{"+912"}, Sources: []event.SourceSnapshot{{Source: "api", Arrivals: 1}}}
	w.Append(t, "acme", event.LeadStream(second), event.LeadJoinedInto{Into: first})
	w.Append(t, "acme", event.LeadStream(first), event.LeadJoined{From: second, Was: was})
	project(t, w)
	findings := runLog(t, w)
	require.True(t, anyContains(findings, "the phone is claimed for lead-"+second+", which does not exist"), findings)
	w.Append(t, "acme", claimed, event.ClaimTaken{Kind: "phone", Holder: first})
	project(t, w)
	require.Empty(t, runLog(t, w))

	other := w.NewID()
	w.Append(t, "acme", event.LeadStream(first), event.LeadJoined{From: other})
	project(t, w)
	require.Equal(t,
		[]string{"lead " + other + " was joined into lead " + first + ", but its stream has no earlier event of that"},
		runLog(t, w))
}

func TestVerify_ClaimsWithoutHolder(t *testing.T) {
	t.Parallel()
	w, first, _ := sound(t, ofLog...)
	claim := func(fact event.Data) string {
		stream := event.ClaimPrefix + w.NewID()
		w.Append(t, "acme", stream, fact)
		return stream
	}
	deletedToken, liveToken := w.NewID(), w.NewID()
	created := event.TokenCreated{
		Name: "CI", Prefix: "p", Hash: []byte("h"), Days: 1, ExpiresAt: projectiontest.Start, Slot: 1,
	}
	claim(event.ClaimTaken{Kind: "token-slot", Holder: liveToken})
	w.Append(t, "acme", event.TokenStream(liveToken), created)
	intakeID := w.NewID()
	claim(event.ClaimTaken{Kind: "intake-slot", Holder: intakeID})
	w.Append(t, "acme", event.IntakeStream(intakeID), event.IntakeCreated{
		IntakeSettings: event.IntakeSettings{Name: "Site", Kind: "form"},
	})
	none := w.NewID()
	want := []string{
		claim(event.ClaimTaken{Kind: "email", Holder: none}) + ": the email is " +
			"claimed for lead-" + none + ", which does not exist",
		claim(event.ClaimTaken{Kind: "token-slot", Holder: deletedToken}) + ": the token-slot is " +
			"claimed for token-" + deletedToken + ", which does not exist",
		claim(event.ClaimTaken{Kind: "webhook-slot", Holder: none}) + ": the webhook-slot is claimed " +
			"for webhook-" + none + ", which does not exist",
		claim(event.ClaimBound{
			Kind: "idempotency", Digest: []byte("d"), Stream: event.LeadStream(first), EventID: w.NewID(),
		}) +
			": the idempotency key is bound to lead-" + first + ", which does not hold the outcome",
		"lead-" + first + " has 0 values of kind email, and claims on 1: " + claim(event.ClaimTaken{
			Kind: "email", Holder: first,
		}),
	}
	w.Append(t, "acme", event.TokenStream(deletedToken), created)
	w.Append(t, "acme", event.TokenStream(deletedToken), event.TokenDeleted{})
	released := claim(event.ClaimTaken{Kind: "email", Holder: none})
	w.Append(t, "acme", released, event.ClaimReleased{Kind: "email", Holder: none})
	project(t, w)
	require.ElementsMatch(t, want, runLog(t, w))
}

// forgetful is a log on which a lead is erased when reading begins.
type forgetful struct {
	eventstore.Store
	erase func() (stream string)
}

func (f forgetful) Subscribe(
	ctx context.Context, after eventstore.Position, filter eventstore.Filter,
) iter.Seq2[eventstore.Page, error] {
	gone := f.erase()
	return func(yield func(eventstore.Page, error) bool) {
		for page, err := range f.Store.Subscribe(ctx, after, filter) {
			for i, e := range page.Events {
				if e.Stream == gone && e.Type != (event.LeadErased{}).EventType() {
					page.Events[i].Erased = true // its key is destroyed
				}
			}
			if !yield(page, err) {
				return
			}
		}
	}
}

func TestVerify_ProgressOfSlowerHalf(t *testing.T) {
	t.Parallel()
	w, _, _ := sound(t, ofLog...)
	head, err := w.Store.Head(t.Context())
	require.NoError(t, err)
	var done, end eventstore.Position
	_, err = verify.Verification{
		URL: w.URL, Pool: w.Pool, Store: w.Store, Limit: 3,
		Progress: func(d, e eventstore.Position) {
			require.GreaterOrEqual(t, d, done)
			require.LessOrEqual(t, d, e)
			done, end = d, e
		},
	}.Only(ofLog...).Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, head, done)
	require.Equal(t, head, end)
}

func TestVerify_LeadErasedMeanwhile(t *testing.T) {
	t.Parallel()
	w, first, second := sound(t, ofLog...)
	verified := func(erase func()) []string {
		findings, err := verify.Verification{
			URL: w.URL, Pool: w.Pool, Limit: 3, Progress: func(_, _ eventstore.Position) {},
			Store: forgetful{w.Store, sync.OnceValue(func() string { erase(); return event.LeadStream(first) })},
		}.RunLog(t.Context())
		require.NoError(t, err)
		return findings
	}
	const says = "its key is missing, and it was not erased"
	require.True(t, anyContains(verified(func() {}), says))
	findings := verified(func() {
		w.Append(t, "acme", event.LeadStream(second), event.LeadErased{Leads: []string{first}})
	})
	require.False(t, anyContains(findings, says), findings)
}

func replaced(says, lead string) string { return strings.ReplaceAll(says, "LEAD", lead) }

func anyContains(found []string, says string) bool {
	return slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, says) })
}
