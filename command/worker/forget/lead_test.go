package forget_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/worker/forget"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// killedKeys is the key store of a process that is killed before it destroys the key of a stream with this prefix.
type killedKeys struct {
	*sealed.Store
	prefix string
}

var errKilled = errors.New("killed")

func (k killedKeys) Destroy(ctx context.Context, streams ...string) error {
	if strings.HasPrefix(streams[0], k.prefix) {
		return errKilled
	}
	return k.Store.Destroy(ctx, streams...)
}

// The fact of an erasure names the first thousand visitors of a lead. The others were once not erased.
func TestEraseLead_MoreVisitorsThanTheFactNames(t *testing.T) {
	t.Parallel()
	w := projectiontest.NewOnPostgres(t)
	log, store := slog.New(slog.DiscardHandler), w.Seal(t)
	runner := w.Runner(t)
	projectiontest.Run(t, runner)

	names := claim.NewNames(bytes.Repeat([]byte{2}, 32))
	appendTo := func(stream string, all ...event.Data) {
		t.Helper()
		events := make([]eventstore.Event, len(all))
		for i, data := range all {
			events[i] = w.NewEvent()
			events[i].Metadata.Account = "acme"
			var err error
			events[i].Type, events[i].Data, err = event.Encode(data)
			require.NoError(t, err)
		}
		storetest.AppendNext(t, store, stream, events...)
	}
	visitor := func(n int) string { return fmt.Sprintf("visitor-%d", n) }
	created := func(visitorID string) event.Data {
		return event.LeadCreated{
			ContactUID: "c", LeadFields: event.LeadFields{Name: "Asha", Status: "new", Temperature: "warm"},
			Source: "website", VisitorID: visitorID,
		}
	}
	const visitors = 2*lead.MaxVisitors + 5 // two pages of visitors that the fact does not name
	id := w.NewID()
	appendTo(event.LeadStream(id), created(visitor(0)))
	for n := 1; n < visitors; {
		var merges []event.Data
		for ; n < visitors && len(merges) < 500; n++ {
			merges = append(merges, event.LeadMerged{Source: "website", VisitorID: visitor(n)})
		}
		appendTo(event.LeadStream(id), merges...)
	}
	linked, others := visitors-1, []int{0, lead.MaxVisitors - 1, lead.MaxVisitors, 2*lead.MaxVisitors - 1, visitors - 2}
	appendTo(event.LeadStream(w.NewID()), created(visitor(linked)))
	for _, n := range append(others, linked) {
		appendTo(names.Visitor("acme", visitor(n)), event.VisitorActed{
			VisitorID: visitor(n), Kind: "click", At: time.Now(),
		})
	}
	projectiontest.Await(t, runner)

	facts := command.NewHandlers(command.Options{
		Store: store, Claims: names, Log: log,
	}).Erasure(command.Caller{Account: "acme"})
	views := forget.Database{Pool: w.Pool, Timeout: time.Minute}
	_, err := forget.Eraser{Keys: killedKeys{store, event.LeadPrefix}, Views: views}.EraseLead(t.Context(), facts, id)
	require.ErrorIs(t, err, errKilled)
	eraser := forget.Eraser{Keys: store, Views: views}
	for range 2 {
		done, err := eraser.EraseLead(t.Context(), facts, id)
		require.NoError(t, err)
		require.True(t, done.Again)
	}
	projectiontest.Await(t, runner)
	for _, n := range append(others, linked) {
		stream, facts := names.Visitor("acme", visitor(n)), 0
		for r, err := range store.Read(t.Context(), stream, 0) {
			require.NoError(t, err)
			if r.Type == (event.VisitorForgotten{}).EventType() {
				facts++
				continue
			}
			require.Equal(t, n != linked, r.Erased, n)
		}
		shown := pgtest.Value[bool](t, w.Pool,
			`SELECT EXISTS (SELECT FROM views.visitor_activity WHERE stream = $1)`, stream)
		require.Equal(t, n == linked, shown, n)
		require.Equal(t, n != linked, facts == 1, n)
	}
	require.Equal(t, 0,
		pgtest.Value[int](t, w.Pool, `SELECT count(*) FROM person.key WHERE stream = $1`, event.LeadStream(id)))
}
