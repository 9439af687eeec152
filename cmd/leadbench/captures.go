package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
)

// capturesBenchmark asks what a capture costs: durable, decided, deduplicated, answered over HTTP with the views kept
// up, on the processors that also make the load.
type capturesBenchmark struct {
	settings    `embed:""`
	Connections int           `default:"64"`
	Duration    time.Duration `default:"5s" help:"Of each measurement."`
	Alone       bool          `help:"Only leadlog, without what it is compared with: to look into it while it works."`
}

// captureRun is a run of it, and what it has measured so far, a round each.
type captureRun struct {
	*capturesBenchmark
	rig     *rig
	crud    string // address of the database of plain rows
	minimal string // base address of the minimal handler
	leadlog *service
	known   people // who were captured in this round

	plain, oneStatement, handler, tenthMerges []float64 // a second
	p99AtHalf, plainAtHalf, inLoad            []time.Duration
	fresh, merges                             figures
}

// Run is leadbench captures.
func (b *capturesBenchmark) Run(ctx context.Context) error {
	r, err := newRig(ctx, b.settings)
	if err != nil {
		return err
	}
	defer r.close()
	c := captureRun{capturesBenchmark: b, rig: r}
	if c.crud, err = r.crud(ctx, "crud"); err != nil {
		return err
	}
	minimal, base, err := r.serveCrud(ctx, c.crud)
	if err != nil {
		return err
	}
	defer minimal.stop()
	c.minimal = base
	if c.leadlog, err = r.serveAnew(ctx, "log"); err != nil {
		return err
	}
	defer c.leadlog.stop()
	for round := range b.Rounds {
		say("round %d of %d", round+1, b.Rounds)
		if err := c.round(ctx); err != nil {
			return err
		}
	}
	return c.report(ctx)
}

