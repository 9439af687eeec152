package worker

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/command/worker/forget"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/verify"
	"github.com/leadlog/leadlog/query"
)

// announcer returns the Expiry of a process with a fixed clock.
func announcer(t *testing.T, w *projectiontest.World, now time.Time) Expiry {
	t.Helper()
	clock := func() time.Time { return now }
	log := slog.New(slog.DiscardHandler)
	return Expiry{
		Query:    query.New(w.Pool, w.Store, query.WithClock(clock)),
		Handlers: command.NewHandlers(command.Options{Store: w.Store, Log: log, Now: clock}),
		Log:      log,
	}
}

// announcements returns the announced expiries of each token.
func announcements(t *testing.T, w *projectiontest.World, ids ...string) map[string][]time.Time {
	t.Helper()
	announced := map[string][]time.Time{}
	for _, id := range ids {
		for r, err := range w.Store.Read(t.Context(), event.TokenStream(id), 0) {
			require.NoError(t, err)
			fact, err := r.Fact()
			require.NoError(t, err)
			if expiring, ok := fact.Data.(event.TokenExpiring); ok {
				require.Equal(t, "system:expiry", r.Metadata.Actor)
				require.Equal(t, "acme", r.Metadata.Account)
				announced[id] = append(announced[id], expiring.ExpiresAt)
			}
		}
	}
	return announced
}

func TestTokenExpiry_AnnouncedOnce(t *testing.T) {
	t.Parallel()
	w := projectiontest.NewOnPostgres(t)
	const day = 24 * time.Hour
	now := projectiontest.Start.Add(100 * day)
	create := func(remaining time.Duration, days int, events ...event.Data) string {
		id := w.NewID()
		w.Append(t, "acme", event.TokenStream(id),
			append([]event.Data{event.TokenCreated{Name: id, Days: days, ExpiresAt: now.Add(remaining), Slot: 1}},
				events...)...)
		return id
	}
	expiringSoon, last := create(6*day, 90), create(time.Minute, 90)
	later := create(7*day+time.Minute, 90)
	ids := []string{
		expiringSoon, last, later, create(-time.Minute, 90), create(6*day, 90, event.TokenDeleted{}),
		create(6*day, 90, event.TokenRotated{ExpiresAt: now.Add(90 * day), PreviousExpiresAt: now.Add(6 * day)}),
	}
	w.Project(t)

	var group sync.WaitGroup
	for range 6 {
		process := announcer(t, w, now)
		group.Go(func() {
			for range 3 { // the view does not have the earlier announcements
				assert.NoError(t, process.announceTokens(t.Context()))
			}
		})
	}
	group.Wait()
	announced := map[string][]time.Time{expiringSoon: {now.Add(6 * day)}, last: {now.Add(time.Minute)}}
	require.Equal(t, announced, announcements(t, w, ids...))
	w.Project(t)
	waiting, err := announcer(t, w, now).Query.TokensToAnnounce(t.Context(), token.Notice, 10)
	require.NoError(t, err)
	require.Empty(t, waiting, "announced tokens are not due again")

	w.Append(t, "acme", event.TokenStream(expiringSoon), event.TokenRotated{
		ExpiresAt: now.Add(90 * day), PreviousExpiresAt: now.Add(6 * day),
	})
	w.Project(t)
	require.NoError(t, announcer(t, w, now.Add(time.Hour)).announceTokens(t.Context()))
	announced[later] = []time.Time{now.Add(7*day + time.Minute)}
	require.Equal(t, announced, announcements(t, w, ids...))
	w.Project(t)
	require.NoError(t, announcer(t, w, now.Add(85*day)).announceTokens(t.Context()))
	announced[expiringSoon] = append(announced[expiringSoon], now.Add(90*day))
	require.Equal(t, announced[expiringSoon], announcements(t, w, expiringSoon)[expiringSoon],
		"the new expiry after a rotation is announced")
}

func TestTokenExpiry_ShortLivedTokenNotAnnounced(t *testing.T) {
	t.Parallel()
	w := projectiontest.NewOnPostgres(t)
	id, created := w.NewID(), w.NewID()
	w.Append(t, "acme", event.TokenStream(id), event.TokenCreated{
		Name: "short", Days: 7, ExpiresAt: projectiontest.Start.Add(token.Notice), Slot: 1,
	})
	w.Append(t, "acme", event.TokenStream(created), event.TokenCreated{
		Name: "longer", Days: 8, ExpiresAt: projectiontest.Start.Add(token.Notice + 24*time.Hour), Slot: 2,
	})
	w.Project(t)
	require.NoError(t, announcer(t, w, projectiontest.Start.Add(2*24*time.Hour)).announceTokens(t.Context()))
	require.Len(t, announcements(t, w, id, created), 1)
	require.Len(t, announcements(t, w, created)[created], 1)
}

