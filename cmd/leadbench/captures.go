package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// capturesBenchmark measures captures: durable, decided, deduplicated, answered over HTTP, with the views kept up to
// date, on the processors that also generate the load.
type capturesBenchmark struct {
	settings    `embed:""`
	Connections int           `default:"64"`
	Duration    time.Duration `default:"5s" help:"Of each measurement."`
	Alone       bool          `help:"Only leadlog, without the programs that it is compared with, for profiling."`
	Accounts    int           `placeholder:"N" help:"Also measure captures that are spread over as many accounts, which have the default limits."`
	Past        int           `placeholder:"EVENTS" help:"Events that are on the log before, and a third as many leads in the table of plain rows."`
}

// captureRun is the state of a run: the measured programs and the figures of each round.
type captureRun struct {
	*capturesBenchmark
	rig     *rig
	plain   string // address of the database of plain rows
	minimal *process
	base    string // of the minimal handler
	leadlog *service

	transactions, statements, handler []float64       // a second
	handlerCost                       []time.Duration // processor time of a lead, with the database
	halfTransaction                   []time.Duration // p99 at half the rate
	oneCapture, oneTransaction        []float64       // a second, with one caller
	fresh, half, tenth, merges        figures
	spread                            figures // over many accounts
	many                              target
}

// Run is leadbench captures.
func (b *capturesBenchmark) Run(ctx context.Context) error {
	r, err := newRig(ctx, b.settings)
	if err != nil {
		return err
	}
	defer r.close()
	c := captureRun{capturesBenchmark: b, rig: r}
	if c.plain, err = r.plainRows(ctx, b.Past/3); err != nil {
		return err
	}
	if c.minimal, c.base, err = r.serveMinimal(ctx, c.plain); err != nil {
		return err
	}
	defer c.minimal.stop()
	address, err := r.database(ctx, "log")
	if err != nil {
		return err
	}
	if b.Past > 0 {
		progress("writing a log of %d events", b.Past)
		if err := writePast(ctx, address, b.Past); err != nil {
			return err
		}
	}
	if c.leadlog, err = r.serve(ctx, address); err != nil {
		return err
	}
	defer c.leadlog.stop()
	if err := c.leadlog.catchUp(ctx); err != nil {
		return err
	}
	if b.Accounts > 0 {
		if c.many, err = c.leadlog.accounts(ctx, address, b.Accounts); err != nil {
			return err
		}
	}
	for round := range b.Rounds {
		progress("round %d of %d", round+1, b.Rounds)
		if err := c.round(ctx); err != nil {
			return err
		}
	}
	return c.report()
}

// round measures everything once, one after another.
func (c *captureRun) round(ctx context.Context) error {
	if !c.Alone {
		for _, pgbench := range []struct {
			script  string
			clients int
			rates   *[]float64
		}{
			{twoInserts, c.Connections, &c.transactions},
			{oneStatement, c.Connections, &c.statements},
			{twoInserts, 1, &c.oneTransaction},
		} {
			rate, err := c.rig.pgbench(ctx, c.plain, pgbench.script, pgbench.clients, c.Duration)
			if err != nil {
				return err
			}
			*pgbench.rates = append(*pgbench.rates, rate)
		}
		half, err := c.rig.pgbenchLatencies(ctx, c.plain, twoInserts, c.Connections, c.Duration,
			c.transactions[len(c.transactions)-1]/2)
		if err != nil {
			return err
		}
		c.halfTransaction = append(c.halfTransaction, half.quantile(0.99))
		if err := c.rig.checkpoint(ctx); err != nil {
			return err
		}
		var l load
		program, database, err := c.rig.spent(c.minimal, func() (err error) {
			l, err = post(ctx, c.base, target{path: "/leads"}, c.Connections, c.Duration, 0, newcomers())
			return err
		})
		if err != nil {
			return err
		}
		c.handler = append(c.handler, l.rate())
		c.handlerCost = append(c.handlerCost, (program+database)/time.Duration(max(1, len(l.latencies))))
	}
	first := madeUp.Load()
	if err := c.fresh.captured(ctx, c.rig, c.leadlog, c.leadlog.captures(), c.Connections, c.Duration,
		0, newcomers()); err != nil {
		return err
	}
	known := people{first + 1, madeUp.Load()}
	if c.Accounts > 0 {
		if err := c.spread.captured(ctx, c.rig, c.leadlog, c.many, c.Connections, c.Duration, 0,
			newcomers()); err != nil {
			return err
		}
	}
	saturated := c.fresh.rate[len(c.fresh.rate)-1]
	var one figures
	for _, m := range []struct {
		into        *figures
		connections int
		rate        float64
		next        arrivals
	}{
		{&c.half, c.Connections, saturated / 2, newcomers()},
		{&c.tenth, c.Connections, 0, returning(known, 0.1)},
		{&c.merges, c.Connections, 0, returning(known, 1)},
		{&one, 1, 0, newcomers()},
	} {
		if err := m.into.captured(ctx, c.rig, c.leadlog, c.leadlog.captures(), m.connections, c.Duration,
			m.rate, m.next); err != nil {
			return err
		}
	}
	c.oneCapture = append(c.oneCapture, one.rate...)
	return nil
}

