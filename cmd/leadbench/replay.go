package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/query"
)

// replayBenchmark asks how fast the log is read and the views are built out of it, beside PostgreSQL handing out the same
// rows as they lie.
type replayBenchmark struct {
	settings `embed:""`
	Events   int `default:"1000000" help:"Events on the log."`
}

// Run is leadbench replay.
func (b *replayBenchmark) Run(ctx context.Context) error {
	r, err := newRig(ctx, b.settings)
	if err != nil {
		return err
	}
	defer r.close()
	m := &replayMeasures{rig: r}
	if m.address, err = r.database(ctx, "log"); err != nil {
		return err
	}
	if err := schema.Migrate(ctx, m.address); err != nil {
		return err
	}
	if err := postgres.Migrate(ctx, m.address); err != nil {
		return err
	}
	if m.store, err = postgres.Open(ctx, postgres.Options{URL: m.address}); err != nil {
		return err
	}
	defer m.store.Close()
	say("writing a log of %d events", b.Events)
	past := newHistory()
	if m.head, err = past.write(ctx, m.store, b.Events); err != nil {
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
	m.print()
	return nil
}

// replayMeasures are what the rounds gave. Times are of the whole log.
type replayMeasures struct {
	*rig
	address string
	store   *postgres.Store
	head    eventstore.Position

	copied, scanned, replayed, verified []time.Duration
	inReplay, inDatabase                []time.Duration // processor time of a replay
	replayMemory, verifyMemory          []float64       // MiB
	exports                             map[string][]float64
	exportMemory                        []float64
	asOf                                []time.Duration
}

func (m *replayMeasures) round(ctx context.Context) error {
	for _, measure := range []func(context.Context) error{m.copy, m.scan, m.replay, m.verify, m.export} {
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

// scan reads every event through the store.
func (m *replayMeasures) scan(ctx context.Context) error {
	began := time.Now()
	for item, err := range m.store.Subscribe(ctx, 0, eventstore.Filter{}) {
		if err != nil {
			return err
		}
		if item.Position >= m.head {
			break
		}
	}
	m.scanned = append(m.scanned, time.Since(began))
	return nil
}

func (m *replayMeasures) replay(ctx context.Context) error {
	before, err := m.processor()
	if err != nil {
		return err
	}
	run, err := m.command(ctx, io.Discard, "replay", "all")
	if err != nil {
		return err
	}
	after, err := m.processor()
	m.replayed, m.replayMemory = append(m.replayed, run.took), append(m.replayMemory, run.memory)
	m.inReplay, m.inDatabase = append(m.inReplay, run.processor), append(m.inDatabase, after-before)
	return err
}

func (m *replayMeasures) verify(ctx context.Context) error {
	run, err := m.command(ctx, io.Discard, "verify", "--most", "1")
	m.verified, m.verifyMemory = append(m.verified, run.took), append(m.verifyMemory, run.memory)
	return err
}

func (m *replayMeasures) export(ctx context.Context) error {
	if m.exports == nil {
		m.exports = map[string][]float64{}
	}
	for _, format := range []string{"csv", "ndjson"} {
		var rows lines
		run, err := m.command(ctx, &rows, "export", "sources", "--account", account, "--format", format)
		if err != nil {
			return err
		}
		m.exports[format] = append(m.exports[format], float64(rows)/run.took.Seconds())
		m.exportMemory = append(m.exportMemory, run.memory)
	}
	return nil
}

// lines counts them.
type lines int

func (l *lines) Write(p []byte) (int, error) {
	for _, c := range p {
		if c == '\n' {
			*l++
		}
	}
	return len(p), nil
}

// timeTravel asks for a lead as it was before the last of its many events.
func (m *replayMeasures) timeTravel(ctx context.Context, lead string) error {
	pool, err := pgxpool.New(ctx, m.address)
	if err != nil {
		return err
	}
	defer pool.Close()
	reader := query.New(pool, m.store)
	for range 200 {
		began := time.Now()
		if _, err := reader.LeadAsOf(ctx, account, lead, time.Now()); err != nil {
			return err
		}
		m.asOf = append(m.asOf, time.Since(began))
	}
	return nil
}

// finished is a command of the program that came to its end.
type finished struct {
	took, processor time.Duration
	memory          float64 // the most that was resident, in MiB
}

func (m *replayMeasures) command(ctx context.Context, out io.Writer, args ...string) (f finished, err error) {
	cmd := exec.CommandContext(ctx, m.program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LEADLOG_DATABASE_URL=" + m.address}
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return f, fmt.Errorf("leadlog %s: %w", args[0], err)
	}
	f.took = time.Since(began)
	f.processor = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		f.memory = float64(usage.Maxrss) / 1024 // Linux tells KiB
	}
	return f, nil
}

func (m *replayMeasures) print() {
	rate := func(took []time.Duration) float64 { return float64(m.head) / median(took).Seconds() }
	copied := rate(m.copied)
	t := newTable("what", "a second", "to the binary COPY", "goal", "most memory", "goal")
	t.row("events by an ordered binary COPY", count(copied), "1", "", "", "")
	t.row("events read through the store", count(rate(m.scanned)), times(rate(m.scanned)/copied), atLeast(0.75), "", "")
	t.row("events, all views replayed", count(rate(m.replayed)), times(rate(m.replayed)/copied), atLeast(250_000)+" events", mebibytes(median(m.replayMemory)), atMost("256 MiB"))
	t.row("events, log and views verified", count(rate(m.verified)), times(rate(m.verified)/copied), "", mebibytes(median(m.verifyMemory)), atMost("256 MiB"))
	for _, format := range []string{"csv", "ndjson"} {
		t.row("rows of the source history as "+format, count(median(m.exports[format])), "", "", mebibytes(median(m.exportMemory)), atMost("256 MiB"))
	}
	t.print()
	say("A replay takes %s of the program's processor time and %s of PostgreSQL's.", millis(median(m.inReplay)), millis(median(m.inDatabase)))
	t = newTable("a lead of "+fmt.Sprint(busyEvents)+" events, as it was", "median", "goal")
	t.row("folded", millis(median(m.asOf)), atMost("5 ms"))
	t.print()
}