// Visitors of two accounts, with and without a lead, were active at different times. Two processes concurrently forget
// the expired ones.
func TestVisitorExpiry_ForgetsExpired(t *testing.T) {
	t.Parallel()
	w := projectiontest.NewOnPostgres(t)
	log, store := slog.New(slog.DiscardHandler), w.Seal(t)
	runner := w.Runner(t)
	projectiontest.Run(t, runner)

	now := projectiontest.Start.AddDate(2, 0, 0)
	names := claim.NewNames(bytes.Repeat([]byte{2}, 32))
	add := func(account, stream string, daysAgo int, data event.Data) {
		e := w.NewEvent()
		e.At, e.Metadata.Account = now.AddDate(0, 0, -daysAgo), account
		var err error
		e.Type, e.Data, err = event.Encode(data)
		require.NoError(t, err)
		storetest.AppendNext(t, store, stream, e)
	}
	recordActivity := func(account, visitor string, daysAgo int) {
		add(account, names.Visitor(account, visitor), daysAgo, event.VisitorActed{
			VisitorID: visitor, Kind: "click", At: now.AddDate(0, 0, -daysAgo),
		})
	}
	add("acme", event.AccountStream("acme"), 500, event.AccountConfigured{
		Features: []string{}, Stages: []string{"new"}, Region: "IN", VisitorDays: 30,
	})
	add("acme", event.LeadStream(w.NewID()), 499, event.LeadCreated{
		ContactUID: "c", LeadFields: event.LeadFields{Name: "Asha", Status: "new", Temperature: "warm"}, Source: "api",
		VisitorID: "linked",
	})
	recordActivity("globex", "older", 396)
	recordActivity("globex", "year", 394)
	recordActivity("acme", "linked", 100)
	recordActivity("acme", "returned", 40)
	recordActivity("acme", "old", 40)
	recordActivity("acme", "old", 31)
	recordActivity("acme", "fresh", 29)
	recordActivity("acme", "returned", 1)
	projectiontest.Await(t, runner)
	// The first rows are more than a page of old activity of a lead's visitor.
	pgtest.Exec(t, w.Pool, `UPDATE views.visitor_activity SET position = position + 1000000`)
	pgtest.Exec(t, w.Pool, `
		INSERT INTO views.visitor_activity (position, activity_id, account, visitor_id, type, at, recorded_at, url,
		  title, referrer, properties, stream)
		SELECT n, 'filler-' || n, 'acme', 'linked', 'click', $1, $1, '', '', '', '{}', $2
		FROM generate_series(1, 11000) AS n`,
		now.AddDate(0, 0, -400), names.Visitor("acme", "linked"))

	runOnce := func() {
		e := Expiry{Query: query.New(w.Pool, store), Log: log,
			Handlers: command.NewHandlers(command.Options{Store: store, Claims: names, Log: log}),
			Eraser:   forget.Eraser{Keys: store, Views: forget.Database{Pool: w.Pool, Timeout: time.Minute}},
		}
		assert.NoError(t, e.forgetVisitors(context.Background(), now))
	}
	var group sync.WaitGroup
	for range 2 {
		group.Go(runOnce)
	}
	group.Wait()
	runOnce()
	for visitor, forgotten := range map[[2]string]bool{
		{"acme", "old"}: true, {"globex", "older"}: true,
		{"acme", "linked"}: false, {"acme", "returned"}: false, {"acme", "fresh"}: false, {"globex", "year"}: false,
	} {
		stream := names.Visitor(visitor[0], visitor[1])
		facts := 0
		for r, err := range store.Read(t.Context(), stream, 0) {
			require.NoError(t, err)
			if r.Type == (event.VisitorForgotten{}).EventType() {
				facts++
				require.Equal(t, "system:expiry", r.Metadata.Actor)
				continue
			}
			require.Equal(t, forgotten, r.Erased, visitor)
		}
		require.Equal(t, forgotten, facts == 1, visitor)
		shown := pgtest.Value[bool](t, w.Pool,
			`SELECT EXISTS (SELECT FROM views.visitor_activity WHERE stream = $1)`, stream)
		require.Equal(t, !forgotten, shown, visitor)
	}

	pgtest.Exec(t, w.Pool, `DELETE FROM views.visitor_activity WHERE activity_id LIKE 'filler-%'`)
	recordActivity("acme", "old", 0)
	runOnce()
	projectiontest.Await(t, runner)
	require.Equal(t, 1,
		pgtest.Value[int](t, w.Pool, `SELECT count(*) FROM views.visitor_activity WHERE stream = $1`,
			names.Visitor("acme", "old")),
		"a returning visitor has only new activity")
}

