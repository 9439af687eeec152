package postgres

import (
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

// batchWriter is a writer whose batches the test makes.
func batchWriter(t *testing.T) *writer {
	t.Helper()
	config, err := pgx.ParseConfig(pgtest.DatabaseFrom(t, "log", Migrate))
	require.NoError(t, err)
	setSession(config)
	w := newWriter(config, 1, time.Minute, slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(w.disconnect)
	return w
}

// commit writes appends as one batch and returns their outcomes.
func commit(t *testing.T, w *writer, appends ...[]eventstore.Write) []outcome {
	t.Helper()
	var batch []*request
	for _, writes := range appends {
		r, err := newRequest(writes)
		require.NoError(t, err)
		batch = append(batch, r)
	}
	w.commit(batch)
	outcomes := make([]outcome, len(batch))
	for i, r := range batch {
		outcomes[i] = <-r.done
	}
	return outcomes
}

func events(stream string, expect eventstore.Expected, types ...string) eventstore.Write {
	w := eventstore.Write{Stream: stream, Expect: expect}
	for _, name := range types {
		w.Events = append(w.Events, eventstore.Event{ID: ulid.Make(), Type: name, At: time.UnixMilli(1_700_000_000_000), Data: []byte(`{}`)})
	}
	return w
}

func TestABatchIsAnsweredAppendByAppend(t *testing.T) {
	t.Parallel()
	w := batchWriter(t)
	old := []eventstore.Write{events("old", eventstore.NoStream, "a", "a")}
	require.Equal(t, []outcome{{position: 2}}, commit(t, w, old))
	token := eventstore.Check("token", eventstore.NoStream)
	first := []eventstore.Write{events("one", eventstore.NoStream, "a"), token, events("two", eventstore.NoStream, "a", "a")}
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
	require.Equal(t, want, commit(t, w, batch...), "the same batch again, as after an outcome unheard of")
}

func TestAnAppendTheDatabaseRefusesFailsAlone(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]string{
		"class 22": `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN IF NEW.type = 'bad' THEN PERFORM 1 / 0; END IF; RETURN NEW; END $$;
			CREATE TRIGGER refuse BEFORE INSERT ON log.event FOR EACH ROW EXECUTE FUNCTION refuse()`,
		"class 23": `ALTER TABLE log.event ADD CHECK (type <> 'bad')`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := batchWriter(t)
			require.Equal(t, []outcome{{position: 1}}, commit(t, w, []eventstore.Write{events("first", eventstore.NoStream, "good")}))
			pgtest.Exec(t, w.conn, refusal)
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

func TestABatchKeepsTheKeysOfWhatItStores(t *testing.T) {
	t.Parallel()
	w := batchWriter(t)
	keyed := func(id int64, write eventstore.Write) eventstore.Write {
		write.Key = &eventstore.Key{Stream: write.Stream, ID: id, SealedBy: "k1", Sealed: []byte{byte(id)}}
		return write
	}
	kept := func() map[string]int64 {
		rows, err := w.conn.Query(t.Context(), `SELECT stream, id FROM person.key WHERE sealed_by = 'k1' AND get_byte(sealed, 0) = id`)
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
		[]eventstore.Write{events("keyless", eventstore.NoStream, "a"), keyed(2, events("stored", eventstore.NoStream, "a", "a"))},
		[]eventstore.Write{keyed(3, events("refused", 7, "a"))},
		[]eventstore.Write{keyed(4, events("beside", eventstore.NoStream, "a")), eventstore.Check("again", 5)},
		[]eventstore.Write{eventstore.Check("again", 0), keyed(5, events("last", eventstore.Any, "a"))},
	)
	require.Equal(t, []outcome{{position: 1}, {position: 4}}, outcomes[:2])
	require.Error(t, outcomes[2].err)
	require.Error(t, outcomes[3].err)
	require.Equal(t, outcome{position: 5}, outcomes[4])
	require.Equal(t, map[string]int64{"stored": 2, "last": 5}, kept())
}

// Whoever has been told that the log is out of reach does not find later that it was written after all, if that can be helped;
// nor does what nobody waits for keep others from being written.
func TestABatchOfWhichNobodyWaitsAnyMoreIsGivenUp(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig("postgres://nobody@127.0.0.1:1/none")
	require.NoError(t, err)
	w := newWriter(config, 1, time.Millisecond, slog.New(slog.DiscardHandler))
	r, err := newRequest([]eventstore.Write{events("one", eventstore.NoStream, "a")})
	require.NoError(t, err)
	_, err = w.append(t.Context(), r)
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	over := make(chan struct{})
	go func() {
		w.commit([]*request{r})
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(time.Minute):
		require.Fail(t, "it is tried again and again")
	}
}
