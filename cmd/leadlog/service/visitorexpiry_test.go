package service

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
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/forget"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/view"
	"github.com/leadlog/leadlog/query"
)

// Visitors of two accounts, with and without a lead, did something at different times. Two processes look for the expired ones at
// once.
func TestExpiredVisitors_AreForgotten(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	log := slog.New(slog.DiscardHandler)
	box, err := sealbox.New(bytes.Repeat([]byte{1}, sealbox.KeySize))
	require.NoError(t, err)
	vault := sealed.NewVault(w.Pool, box)
	store := sealed.Wrap(w.Store, vault, true, log)
	runner, err := projection.New(projection.Options{URL: w.URL, Store: store, Projectors: view.All(), Log: log})
	require.NoError(t, err)
	projectiontest.Run(t, runner)

	now := projectiontest.Start.AddDate(2, 0, 0)
	names := claim.NewNames(bytes.Repeat([]byte{2}, 32))
	add := func(account, stream string, daysAgo int, data event.Data) {
		e := w.NewEvent()
		e.At, e.Metadata.Account = now.AddDate(0, 0, -daysAgo), account
		var err error
		e.Type, e.Data, err = event.Encode(data)
		require.NoError(t, err)
		_, err = store.Append(t.Context(), eventstore.Write{Stream: stream, Expect: eventstore.Any, Events: []eventstore.Event{e}})
		require.NoError(t, err)
	}
	act := func(account, visitor string, daysAgo int) {
		add(account, names.Visitor(account, visitor), daysAgo, event.VisitorActed{VisitorID: visitor, Kind: "click", At: now.AddDate(0, 0, -daysAgo)})
	}
	add("acme", event.AccountStream("acme"), 500, event.AccountConfigured{Features: []string{}, Stages: []string{"new"}, Region: "IN", VisitorDays: 30})
	add("acme", event.LeadStream(w.NewID()), 499, event.LeadCreated{ContactUID: "c", Name: "Asha", Status: "new", Temperature: "warm", Source: "api", VisitorID: "linked"})
	act("globex", "older", 396)
	act("globex", "year", 394)
	act("acme", "linked", 100)
	act("acme", "returned", 40)
	act("acme", "old", 40)
	act("acme", "old", 31)
	act("acme", "fresh", 29)
	act("acme", "returned", 1)
	projectiontest.Await(t, runner)
	// More than a page of what a lead's visitor did long ago comes first.
	pgtest.Exec(t, w.Pool, `UPDATE views.visitor_activity SET position = position + 1000000`)
	pgtest.Exec(t, w.Pool, `
		INSERT INTO views.visitor_activity (position, activity_id, account, visitor_id, type, at, recorded_at, url, title, referrer, properties, stream)
		SELECT n, 'filler-' || n, 'acme', 'linked', 'click', $1, $1, '', '', '', '{}', $2 FROM generate_series(1, 11000) AS n`,
		now.AddDate(0, 0, -400), names.Visitor("acme", "linked"))

	turn := func() {
		e := expiry{query: query.New(w.Pool, store), log: log,
			handlers: command.NewHandlers(command.Options{Store: store, Claims: names, Log: log}),
			eraser:   forget.Eraser{Keys: store, Views: forget.Database{Pool: w.Pool, Timeout: time.Minute}},
		}
		assert.NoError(t, e.forgetVisitors(context.Background(), now))
	}
	var group sync.WaitGroup
	for range 2 {
		group.Go(turn)
	}
	group.Wait()
	turn()
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
		shown := pgtest.Value[bool](t, w.Pool, `SELECT EXISTS (SELECT FROM views.visitor_activity WHERE stream = $1)`, stream)
		require.Equal(t, !forgotten, shown, visitor)
	}

	pgtest.Exec(t, w.Pool, `DELETE FROM views.visitor_activity WHERE activity_id LIKE 'filler-%'`)
	act("acme", "old", 0)
	turn()
	projectiontest.Await(t, runner)
	require.Equal(t, 1, pgtest.Value[int](t, w.Pool, `SELECT count(*) FROM views.visitor_activity WHERE stream = $1`, names.Visitor("acme", "old")),
		"a visitor who comes again begins again")
}