func (c *captureRun) report() error {
	memory, err := c.leadlog.memory()
	if err != nil {
		return err
	}
	t := newTable("what", "a second", "leadlog to it", "goal")
	t.row("leadlog: captures of new leads over HTTP", count(median(c.fresh.rate)), "", "")
	if !c.Alone {
		t.row("pgbench: two INSERTs in a transaction", count(median(c.transactions)),
			times(ratio(c.fresh.rate, c.transactions)), atLeast(1))
		t.row("pgbench: the same as one statement", count(median(c.statements)),
			times(ratio(c.fresh.rate, c.statements)), atLeast(0.8))
		t.row("minimal handler: the two INSERTs over HTTP", count(median(c.handler)),
			times(ratio(c.fresh.rate, c.handler)), atLeast(2))
	}
	t.print()
	t = newTable("leadlog", "figure", "goal")
	t.row("a tenth of the arrivals merge: share of the rate", times(ratio(c.tenth.rate, c.fresh.rate)), atLeast(0.9))
	t.row("every arrival merges: share of the rate", times(ratio(c.merges.rate, c.fresh.rate)), atLeast(0.6))
	if c.Accounts > 0 {
		t.row(fmt.Sprintf("spread over %d accounts: share of the rate", c.Accounts),
			times(ratio(c.spread.rate, c.fresh.rate)), atLeast(0.85))
		t.row("processor time of such a capture, likewise", c.spread.processor(), "")
	}
	t.row("p50, p99 of a capture, saturated", millis(median(c.fresh.p50))+", "+millis(median(c.fresh.p99)), "")
	t.row("p99 of a capture at half that rate", millis(median(c.half.p99)), "")
	if !c.Alone {
		t.row("the same to p99 of a transaction at half its own rate",
			times(ratio(c.half.p99, c.halfTransaction)), atMost("0.3"))
	}
	t.row("processor time of a capture, with its views: service, database", c.fresh.processor(), "")
	if !c.Alone {
		t.row("the same to the minimal handler", times(ratio(c.fresh.costs(), c.handlerCost)), atMost("0.5"))
	}
	t.row("processor time of a merge, likewise", c.merges.processor(), "")
	t.row("one caller: time of a capture", millis(time.Duration(float64(time.Second)/median(c.oneCapture))), "")
	if !c.Alone {
		t.row("one caller: capture to transaction", times(ratio(c.oneTransaction, c.oneCapture)), atMost("1.3"))
	}
	t.row("views behind the log at the end", millis(median(c.fresh.behind)), atMost("2 s"))
	t.row("most resident memory", mebibytes(memory), atMost("256 MiB"))
	t.print()
	return nil
}

// againstBenchmark measures captures by two builds of leadlog in turn, in many short rounds, so that the machine's load
// is the same for both. Each build has its own database in one PostgreSQL.
type againstBenchmark struct {
	settings    `embed:""`
	Other       string        `arg:"" placeholder:"FILE" help:"The program to compare with, such as one built before the change."`
	Connections int           `default:"64"`
	Duration    time.Duration `default:"1s" help:"Of each measurement."`
	Rate        float64       `help:"Captures a second to send. Default: as many as possible."`
	Merging     float64       `help:"Share of the arrivals that merge into leads that are not the newest."`
}

