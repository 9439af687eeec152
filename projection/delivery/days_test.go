package delivery_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/delivery/deliverytest"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

const day = 24 * time.Hour

func days(w *projectiontest.World) delivery.Days {
	return delivery.Days{Pool: w.Pool, Log: slog.New(slog.DiscardHandler)}
}

// dayTables names the partitions of a table.
func dayTables(t *testing.T, w *projectiontest.World, of string) []string {
	t.Helper()
	return pgtest.Rows[string](t, w.Pool, `
		SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE inhparent = ('delivery.' || $1)::regclass
		ORDER BY relname`, of)
}

// appendAt appends a new lead with a given time.
func appendAt(t *testing.T, w *projectiontest.World, at time.Time) {
	t.Helper()
	appendFact(t, w, at, deliverytest.NewLead("Ann"))
}

func appendFact(t *testing.T, w *projectiontest.World, at time.Time, fact event.Data) {
	t.Helper()
	at = at.UTC().Truncate(time.Millisecond)
	id := ulid.MustNew(ulid.Timestamp(at), ulid.DefaultEntropy())
	name, data, err := event.Encode(fact)
	require.NoError(t, err)
	_, err = w.Store.Append(t.Context(),
		eventstore.Write{Stream: event.LeadStream(id.String()), Expect: eventstore.NoStream, Events: []eventstore.Event{
			{ID: id, Type: name, At: at, Data: data, Metadata: event.Metadata{Account: "acme"}}}})
	require.NoError(t, err)
}

func TestDays_Partition(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	deliverytest.Register(t, w, "acme", "https://a.example", "*")
	midnight := time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC)
	for _, at := range []time.Time{
		midnight.Add(-time.Millisecond), midnight, midnight.Add(day - time.Millisecond), midnight.Add(day),
		midnight.Add(7 * day),
	} {
		appendAt(t, w, at)
	}
	deliverytest.CatchUp(t, w)
	require.Equal(t, []string{"delivery_20260227", "delivery_20260228", "delivery_20260301", "delivery_20260307"},
		dayTables(t, w, "delivery"))
	require.Equal(t, []string{"attempt_20260227", "attempt_20260228", "attempt_20260301", "attempt_20260307"},
		dayTables(t, w, "attempt"))
	rows := pgtest.Value[int](t, w.Pool, `SELECT count(*) FROM delivery.delivery_20260228`)
	require.Equal(t, 2, rows)
}

func TestDays_OpenedConcurrently(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	var group errgroup.Group
	for range 8 {
		group.Go(func() error { return days(w).RunOnce(t.Context()) })
	}
	require.NoError(t, group.Wait())
	require.Len(t, dayTables(t, w, "delivery"), 3)
	require.Len(t, dayTables(t, w, "attempt"), 3)
}

func TestDays_Drop(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	id := deliverytest.Register(t, w, "acme", "https://a.example", "*")
	now := time.Now()
	appendAt(t, w, now.Add(-40*day)) // finished long ago
	appendAt(t, w, now.Add(-39*day)) // still queued
	appendAt(t, w, now.Add(-38*day)) // finished yesterday
	appendAt(t, w, now.Add(-29*day)) // finished then
	deliverytest.CatchUp(t, w)
	named := func(ago int) string { return now.UTC().Add(-time.Duration(ago) * day).Format("delivery_20060102") }
	finish := func(ago, finished int) {
		pgtest.Exec(t, w.Pool, `
			WITH gone AS (DELETE FROM delivery.queue
			  WHERE delivery_id IN (SELECT delivery_id FROM delivery.`+named(ago)+`))
			UPDATE delivery.`+named(ago)+` SET state = 'delivered', finished_at = now() - $1::integer * `+
			`interval '1 day'`, finished)
	}
	finish(40, 40)
	finish(38, 1)
	finish(29, 29)
	var group errgroup.Group
	for range 4 {
		group.Go(func() error { return days(w).RunOnce(t.Context()) })
	}
	require.NoError(t, group.Wait())
	kept := dayTables(t, w, "delivery")
	require.NotContains(t, kept, named(40))
	require.Contains(t, kept, named(39))
	require.Contains(t, kept, named(38))
	require.Contains(t, kept, named(29))
	require.Len(t, dayTables(t, w, "attempt"), len(kept))

	finish(39, 31)
	require.NoError(t, days(w).RunOnce(t.Context()))
	require.NotContains(t, dayTables(t, w, "delivery"), named(39))

	pgtest.Exec(t, w.Pool, `DELETE FROM delivery.checkpoint`)
	deliverytest.CatchUp(t, w)
	require.Empty(t, deliverytest.Queued(t, w, id),
		"what was thrown away is not sent again, should the log be read again")
	appendAt(t, w, now.Add(-50*day))
	deliverytest.CatchUp(t, w)
	require.Len(t, deliverytest.Queued(t, w, id), 1, "but what is new on the log is, however late")
}