func TestArrivalExpiry_DeletesContent(t *testing.T) {
	t.Parallel()
	w := projectiontest.NewOnPostgres(t)
	log, store := slog.New(slog.DiscardHandler), w.Seal(t)
	runner := w.Runner(t)
	projectiontest.Run(t, runner)

	now := projectiontest.Start.AddDate(0, 2, 0)
	add := func(daysAgo int, outcome event.Data) (stream string) {
		stream = event.ArrivalStream(w.NewID())
		at := now.AddDate(0, 0, -daysAgo)
		var events []eventstore.Event
		for _, data := range []event.Data{
			event.ArrivalReceived{
				ReceivedAt: at, ExpiresAt: at.AddDate(0, 0, 30), Raw: event.ArrivalRaw{Body: `{"name":"Zerlina"}`},
			}, outcome,
		} {
			e := w.NewEvent()
			e.At, e.Metadata.Account = at, "acme"
			var err error
			e.Type, e.Data, err = event.Encode(data)
			require.NoError(t, err)
			events = append(events, e)
		}
		_, err := store.Append(t.Context(), eventstore.Write{
			Stream: stream, Expect: eventstore.NoStream, Events: events,
		})
		require.NoError(t, err)
		return stream
	}
	quarantined := event.ArrivalQuarantined{Reasons: []event.ArrivalReason{{Field: "phone", Message: "is missing"}}}
	states := map[string]string{
		add(31, quarantined): "expired",
		add(30, event.ArrivalCaptured{LeadID: w.NewID(), EventID: w.NewID()}): "captured",
		add(29, quarantined): "quarantined",
	}
	projectiontest.Await(t, runner)
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			e := Expiry{Query: query.New(w.Pool, store), Log: log,
				Handlers: command.NewHandlers(command.Options{
					Store: store, Log: log, Now: func() time.Time { return now },
				}),
				Eraser: forget.Eraser{Keys: store, Views: forget.Database{Pool: w.Pool, Timeout: time.Minute}},
			}
			assert.NoError(t, e.deleteArrivals(context.Background(), now))
		})
	}
	group.Wait()
	projectiontest.Await(t, runner)
	for stream, state := range states {
		kept := state == "quarantined"
		require.Equal(t, state,
			pgtest.Value[string](t, w.Pool,
				`SELECT state FROM views.arrival WHERE 'arrival-' || arrival_id = $1`, stream))
		require.Equal(t, kept,
			pgtest.Value[bool](t, w.Pool, `SELECT kept FROM views.arrival WHERE 'arrival-' || arrival_id = $1`, stream))
		require.Equal(t, kept,
			pgtest.Value[bool](t, w.Pool, `SELECT EXISTS (SELECT FROM person.key WHERE stream = $1)`, stream))
		require.Equal(t, kept,
			pgtest.Value[bool](t, w.Pool, `SELECT EXISTS (SELECT FROM person.content WHERE stream = $1)`, stream))
		facts := 0
		for r, err := range store.Read(t.Context(), stream, 0) {
			require.NoError(t, err)
			if r.Type == (event.ArrivalExpired{}).EventType() {
				facts++
				continue
			}
			require.Equal(t, !kept, r.Erased)
		}
		require.Equal(t, !kept, facts == 1)
	}
	findings, err := verify.Verification{
		URL: w.URL, Pool: w.Pool, Store: store.Forensic(), Limit: 3, Progress: func(_, _ eventstore.Position) {},
		Unerased:   func(verify.UnfinishedErasure) {},
		Unfinished: forget.Eraser{Keys: store, Views: forget.Database{Pool: w.Pool}}.Unfinished, HasKeys: store.HasKeys,
	}.Run(t.Context())
	require.NoError(t, err)
	for _, finding := range findings {
		require.NotContains(t, finding, "arrival")
	}
}
