package service

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/query"
)

// announcer is the loop of a process whose clock stands still.
func announcer(t *testing.T, w *projectiontest.World, now time.Time) expiry {
	t.Helper()
	clock := func() time.Time { return now }
	log := slog.New(slog.DiscardHandler)
	return expiry{
		query:    query.New(w.Pool, w.Store, query.WithClock(clock)),
		handlers: command.NewHandlers(command.Options{Store: w.Store, Log: log, Now: clock}),
		log:      log,
	}
}

// announcements are those on the log, of each token the ends that it was said of.
func announcements(t *testing.T, w *projectiontest.World, ids ...string) map[string][]time.Time {
	t.Helper()
	said := map[string][]time.Time{}
	for _, id := range ids {
		for r, err := range w.Store.Read(t.Context(), event.TokenStream(id), 0) {
			require.NoError(t, err)
			fact, err := r.Fact()
			require.NoError(t, err)
			if expiring, ok := fact.Data.(event.TokenExpiring); ok {
				require.Equal(t, "system:expiry", r.Metadata.Actor)
				require.Equal(t, "acme", r.Metadata.Account)
				said[id] = append(said[id], expiring.ExpiresAt)
			}
		}
	}
	return said
}

func TestEachEndOfATokenIsAnnouncedOnceByHoweverManyProcesses(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	const day = 24 * time.Hour
	now := projectiontest.Start.Add(100 * day)
	create := func(left time.Duration, days int, then ...event.Data) string {
		id := w.NewID()
		w.Append(t, "acme", event.TokenStream(id), append([]event.Data{event.TokenCreated{Name: id, Days: days, ExpiresAt: now.Add(left), Slot: 1}}, then...)...)
		return id
	}
	due, last := create(6*day, 90), create(time.Minute, 90)
	later := create(7*day+time.Minute, 90)
	ids := []string{
		due, last, later, create(-time.Minute, 90), create(6*day, 90, event.TokenDeleted{}),
		create(6*day, 90, event.TokenRotated{ExpiresAt: now.Add(90 * day), PreviousExpiresAt: now.Add(6 * day)}),
	}
	w.Project(t)

	var group sync.WaitGroup
	for range 6 {
		process := announcer(t, w, now)
		group.Go(func() {
			for range 3 { // the view knows nothing of the ones before
				assert.NoError(t, process.announceTokens(t.Context()))
			}
		})
	}
	group.Wait()
	said := map[string][]time.Time{due: {now.Add(6 * day)}, last: {now.Add(time.Minute)}}
	require.Equal(t, said, announcements(t, w, ids...))
	w.Project(t)
	waiting, err := announcer(t, w, now).query.TokensToAnnounce(t.Context(), token.Notice, 10)
	require.NoError(t, err)
	require.Empty(t, waiting, "a process that starts looks for nothing twice")

	w.Append(t, "acme", event.TokenStream(due), event.TokenRotated{ExpiresAt: now.Add(90 * day), PreviousExpiresAt: now.Add(6 * day)})
	w.Project(t)
	require.NoError(t, announcer(t, w, now.Add(time.Hour)).announceTokens(t.Context()))
	said[later] = []time.Time{now.Add(7*day + time.Minute)}
	require.Equal(t, said, announcements(t, w, ids...))
	w.Project(t)
	require.NoError(t, announcer(t, w, now.Add(85*day)).announceTokens(t.Context()))
	said[due] = append(said[due], now.Add(90*day))
	require.Equal(t, said[due], announcements(t, w, due)[due], "another end after a rotation")
}

func TestATokenThatWasNeverToLiveLongerThanTheNoticeGetsNone(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	id, created := w.NewID(), w.NewID()
	w.Append(t, "acme", event.TokenStream(id), event.TokenCreated{Name: "short", Days: 7, ExpiresAt: projectiontest.Start.Add(token.Notice), Slot: 1})
	w.Append(t, "acme", event.TokenStream(created), event.TokenCreated{Name: "longer", Days: 8, ExpiresAt: projectiontest.Start.Add(token.Notice + 24*time.Hour), Slot: 2})
	w.Project(t)
	require.NoError(t, announcer(t, w, projectiontest.Start.Add(2*24*time.Hour)).announceTokens(t.Context()))
	require.Len(t, announcements(t, w, id, created), 1)
	require.Len(t, announcements(t, w, created)[created], 1)
}
