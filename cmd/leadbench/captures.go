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
	t := newSummary()
	t.row("captures of new leads over HTTP",
		fmt.Sprintf("%s, %d connections", perSecond(median(c.fresh.rate)), c.Connections), "")
	if !c.Alone {
		t.row("to pgbench: two INSERTs in a transaction", times(ratio(c.fresh.rate, c.transactions)), "1.0")
		t.row("to pgbench: the same as one statement", times(ratio(c.fresh.rate, c.statements)), "0.8")
		t.row("to a minimal chi and pgx handler with the two INSERTs", times(ratio(c.fresh.rate, c.handler)), "2.0")
	}
	t.row("processor time of a capture with its views: service, PostgreSQL", c.fresh.processor(), "")
	if !c.Alone {
		t.row("the same, to that of the minimal handler", times(ratio(c.fresh.costs(), c.handlerCost)), "0.5")
	}
	t.row("processor time of a merge: service, PostgreSQL", c.merges.processor(), "0.7 of 0.29, 0.18 ms")
	t.row("rate if every arrival merges, if a tenth merge, to that of new leads",
		times(ratio(c.merges.rate, c.fresh.rate))+", "+times(ratio(c.tenth.rate, c.fresh.rate)), "0.6, 0.9")
	t.row("p50, p99 of a capture, saturated", millis(median(c.fresh.p50))+", "+millis(median(c.fresh.p99)), "")
	t.row("p99 of a capture at half the saturated rate", millis(median(c.half.p99)), "")
	if !c.Alone {
		t.row("the same, to that of a plain transaction at half its own rate",
			times(ratio(c.half.p99, c.halfTransaction)), "0.3")
		t.row("one caller at a time, to a plain transaction", times(ratio(c.oneTransaction, c.oneCapture)), "1.3")
	}
	if c.Accounts > 0 {
		t.row("captures spread over many accounts with the default limits, to those of one",
			fmt.Sprintf("%s, %s accounts", times(ratio(c.spread.rate, c.fresh.rate)), count(float64(c.Accounts))), "0.85")
		t.row("processor time of such a capture: service, PostgreSQL", c.spread.processor(), "")
	}
	t.row("lag of the views at the end of the load", seconds(median(c.fresh.behind)), "2 s")
	t.row("memory under load", mebibytes(memory), "256 MiB")
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
	Consent     bool          `help:"Arrivals at FILE carry a consent. If both are the same build: what a consent costs."`
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
		if b.Consent && i == 1 {
			build.next = consenting(build.next)
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
	for i, build := range builds {
		name := filepath.Base(build.program)
		if b.Consent && i == 1 {
			name += ", with a consent"
		}
		t.row(name, count(median(build.rate)), build.processor(), millis(build.cost()),
			times(ratio(build.costs(), builds[0].costs())),
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