// Certificates of erasures are requested after the deliveries were dropped.
func TestDays_SaveErasures(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	answers, fails := deliverytest.Register(t, w, "acme", "https://a.example", "*"),
		deliverytest.Register(t, w, "acme", "https://b.example", "lead.erased")
	for _, ago := range []time.Duration{40, 38} { // the second is of a replay whose deliveries all fail
		appendAt(t, w, time.Now().Add(-ago*day))
		appendFact(t, w, time.Now().Add(-ago*day), event.LeadErased{})
	}
	deliverytest.CatchUp(t, w)
	pgtest.Exec(t, w.Pool, `DELETE FROM delivery.queue`)
	pgtest.Exec(t, w.Pool, `UPDATE delivery.delivery SET event_id = 'erasure' WHERE type = 'lead.erased'`)
	pgtest.Exec(t, w.Pool,
		`UPDATE delivery.delivery SET state = 'failed', finished_at = created_at - interval '38 days'`)
	first := time.Now().Add(-40 * day).UTC().Format("delivery_20060102")
	pgtest.Exec(t, w.Pool,
		`UPDATE delivery.`+first+` SET state = 'delivered', finished_at = '2026-03-01T09:00:00Z' WHERE webhook_id = $1`,
		answers)
	pgtest.Exec(t, w.Pool,
		`INSERT INTO delivery.attempt SELECT delivery_id, now() + n * interval '1 s', 500 - n * 300, 1, '', ''
			FROM delivery.`+first+`, generate_series(0, 1) AS n`)
	require.NoError(t, days(w).RunOnce(t.Context()))
	require.NotContains(t, dayTables(t, w, "delivery"), first)
	require.Equal(t, []string{answers + " delivered 2 200", fails + " failed 0 0"}, pgtest.Rows[string](t, w.Pool, `
		SELECT concat_ws(' ', webhook_id, state, attempts, status) FROM delivery.erasure WHERE event_id = 'erasure'
		ORDER BY state`))
}

// counted returns an account's deliveries by day.
func counted(t *testing.T, w *projectiontest.World, account string) map[string]int {
	t.Helper()
	rows, err := w.Pool.Query(t.Context(),
		`SELECT day::text, queued FROM delivery.account_day WHERE account = $1`, account)
	require.NoError(t, err)
	days, n := map[string]int{}, 0
	var name string
	_, err = pgx.ForEachRow(rows, []any{&name, &n}, func() error { days[name] = n; return nil })
	require.NoError(t, err)
	return days
}

func TestDays_Counts(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	deliverytest.Register(t, w, "acme", "https://a.example", "*")
	deliverytest.Register(t, w, "acme", "https://b.example", "lead.created")
	deliverytest.Register(t, w, "globex", "https://c.example", "*")
	now := time.Now()
	appendAt(t, w, now)
	appendAt(t, w, now)
	deliverytest.CatchUp(t, w)
	appendAt(t, w, now)
	appendAt(t, w, now.Add(-40*day))
	deliverytest.CatchUp(t, w)
	named := func(at time.Time) string { return at.UTC().Format(time.DateOnly) }
	require.Equal(t, map[string]int{named(now): 6, named(now.Add(-40 * day)): 2}, counted(t, w, "acme"))
	require.Empty(t, counted(t, w, "globex"))

	pgtest.Exec(t, w.Pool, `DELETE FROM delivery.checkpoint`)
	deliverytest.CatchUp(t, w)
	require.Equal(t, 6, counted(t, w, "acme")[named(now)],
		"what is there already counts once, should the log be read again")

	pgtest.Exec(t, w.Pool, `
		WITH gone AS (DELETE FROM delivery.queue) UPDATE delivery.delivery
		SET state = 'delivered', finished_at = now() - interval '35 days'`)
	require.NoError(t, days(w).RunOnce(t.Context()))
	require.Equal(t, map[string]int{named(now): 6}, counted(t, w, "acme"))
}