// round measures everything once, each with nothing else going on.
func (c *captureRun) round(ctx context.Context) error {
	steps := []func(context.Context) error{c.newLeads, c.halfTheRate, c.aTenthMerges, c.allMerge}
	if !c.Alone {
		steps = slices.Insert(steps, 0, c.transactions, c.transactionsAtHalf, c.oneStatements, c.minimalHandler)
	}
	for _, step := range steps {
		if err := c.rig.checkpoint(ctx); err != nil {
			return err
		}
		if err := step(ctx); err != nil {
			return err
		}
		if _, err := c.leadlog.catchUp(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *captureRun) transactions(ctx context.Context) error {
	rate, err := c.rig.pgbench(ctx, c.crud, plainCrud, c.Connections, c.Duration)
	c.plain = append(c.plain, rate)
	return err
}

// transactionsAtHalf is how long transactions take while the machine has room.
func (c *captureRun) transactionsAtHalf(ctx context.Context) error {
	l, err := c.rig.pgbenchAt(ctx, c.plain[len(c.plain)-1]/2, c.crud, plainCrud, c.Connections, c.Duration)
	c.plainAtHalf = append(c.plainAtHalf, l.quantile(0.99))
	return err
}

func (c *captureRun) oneStatements(ctx context.Context) error {
	rate, err := c.rig.pgbench(ctx, c.crud, oneStatementCrud, c.Connections, c.Duration)
	c.oneStatement = append(c.oneStatement, rate)
	return err
}

func (c *captureRun) minimalHandler(ctx context.Context) error {
	l, err := post(ctx, c.minimal, "/leads", "", c.Connections, c.Duration, 0, newcomers())
	c.handler = append(c.handler, l.rate())
	return err
}

func (c *captureRun) newLeads(ctx context.Context) error {
	before := ownProcessor()
	return c.fresh.measure(ctx, c.rig, c.leadlog, 1, func() (l load, err error) {
		c.known, err = meet(func() (err error) {
			l, err = c.capture(ctx, 0, newcomers())
			return err
		})
		c.inLoad = append(c.inLoad, (ownProcessor()-before)/time.Duration(max(1, len(l.latencies))))
		return l, err
	})
}

// halfTheRate is how long captures take while the machine has room.
func (c *captureRun) halfTheRate(ctx context.Context) error {
	half := c.fresh.rate[len(c.fresh.rate)-1] / 2
	l, err := c.capture(ctx, time.Duration(float64(c.Connections)/half*float64(time.Second)), newcomers())
	c.p99AtHalf = append(c.p99AtHalf, l.quantile(0.99))
	return err
}

func (c *captureRun) aTenthMerges(ctx context.Context) error {
	l, err := c.capture(ctx, 0, returning(c.known, 0.1))
	c.tenthMerges = append(c.tenthMerges, l.rate())
	return err
}

func (c *captureRun) allMerge(ctx context.Context) error {
	return c.merges.measure(ctx, c.rig, c.leadlog, 1, func() (load, error) { return c.capture(ctx, 0, returning(c.known, 1)) })
}

func (c *captureRun) capture(ctx context.Context, interval time.Duration, next func(*person) ([]byte, int)) (load, error) {
	return post(ctx, c.leadlog.base, capturePath, c.leadlog.token, c.Connections, c.Duration, interval, next)
}

// ownProcessor is the processor time that this process, which makes the load, has used.
func ownProcessor() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // cannot fail
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func (c *captureRun) report(ctx context.Context) error {
	alone, transactionAlone, err := c.alone(ctx, c.leadlog, c.crud)
	if err != nil {
		return err
	}
	memory, err := c.leadlog.memory()
	if err != nil {
		return err
	}
	t := newTable("what", "a second", "leadlog to it", "goal")
	t.row("leadlog: captures of new leads over HTTP", count(median(c.fresh.rate)), "", "")
	if !c.Alone {
		t.row("pgbench: two INSERTs in a transaction", count(median(c.plain)), times(share(c.fresh.rate, c.plain)), atLeast(1.5))
		t.row("pgbench: the same as one statement", count(median(c.oneStatement)), times(share(c.fresh.rate, c.oneStatement)), atLeast(1))
		t.row("minimal handler: the two INSERTs over HTTP", count(median(c.handler)), times(share(c.fresh.rate, c.handler)), atLeast(2.5))
	}
	t.print()
	t = newTable("leadlog", "figure", "goal")
	t.row("a tenth of the arrivals merge: share of the rate", times(share(c.tenthMerges, c.fresh.rate)), atLeast(0.9))
	t.row("every arrival merges: share of the rate", times(share(c.merges.rate, c.fresh.rate)), atLeast(0.6))
	t.row("p50, p99 of a capture, saturated", millis(median(c.fresh.p50))+", "+millis(median(c.fresh.p99)), "")
	t.row("p99 of a capture at half that rate", millis(median(c.p99AtHalf)), atMost("10 ms"))
	if !c.Alone {
		t.row("p99 of a plain transaction at half of its own rate", millis(median(c.plainAtHalf)), "")
	}
	t.row("processor time of a capture, with its views: service, database", c.fresh.processor(), "")
	t.row("processor time of a merge, likewise", c.merges.processor(), "")
	t.row("processor time of making the load", millis(median(c.inLoad)), "")
	t.row("one caller: p50 of a capture", millis(alone), "")
	t.row("one caller: p50 of the plain transaction", millis(transactionAlone), "")
	t.row("one caller: capture to transaction", times(float64(alone)/float64(transactionAlone)), atMost("1.3"))
	t.row("views behind the log at the end", millis(median(c.fresh.behind)), atMost("2 s"))
	t.row("most resident memory", mebibytes(memory), atMost("128 MiB"))
	t.print()
	return nil
}

const capturePath = "/api/v1/crm/leads"

// captureAll drives connections that each capture newcomers, one after another.
func (s *service) captureAll(ctx context.Context, connections int, duration time.Duration) (load, error) {
	return post(ctx, s.base, capturePath, s.token, connections, duration, 0, newcomers())
}

// post drives connections that each have a lead taken in, one after another, or every interval.
func post(
	ctx context.Context, base, path, bearer string, connections int, duration, interval time.Duration,
	next func(*person) (body []byte, status int),
) (load, error) {
	wires, err := dialAll(connections, base, path, bearer)
	if err != nil {
		return load{}, err
	}
	defer closeAll(wires)
	workers := make([]func(context.Context) error, len(wires))
	for i, w := range wires {
		p := &person{}
		workers[i] = func(context.Context) error {
			body, status := next(p)
			return w.post(body, status)
		}
	}
	return drive(ctx, duration, interval, workers)
}

// alone is the p50 of one caller at a time: a capture, and a plain transaction on a connection of its own.
func (b *capturesBenchmark) alone(ctx context.Context, s *service, crud string) (capture, transaction time.Duration, err error) {
	w, err := dial(s.base, capturePath, s.token)
	if err != nil {
		return 0, 0, err
	}
	defer w.conn.Close()
	conn, err := pgx.Connect(ctx, crud)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close(ctx)
	metadata, fields := map[string]any{"source": "website", "utm_campaign": "diwali"}, map[string]any{"city": "Pune"}
	plain := func(ctx context.Context) error {
		n := strconv.FormatUint(rand.Uint64(), 10)
		_, err := insert(ctx, conn, crudBody{"Asha Rao", "+91" + n, "a" + n + "@example.com", metadata, fields})
		return err
	}
	p := &person{}
	captured := func(context.Context) error {
		body, status := newcomers()(p)
		return w.post(body, status)
	}
	var captures, transactions []time.Duration
	for range b.Rounds {
		for into, work := range map[*[]time.Duration]func(context.Context) error{&captures: captured, &transactions: plain} {
			l, err := drive(ctx, b.Duration/2, 0, []func(context.Context) error{work})
			if err != nil {
				return 0, 0, err
			}
			*into = append(*into, l.quantile(0.5))
		}
	}
	return median(captures), median(transactions), nil
}

// catchUp waits until every view has read the whole log, and says how long that took.
func (s *service) catchUp(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	err := until(ctx, func() (bool, error) {
		behind, err := s.lag(ctx)
		return behind == 0, err
	})
	return time.Since(began), err
}

// until asks again and again whether something is so.
func until(ctx context.Context, so func() (bool, error)) error {
	for {
		if is, err := so(); is || err != nil {
			return err
		}
		if err := eventstore.Sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}
