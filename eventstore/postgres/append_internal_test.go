package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
)

// batchWriter returns a writer whose batches are made by the test.
func batchWriter(t *testing.T) *writer {
	t.Helper()
	config, err := pgx.ParseConfig(pgtest.DatabaseFrom(t, "log", Migrate))
	require.NoError(t, err)
	setSession(config)
	w := newWriter(config, time.Minute, slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(w.disconnect)
	return w
}

// commit writes appends as one batch and returns their outcomes.
func commit(t *testing.T, w *writer, appends ...[]eventstore.Write) []outcome {
	t.Helper()
	group := make([]eventstore.Append, len(appends))
	for i, writes := range appends {
		group[i] = prepared(t, writes...)
	}
	outcomes := make([]outcome, len(appends))
	for i, r := range w.appendGroup(t.Context(), group) {
		outcomes[i] = outcome{r.Position, r.Err}
	}
	return outcomes
}

func prepared(t *testing.T, writes ...eventstore.Write) eventstore.Append {
	t.Helper()
	r, err := newRequest(eventstore.Append{Writes: writes})
	require.NoError(t, err)
	return eventstore.Append{Prepared: r}
}

func events(stream string, expect eventstore.Expected, types ...string) eventstore.Write {
	w := eventstore.Write{Stream: stream, Expect: expect}
	for _, name := range types {
		w.Events = append(w.Events, eventstore.Event{
			ID: ulid.Make(), Type: name, At: time.UnixMilli(1_700_000_000_000), Data: []byte(`{}`),
		})
	}
	return w
}

func TestBatch_OutcomePerAppend(t *testing.T) {
	t.Parallel()
	w := batchWriter(t)
	old := []eventstore.Write{events("old", eventstore.NoStream, "a", "a")}
	require.Equal(t, []outcome{{position: 2}}, commit(t, w, old))
	token := eventstore.Check("token", eventstore.NoStream)
	first := []eventstore.Write{
		events("one", eventstore.NoStream, "a"), token, events("two", eventstore.NoStream, "a", "a"),
	}
	last := []eventstore.Write{events("three", eventstore.Any, "a"), token}
	batch := [][]eventstore.Write{
		first,
		{events("four", eventstore.NoStream, "a"), events("five", eventstore.At(3), "a")},
		old,
		{token},
		{token, eventstore.Check("else", eventstore.At(9))},
		last,
	}
	want := []outcome{
		{position: 5},
		{err: &eventstore.ConflictError{Stream: "five", Expected: eventstore.At(3), Actual: eventstore.NoStream}},
		{position: 2},
		{position: 2}, // the head before the batch
		{err: &eventstore.ConflictError{Stream: "else", Expected: eventstore.At(9), Actual: eventstore.NoStream}},
		{position: 6},
	}
	require.Equal(t, want, commit(t, w, batch...))
	want[3].position = 6
	require.Equal(t, want, commit(t, w, batch...), "the same batch again, as after a lost response")
}

func TestBatch_InvalidAppendIsolated(t *testing.T) {
	t.Parallel()
	for name, constraint := range map[string]string{
		"class 22": `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN IF NEW.type = 'bad' THEN PERFORM 1 / 0; END IF; RETURN NEW; END $$;
			CREATE TRIGGER refuse BEFORE INSERT ON log.event FOR EACH ROW EXECUTE FUNCTION refuse()`,
		"class 23": `ALTER TABLE log.event ADD CHECK (type <> 'bad')`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := batchWriter(t)
			require.Equal(t, []outcome{{position: 1}}, commit(t, w, []eventstore.Write{
				events("first", eventstore.NoStream, "good"),
			}))
			pgtest.Exec(t, w.conn, constraint)
			batch := make([][]eventstore.Write, 20)
			for i := range batch {
				types := []string{"good", "good"}
				if i == 7 || i == 12 {
					types[1] = "bad"
				}
				batch[i] = []eventstore.Write{events(fmt.Sprint(i), eventstore.NoStream, types...)}
			}
			position := eventstore.Position(1)
			for i, o := range commit(t, w, batch...) {
				if i == 7 || i == 12 {
					require.Error(t, o.err)
					require.NotErrorIs(t, o.err, eventstore.ErrUnavailable)
					continue
				}
				position += 2
				require.Equal(t, outcome{position: position}, o)
			}
		})
	}
}

