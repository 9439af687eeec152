package postgres

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
)

func TestWhatIsNotAsExpectedKeepsNothingElseOfItsBatchFromTheLog(t *testing.T) {
	t.Parallel()
	taken := events("taken", eventstore.NoStream, "a", "a") // stands at 1 and 2
	conflict := func(stream string, expect, actual eventstore.Expected) outcome {
		return outcome{err: &eventstore.ConflictError{Stream: stream, Expected: expect, Actual: actual}}
	}
	for name, c := range map[string]struct {
		write  eventstore.Write
		want   outcome
		stored int // events
	}{
		"a stream that is not new":      {events("taken", eventstore.NoStream, "a"), conflict("taken", eventstore.NoStream, 1), 0},
		"a check that a stream is new":  {eventstore.Check("taken", eventstore.NoStream), conflict("taken", eventstore.NoStream, 1), 0},
		"a check of a stream":           {eventstore.Check("taken", 0), conflict("taken", 0, 1), 0},
		"a stream that is further":      {events("taken", 0, "a"), conflict("taken", 0, 1), 0},
		"a stream that is not so far":   {events("taken", 2, "a"), conflict("taken", 2, 1), 0},
		"a stream that is not there":    {events("nobody", 2, "a"), conflict("nobody", 2, eventstore.NoStream), 0},
		"the same append again":         {taken, outcome{position: 2}, 0},
		"nothing, in a stream as it is": {events("taken", 1, "a", "a"), outcome{position: 5}, 2},
		"nothing, in a new stream":      {events("two", eventstore.NoStream, "a", "a"), outcome{position: 5}, 2},
		"nothing, in a check":           {eventstore.Check("nobody", eventstore.NoStream), outcome{position: 2}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := batchWriter(t)
			require.Equal(t, []outcome{{position: 2}}, commit(t, w, []eventstore.Write{taken}))
			before, after := events("before", eventstore.NoStream, "a"), events("after", eventstore.NoStream, "a")
			before.Key = &eventstore.Key{Stream: "before", ID: 1, SealedBy: "k1", Sealed: []byte{1}}
			end := 4 + c.stored
			outcomes := commit(t, w, []eventstore.Write{before}, []eventstore.Write{c.write}, []eventstore.Write{after})
			require.Equal(t, []outcome{{position: 3}, c.want, {position: eventstore.Position(end)}}, outcomes)
			var keys, rows, last int
			require.NoError(t, w.conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM person.key), count(*), max(position) FROM log.event`).
				Scan(&keys, &rows, &last))
			require.Equal(t, []int{1, end, end}, []int{keys, rows, last})
		})
	}
}

// A key that stands there is not replaced, nor does it keep the events from the log that it comes with.
func TestAKeyThatIsThereAlreadyStays(t *testing.T) {
	t.Parallel()
	w := batchWriter(t)
	for i, expect := range []eventstore.Expected{eventstore.NoStream, 0} {
		write := events("one", expect, "a")
		write.Key = &eventstore.Key{Stream: "one", ID: 1, SealedBy: "k1", Sealed: []byte{byte(i)}}
		require.Equal(t, []outcome{{position: eventstore.Position(i + 1)}}, commit(t, w, []eventstore.Write{write}))
	}
	var sealed []byte
	require.NoError(t, w.conn.QueryRow(t.Context(), `SELECT sealed FROM person.key`).Scan(&sealed))
	require.Equal(t, []byte{0}, sealed)
}

func TestNewStreamsAreLookedForOnlyForAWhileAfterARefusal(t *testing.T) {
	t.Parallel()
	w := batchWriter(t)
	streams := 0
	another := func() error {
		streams++
		return commit(t, w, []eventstore.Write{events(fmt.Sprint(streams), eventstore.NoStream, "a")})[0].err
	}
	rename := func(function, name string) {
		pgtest.Exec(t, w.conn, "ALTER FUNCTION log."+function+" RENAME TO "+name)
	}
	require.NoError(t, another())
	rename("append", "hidden")
	require.NoError(t, another())
	rename("hidden", "append")

	streams--
	require.NotNil(t, eventstore.Conflict(another()))
	rename("append_whole", "hidden")
	for range afterRefusal {
		require.NoError(t, another())
	}
	require.ErrorIs(t, another(), eventstore.ErrUnavailable, "log.append_whole is called again, and is not there")
}
