package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/projection/schema"
)

// replayBenchmark asks how fast the log is read and the views are built out of it, beside PostgreSQL handing out the same
// rows as they lie.
type replayBenchmark struct {
	settings `embed:""`
	Events   int  `default:"1000000" help:"Events on the log."`
	Rows     int  `default:"1000000" help:"Rows of the export."`
	Unsealed bool `help:"A log from before persons' data was sealed."`
}

// Run is leadbench replay.
func (b *replayBenchmark) Run(ctx context.Context) error {
	r, err := newRig(ctx, b.settings)
	if err != nil {
		return err
	}
	defer r.close()
	m := &replayMeasures{rig: r, sealKey: key()}
	if err := m.open(ctx); err != nil {
		return err
	}
	defer m.close()
	say("writing a log of %d events", b.Events)
	past, log := newHistory(), m.opened
	if b.Unsealed {
		log = m.store
	}
	if m.head, err = past.write(ctx, log, b.Events); err != nil {
		return err
	}
	for round := range b.Rounds {
		say("round %d of %d", round+1, b.Rounds)
		if err := m.round(ctx); err != nil {
			return err
		}
	}
	if err := m.timeTravel(ctx, past.busy); err != nil {
		return err
	}
	if err := m.export(ctx, b.Rows); err != nil {
		return err
	}
	m.print()
	return nil
}

// replayMeasures are what the rounds gave. Times are of the whole log.
type replayMeasures struct {
	*rig
	address string
	sealKey string
	pool    *pgxpool.Pool
	store   *postgres.Store
	opened  eventstore.Store // the same, whose events are opened
	head    eventstore.Position

	copied, scanned, read []time.Duration
	replayed, verified    []finished
	exports               []export
	asOf                  timeTravel
}

func (m *replayMeasures) open(ctx context.Context) (err error) {
	if m.address, err = m.database(ctx, "log"); err != nil {
		return err
	}
	if err := schema.Migrate(ctx, m.address); err != nil {
		return err
	}
	if err := postgres.Migrate(ctx, m.address); err != nil {
		return err
	}
	if m.pool, err = pgxpool.New(ctx, m.address); err != nil {
		return err
	}
	if m.store, err = postgres.Open(ctx, postgres.Options{URL: m.address}); err != nil {
		return err
	}
	raw, err := base64.StdEncoding.DecodeString(m.sealKey)
	if err != nil {
		return err
	}
	box, err := sealbox.New(raw)
	if err != nil {
		return err
	}
	m.opened = sealed.Wrap(m.store, sealed.NewVault(m.pool, box), true, slog.New(slog.DiscardHandler))
	return nil
}

func (m *replayMeasures) close() {
	m.store.Close()
	m.pool.Close()
}