func TestBatch_StoresKeys(t *testing.T) {
	t.Parallel()
	w := batchWriter(t)
	keyed := func(id int64, write eventstore.Write) eventstore.Write {
		write.Key = &eventstore.Key{Stream: write.Stream, ID: id, SealedBy: "k1", Sealed: []byte{byte(id)}}
		return write
	}
	kept := func() map[string]int64 {
		rows, err := w.conn.Query(t.Context(),
			`SELECT stream, id FROM person.key WHERE sealed_by = 'k1' AND get_byte(sealed, 0) = id`)
		require.NoError(t, err)
		found := map[string]int64{}
		var stream string
		var id int64
		_, err = pgx.ForEachRow(rows, []any{&stream, &id}, func() error { found[stream] = id; return nil })
		require.NoError(t, err)
		return found
	}
	again := []eventstore.Write{keyed(1, events("again", eventstore.NoStream, "a"))}
	require.NoError(t, commit(t, w, again)[0].err)
	require.Equal(t, map[string]int64{"again": 1}, kept())
	pgtest.Exec(t, w.conn, `DELETE FROM person.key`)

	outcomes := commit(t, w,
		again,
		[]eventstore.Write{
			events("keyless", eventstore.NoStream, "a"), keyed(2, events("stored", eventstore.NoStream, "a", "a")),
		},
		[]eventstore.Write{keyed(3, events("refused", 7, "a"))},
		[]eventstore.Write{keyed(4, events("unstored", eventstore.NoStream, "a")), eventstore.Check("again", 5)},
		[]eventstore.Write{eventstore.Check("again", 0), keyed(5, events("last", eventstore.Any, "a"))},
	)
	require.Equal(t, []outcome{{position: 1}, {position: 4}}, outcomes[:2])
	require.Error(t, outcomes[2].err)
	require.Error(t, outcomes[3].err)
	require.Equal(t, outcome{position: 5}, outcomes[4])
	require.Equal(t, map[string]int64{"stored": 2, "last": 5}, kept())
}

// An append that timed out must not be retried forever: it would be written later and delay other appends.
func TestBatch_DroppedAfterTimeout(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig("postgres://none@127.0.0.1:1/none")
	require.NoError(t, err)
	w := newWriter(config, time.Minute, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	results := w.appendGroup(ctx, []eventstore.Append{prepared(t, events("one", eventstore.NoStream, "a"))})
	require.ErrorIs(t, results[0].Err, eventstore.ErrUnavailable)
}

func TestBatch_Expectations(t *testing.T) {
	t.Parallel()
	taken := events("taken", eventstore.NoStream, "a", "a") // at positions 1 and 2
	conflict := func(stream string, expect, actual eventstore.Expected) outcome {
		return outcome{err: &eventstore.ConflictError{Stream: stream, Expected: expect, Actual: actual}}
	}
	for name, c := range map[string]struct {
		write  eventstore.Write
		want   outcome
		stored int // events
	}{
		"new stream exists": {
			events("taken", eventstore.NoStream, "a"), conflict("taken", eventstore.NoStream, 1), 0,
		},
		"checked stream exists": {
			eventstore.Check("taken", eventstore.NoStream), conflict("taken", eventstore.NoStream, 1), 0,
		},
		"checked stream has moved": {eventstore.Check("taken", 0), conflict("taken", 0, 1), 0},
		"stream has moved":         {events("taken", 0, "a"), conflict("taken", 0, 1), 0},
		"stream is shorter":        {events("taken", 2, "a"), conflict("taken", 2, 1), 0},
		"no stream":                {events("absent", 2, "a"), conflict("absent", 2, eventstore.NoStream), 0},
		"same append again":        {taken, outcome{position: 2}, 0},
		"existing stream":          {events("taken", 1, "a", "a"), outcome{position: 5}, 2},
		"new stream":               {events("two", eventstore.NoStream, "a", "a"), outcome{position: 5}, 2},
		"check that holds":         {eventstore.Check("absent", eventstore.NoStream), outcome{position: 2}, 0},
	} {
		check := func(t *testing.T, lookUps int) {
			t.Parallel()
			w := batchWriter(t)
			require.Equal(t, []outcome{{position: 2}}, commit(t, w, []eventstore.Write{taken}))
			before, after := events("before", eventstore.NoStream, "a"), events("after", eventstore.NoStream, "a")
			before.Key = &eventstore.Key{Stream: "before", ID: 1, SealedBy: "k1", Sealed: []byte{1}}
			end := 4 + c.stored
			w.lookUps = lookUps
			outcomes := commit(t, w, []eventstore.Write{before}, []eventstore.Write{c.write}, []eventstore.Write{after})
			require.Equal(t, []outcome{{position: 3}, c.want, {position: eventstore.Position(end)}}, outcomes)
			var keys, rows, last int
			require.NoError(t,
				w.conn.QueryRow(t.Context(),
					`SELECT (SELECT count(*) FROM person.key), count(*), max(position) FROM log.event`).
					Scan(&keys, &rows, &last))
			require.Equal(t, []int{1, end, end}, []int{keys, rows, last})
			refused := c.stored == 0 && name != "check that holds"
			require.Equal(t, refused, w.lookUps == lookUpsAfterRefusal)
		}
		t.Run(name, func(t *testing.T) { check(t, 0) })
		t.Run(name+", looked up", func(t *testing.T) { check(t, 1) })
	}
}

// A stored key is not replaced. Events with another key of the same id are stored.
func TestBatch_KeepsExistingKey(t *testing.T) {
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
