package sealed_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

func newArrival() string { return event.ArrivalStream(ulid.Make().String()) }

func posted(body string) event.ArrivalReceived {
	return event.ArrivalReceived{DeliveryID: "d", Raw: event.ArrivalRaw{ContentType: "text/plain", Body: body}}
}

func (p fixture) contents(stream string) int {
	p.t.Helper()
	return pgtest.Value[int](p.t, p.pool, `SELECT count(*) FROM person.content WHERE stream = $1`, stream)
}

// rawOf returns the body that the first event of a stream has.
func rawOf(t testing.TB, events []eventstore.Recorded) string {
	t.Helper()
	fact, err := events[0].Fact()
	require.NoError(t, err)
	return fact.Data.(event.ArrivalReceived).Raw.Body
}

func TestContent_StoredOutsideOfLog(t *testing.T) {
	onBoth(t, func(t *testing.T, p fixture) {
		store, stream := p.open(), newArrival()
		body := strings.Repeat("Asha", 400<<10) // more than an append may have
		received, fetched := fact(t, posted(body)),
			fact(t, event.ArrivalFetched{Raw: event.ArrivalRaw{Body: "Asha's answer"}})
		for range 2 { // repeated appends have no effect
			storetest.Append(t, store, write(stream, eventstore.NoStream, received))
		}
		storetest.Append(t, store, write(stream, eventstore.At(0), fetched, fact(t, event.ArrivalQuarantined{})))
		for _, r := range follow(t, p.below()) {
			require.Less(t, len(r.Data), 600)
		}
		for _, reader := range []*sealed.Store{store, p.open()} {
			all := read(t, reader, stream)
			require.JSONEq(t, string(received.Data), string(all[0].Data))
			require.JSONEq(t, string(fetched.Data), string(all[1].Data))
			require.Len(t, all, 3)
		}
		followed := follow(t, p.open())
		require.NotContains(t, string(followed[0].Data)+string(followed[1].Data), "raw",
			"subscriptions have no content")
		require.Contains(t, string(followed[0].Data), `"deliveryId":"d"`)
		last, err := p.open().Last(t.Context(), stream)
		require.NoError(t, err)
		require.Equal(t, (event.ArrivalQuarantined{}).EventType(), last.Type)

		require.NoError(t, store.Destroy(t.Context(), stream))
		require.Zero(t, p.contents(stream))
		for _, reader := range []*sealed.Store{store, p.open()} {
			all := read(t, reader, stream)
			require.True(t, all[0].Erased)
			require.Empty(t, rawOf(t, all))
		}
	})
}

// A process that still has the key in its cache finds the content gone, and returns the event as erased.
func TestContent_DestroyedByAnotherProcess(t *testing.T) {
	onBoth(t, func(t *testing.T, p fixture) {
		store, other, stream := p.open(), p.open(), newArrival()
		storetest.Append(t, store, write(stream, eventstore.NoStream, fact(t, posted("Asha"))))
		require.Equal(t, "Asha", rawOf(t, read(t, other, stream)))
		require.NoError(t, store.Destroy(t.Context(), stream))
		require.True(t, read(t, other, stream)[0].Erased)

		// The destroyed key is still cached by a third process, whose append follows.
		stream = newArrival()
		storetest.Append(t, store, write(stream, eventstore.NoStream, fact(t, posted("Asha"))))
		third := p.open()
		require.Len(t, read(t, third, stream), 1)
		require.NoError(t, store.Destroy(t.Context(), stream))
		storetest.Append(t, third, write(stream, eventstore.At(0), fact(t, event.ArrivalFetched{
			Raw: event.ArrivalRaw{Body: "Asha"},
		})))
		require.Zero(t, p.contents(stream))
		all := read(t, p.open(), stream)
		require.True(t, all[0].Erased && all[1].Erased)
	})
}

func TestContent_Damage(t *testing.T) {
	t.Parallel()
	p := newFixture(t, "")
	store := p.open()
	for what, damage := range map[string]string{
		"missing": `DELETE FROM person.content WHERE stream = $1`,
		"changed": `UPDATE person.content SET sealed = set_byte(sealed, 20, get_byte(sealed, 20) # 1)
			WHERE stream = $1`,
	} {
		stream := newArrival()
		storetest.Append(t, store, write(stream, eventstore.NoStream, fact(t, posted("Asha"))))
		pgtest.Exec(t, p.pool, damage, stream)
		require.True(t, read(t, store, stream)[0].Erased, what)
	}
	head, err := store.Head(t.Context())
	require.NoError(t, err)
	examined := 0
	for page, err := range store.Forensic().Examine(t.Context(), head) {
		require.NoError(t, err)
		for _, e := range page.Events {
			require.Contains(t, e.Damage, "has lost its content")
			examined++
		}
	}
	require.Equal(t, 2, examined)
	for _, r := range follow(t, store) {
		require.False(t, r.Erased, "subscriptions do not use it")
	}
}

// killed loses the appends of a process that is killed after it has stored the keys.
type killed struct{ eventstore.Store }

func (killed) Append(context.Context, ...eventstore.Write) (eventstore.Position, error) {
	return 0, eventstore.ErrUnavailable
}

func TestSweep_DeletesContentWithoutEvent(t *testing.T) {
	onBoth(t, func(t *testing.T, p fixture) {
		store, stored, lost, refused := p.open(), newArrival(), newArrival(), newArrival()
		storetest.Append(t, store, write(stored, eventstore.NoStream, fact(t, posted("Asha"))))
		_, err := store.Append(t.Context(), write(refused, eventstore.NoStream, fact(t, posted("Asha"))),
			eventstore.Check(stored, eventstore.NoStream))
		require.NotNil(t, eventstore.Conflict(err))
		storetest.Append(t, store, write(refused, eventstore.NoStream, fact(t, posted("Asha again"))))
		dying := sealed.Wrap(killed{p.below()}, p.vault(sealKey), p.log == "", slog.New(slog.DiscardHandler))
		_, err = dying.Append(t.Context(), write(lost, eventstore.NoStream, fact(t, posted("Asha"))))
		require.ErrorIs(t, err, eventstore.ErrUnavailable)

		deleted, err := store.Sweep(t.Context(), time.Now().Add(-time.Minute))
		require.NoError(t, err)
		require.Zero(t, deleted, "the append may be under way")
		want := 0
		if p.log != "" {
			want = 2
		}
		for _, n := range []int{want, 0} {
			deleted, err = store.Sweep(t.Context(), time.Now().Add(time.Minute))
			require.NoError(t, err)
			require.Equal(t, n, deleted)
		}
		require.Zero(t, p.contents(lost))
		require.Equal(t, 1, p.contents(refused))
		require.Equal(t, "Asha", rawOf(t, read(t, p.open(), stored)))
		require.Equal(t, "Asha again", rawOf(t, read(t, p.open(), refused)))
		require.Zero(t, pgtest.Value[int](t, p.pool, `SELECT count(*) FROM person.content WHERE pending IS NOT NULL`))
	})
}