func (m *replayMeasures) round(ctx context.Context) error {
	for _, measure := range []func(context.Context) error{m.copy, m.scan, m.replay, m.verify} {
		if err := m.checkpoint(ctx); err != nil {
			return err
		}
		if err := measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// copy is the least that anyone who reads the log can do.
func (m *replayMeasures) copy(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, m.address)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	began := time.Now()
	_, err = conn.PgConn().CopyTo(ctx, io.Discard, `COPY (
		SELECT position, recorded_at, revision, event_id, stream, type, data, metadata FROM log.event ORDER BY position
	) TO STDOUT (FORMAT binary)`)
	m.copied = append(m.copied, time.Since(began))
	return err
}

// scan reads every event through the store, as it is kept and opened.
func (m *replayMeasures) scan(ctx context.Context) error {
	for _, s := range []struct {
		store eventstore.Store
		took  *[]time.Duration
	}{{m.store, &m.scanned}, {m.opened, &m.read}} {
		began := time.Now()
		for item, err := range s.store.Subscribe(ctx, 0, eventstore.Filter{}) {
			if err != nil {
				return err
			}
			if item.Position >= m.head {
				break
			}
		}
		*s.took = append(*s.took, time.Since(began))
	}
	return nil
}

func (m *replayMeasures) replay(ctx context.Context) error {
	run, err := m.command(ctx, io.Discard, "replay", "all")
	m.replayed = append(m.replayed, run)
	return err
}

func (m *replayMeasures) verify(ctx context.Context) error {
	run, err := m.command(ctx, io.Discard, "verify", "--most", "1")
	m.verified = append(m.verified, run)
	return err
}

// timeTravel is how long it takes to be told of a lead as it was among its many events, and what it costs.
type timeTravel struct {
	took              []time.Duration
	program, database time.Duration // processor time of one
}

// timeTravel asks a running service over HTTP, for moments of all of the lead's life in no order.
func (m *replayMeasures) timeTravel(ctx context.Context, lead string) error {
	s, err := m.serve(ctx, m.address, "LEADLOG_SEAL_KEY="+m.sealKey)
	if err != nil {
		return err
	}
	defer s.stop()
	random := rand.New(rand.NewPCG(3, 4))
	ask := func(times int) error {
		for range times {
			var answer any
			moment := beginning.Add(time.Duration(1+random.IntN(busyEvents)) * time.Second)
			path := "/api/v1/crm/leads/" + lead + "?asOf=" + moment.Format(time.RFC3339)
			began := time.Now()
			if err := s.call(ctx, "GET", path, "", &answer); err != nil {
				return err
			}
			m.asOf.took = append(m.asOf.took, time.Since(began))
		}
		return nil
	}
	const times = 1000
	if err := ask(times / 10); err != nil { // to warm up
		return err
	}
	m.asOf.took = nil
	program, database, err := m.spent(s, func() error { return ask(times) })
	m.asOf.program, m.asOf.database = program/times, database/times
	return err
}

// finished is a command of the program that came to its end.
type finished struct {
	took              time.Duration
	program, database time.Duration // processor time
	memory            float64       // the most that was resident, in MiB
}

func (m *replayMeasures) command(ctx context.Context, out io.Writer, args ...string) (f finished, err error) {
	cmd := exec.CommandContext(ctx, m.program, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "LEADLOG_DATABASE_URL=" + m.address, "LEADLOG_SEAL_KEY=" + m.sealKey}, m.setting...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	before, err := m.processor()
	if err != nil {
		return f, err
	}
	began := time.Now()
	p, err := start(cmd)
	if err != nil {
		return f, err
	}
	if f.memory, err = p.wait(); err != nil {
		return f, fmt.Errorf("leadlog %s: %w", args[0], err)
	}
	f.took = time.Since(began)
	after, err := m.processor()
	f.program, f.database = cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), after-before
	return f, err
}

func (m *replayMeasures) print() {
	rate := func(took time.Duration) float64 { return float64(m.head) / took.Seconds() }
	copied := rate(median(m.copied))
	t := newTable("what", "a second", "to the binary COPY", "goal", "processor time per million: program, PostgreSQL", "most memory", "goal")
	t.row("events by an ordered binary COPY", count(copied), "1", "", "", "", "")
	scanned := rate(median(m.scanned))
	t.row("events read through the store", count(scanned), times(scanned/copied), atLeast(0.75), "", "", "")
	read := rate(median(m.read))
	t.row("events read through the store, and opened", count(read), times(read/copied), "", "", "", "")
	for _, c := range []struct {
		what, goal string
		runs       []finished
	}{
		{"events, all views replayed", atLeast(250_000) + " events", m.replayed},
		{"events, log and views verified", "", m.verified},
	} {
		took := rate(middle(c.runs, func(f finished) time.Duration { return f.took }))
		program, database := middle(c.runs, func(f finished) time.Duration { return f.program }), middle(c.runs, func(f finished) time.Duration { return f.database })
		each := func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()*1e6/float64(m.head)) }
		memory := middle(c.runs, func(f finished) float64 { return f.memory })
		t.row(c.what, count(took), times(took/copied), c.goal, each(program)+", "+each(database), mebibytes(memory), atMost("256 MiB"))
	}
	for _, e := range m.exports {
		t.row("rows of the source history as "+e.format, count(float64(e.rows)/e.took.Seconds()), "", "", "", mebibytes(e.memory), atMost("256 MiB"))
	}
	t.print()
	t = newTable("a lead of "+fmt.Sprint(busyEvents)+" events", "median", "goal", "processor time: service, PostgreSQL")
	t.row("as it was, over HTTP", millis(median(m.asOf.took)), atMost("5 ms"), millis(m.asOf.program)+", "+millis(m.asOf.database))
	t.print()
}

// middle is the median of one figure of several runs.
func middle[T float64 | time.Duration](runs []finished, figure func(finished) T) T {
	var figures []T
	for _, run := range runs {
		figures = append(figures, figure(run))
	}
	return median(figures)
}