// Run is leadbench against.
func (b *againstBenchmark) Run(ctx context.Context) error {
	r, err := newRig(ctx, b.settings)
	if err != nil {
		return err
	}
	defer r.close()
	other, err := filepath.Abs(b.Other)
	if err != nil {
		return err
	}
	type build struct {
		figures
		program string
		service *service
		next    arrivals
	}
	builds := []*build{{program: r.program}, {program: other}}
	for i, build := range builds {
		r.program = build.program
		address, err := r.database(ctx, fmt.Sprintf("build%d", i+1))
		if err != nil {
			return err
		}
		if build.service, err = r.serve(ctx, address); err != nil {
			return err
		}
		defer build.service.stop()
		build.next = newcomers()
		if b.Merging > 0 {
			first := madeUp.Load()
			if _, err := post(ctx, build.service.base, build.service.captures(), b.Connections, 10*b.Duration,
				0, newcomers()); err != nil {
				return err
			}
			build.next = returning(people{first + 1, (first + madeUp.Load()) / 2}, b.Merging)
		}
	}
	for round := range b.Rounds {
		progress("round %d of %d", round+1, b.Rounds)
		for _, build := range builds {
			if err := build.captured(ctx, r, build.service, build.service.captures(), b.Connections, b.Duration,
				b.Rate, build.next); err != nil {
				return err
			}
		}
	}
	t := newTable("program", "captures a second", "processor time of one: service, database", "together",
		"to the first", "transactions, bytes of WAL", "p50, p99")
	for _, build := range builds {
		t.row(filepath.Base(build.program), count(median(build.rate)), build.processor(), millis(build.cost()),
			times(float64(build.cost())/float64(builds[0].cost())),
			fmt.Sprintf("%.2f, %.0f", median(build.transactions), median(build.wal)),
			millis(median(build.p50))+", "+millis(median(build.p99)))
	}
	t.print()
	return nil
}

// figures are those of one kind of capture, a round each.
type figures struct {
	rate                  []float64       // captures a second
	inService, inDatabase []time.Duration // processor time of a capture, with its views
	transactions, wal     []float64       // of one: transactions of PostgreSQL, bytes for its write-ahead log
	behind                []time.Duration // until the views had read everything
	p50, p99              []time.Duration // of the answers
}

// captured measures one round after a checkpoint, from and to views that are up to date. A rate other than 0 is how
// many captures a second are sent.
func (f *figures) captured(
	ctx context.Context, r *rig, s *service, to target, connections int, duration time.Duration, rate float64,
	next arrivals,
) error {
	if err := r.checkpoint(ctx); err != nil {
		return err
	}
	var l load
	var behind time.Duration
	transactions, wal, err := r.written(ctx, s.database)
	if err != nil {
		return err
	}
	service, database, err := r.spent(s.process, func() (err error) {
		if l, err = post(ctx, s.base, to, connections, duration, rate, next); err != nil {
			return err
		}
		began := time.Now()
		err = s.catchUp(ctx)
		behind = time.Since(began)
		return err
	})
	if err != nil {
		return err
	}
	transactionsAfter, walAfter, err := r.written(ctx, s.database)
	if err != nil {
		return err
	}
	n := time.Duration(max(1, len(l.latencies)))
	f.transactions = append(f.transactions, (transactionsAfter-transactions)/float64(n))
	f.wal = append(f.wal, (walAfter-wal)/float64(n))
	f.rate, f.behind = append(f.rate, l.rate()), append(f.behind, behind)
	f.inService, f.inDatabase = append(f.inService, service/n), append(f.inDatabase, database/n)
	f.p50, f.p99 = append(f.p50, l.quantile(0.5)), append(f.p99, l.quantile(0.99))
	return nil
}

func (f *figures) processor() string {
	return millis(median(f.inService)) + ", " + millis(median(f.inDatabase))
}

// cost is the processor time of one capture, service and database together.
func (f *figures) cost() time.Duration { return median(f.costs()) }

// costs has the cost in each round.
func (f *figures) costs() []time.Duration {
	each := make([]time.Duration, len(f.inService))
	for i := range each {
		each[i] = f.inService[i] + f.inDatabase[i]
	}
	return each
}
