package main

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// capturesBenchmark asks what a capture costs: durable, decided, deduplicated, answered over HTTP with the views kept
// up, on the processors that also make the load.
type capturesBenchmark struct {
	settings    `embed:""`
	Connections int           `default:"64"`
	Duration    time.Duration `default:"5s" help:"Of each measurement."`
}

// Run is leadbench captures.
func (b *capturesBenchmark) Run(ctx context.Context) error {
	r, err := newRig(ctx, b.settings)
	if err != nil {
		return err
	}
	defer r.close()
	crud, err := r.crud(ctx, "crud")
	if err != nil {
		return err
	}
	minimal, minimalBase, err := r.serveCrud(ctx, crud)
	if err != nil {
		return err
	}
	defer minimal.stop()
	log, err := r.database(ctx, "log")
	if err != nil {
		return err
	}
	leadlog, err := r.serve(ctx, log)
	if err != nil {
		return err
	}
	defer leadlog.stop()

	var plain, one, handler, captures, merges, repeats []float64
	var p50, p99, behind, inService, inDatabase []time.Duration
	for round := range b.Rounds {
		say("round %d of %d", round+1, b.Rounds)
		for _, measure := range []func() error{
			func() error {
				rate, err := r.pgbench(ctx, crud, plainCrud, b.Connections, b.Duration)
				plain = append(plain, rate)
				return err
			},
			func() error {
				rate, err := r.pgbench(ctx, crud, oneStatementCrud, b.Connections, b.Duration)
				one = append(one, rate)
				return err
			},
			func() error {
				l, err := b.post(ctx, minimalBase, "/leads", "", newcomers(0))
				handler = append(handler, l.rate())
				return err
			},
			func() error {
				var l load
				var took time.Duration
				service, database, err := r.spent(leadlog, func() (err error) {
					if l, err = b.post(ctx, leadlog.base, "/api/v1/crm/leads", leadlog.token, newcomers(0)); err == nil {
						took, err = leadlog.catchUp(ctx)
					}
					return err
				})
				if err != nil {
					return err
				}
				captures, p50, p99 = append(captures, l.rate()), append(p50, l.quantile(0.5)), append(p99, l.quantile(0.99))
				behind = append(behind, took)
				each := time.Duration(len(l.latencies))
				inService, inDatabase = append(inService, service/each), append(inDatabase, database/each)
				return nil
			},
			func() error {
				l, err := b.post(ctx, leadlog.base, "/api/v1/crm/leads", leadlog.token, newcomers(0.1))
				repeats = append(repeats, l.rate())
				return err
			},
			func() error {
				l, err := b.post(ctx, leadlog.base, "/api/v1/crm/leads", leadlog.token, newcomers(1))
				merges = append(merges, l.rate())
				return err
			},
		} {
			if err := r.checkpoint(ctx); err != nil {
				return err
			}
			if err := measure(); err != nil {
				return err
			}
			if _, err := leadlog.catchUp(ctx); err != nil {
				return err
			}
		}
	}
	alone, crudAlone, err := b.alone(ctx, leadlog, crud)
	if err != nil {
		return err
	}
	memory, err := leadlog.memory()
	if err != nil {
		return err
	}
	captured := median(captures)
	t := newTable("what", "a second", "leadlog to it", "goal")
	t.row("leadlog: captures of new leads over HTTP", count(captured), "", "")
	t.row("pgbench: two INSERTs in a transaction", count(median(plain)), times(captured/median(plain)), atLeast(1.5))
	t.row("pgbench: the same as one statement", count(median(one)), times(captured/median(one)), atLeast(1))
	t.row("minimal handler: the two INSERTs over HTTP", count(median(handler)), times(captured/median(handler)), atLeast(2.5))
	t.print()
	t = newTable("leadlog", "figure", "goal")
	t.row("a tenth of the arrivals merge: share of the rate", times(median(repeats)/captured), atLeast(0.9))
	t.row("every arrival merges: share of the rate", times(median(merges)/captured), atLeast(0.6))
	t.row("p50, p99 of a capture, saturated", millis(median(p50))+", "+millis(median(p99)), "")
	t.row("processor time of a capture: service, database", millis(median(inService))+", "+millis(median(inDatabase)), "")
	t.row("one caller: p50 of a capture", millis(alone), "")
	t.row("one caller: p50 of the plain transaction", millis(crudAlone), "")
	t.row("one caller: capture to transaction", times(float64(alone)/float64(crudAlone)), atMost("1.3"))
	t.row("views behind the log at the end", millis(median(behind)), atMost("2 s"))
	t.row("most resident memory", mebibytes(memory), atMost("128 MiB"))
	t.print()
	return nil
}

// post drives connections that each have a lead taken in, one after another.
func (b *capturesBenchmark) post(ctx context.Context, base, path, bearer string, next func(*person) (body []byte, status int)) (load, error) {
	wires, err := dialAll(b.Connections, base, path, bearer)
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
	return drive(ctx, b.Duration, 0, workers)
}

// alone is the p50 of one caller at a time: a capture, and a plain transaction on a connection of its own.
func (b *capturesBenchmark) alone(ctx context.Context, s *service, crud string) (capture, transaction time.Duration, err error) {
	w, err := dial(s.base, "/api/v1/crm/leads", s.token)
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
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			var id int64
			err := tx.QueryRow(ctx, crudLead, account, "Asha Rao", "+91"+n, "a"+n+"@example.com", "website", metadata, fields).Scan(&id)
			if err == nil {
				_, err = tx.Exec(ctx, crudHistory, id, "website", metadata)
			}
			return err
		})
	}
	p := &person{}
	captured := func(context.Context) error {
		body, status := newcomers(0)(p)
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
	for {
		behind, err := s.lag(ctx)
		if err != nil || behind == 0 {
			return time.Since(began), err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// person is who a connection sends in.
type person struct {
	number uint64 // of the phone; 0 before the first
	body   []byte
}

var phones atomic.Uint64

// unheardOf is a phone number that nobody had before, without any order.
func unheardOf() uint64 { return 6_000_000_000 + phones.Add(1)*2_654_435_761%3_999_999_979 }

// newcomers gives arrivals of which a share are of the person who came before.
func newcomers(again float64) func(*person) (body []byte, status int) {
	return func(p *person) ([]byte, int) {
		status := 201
		if p.number == 0 || rand.Float64() >= again {
			p.number = unheardOf()
		} else {
			status = 200
		}
		p.body = append(p.body[:0], `{"name":"Asha Rao","phone":"+91`...)
		p.body = strconv.AppendUint(p.body, p.number, 10)
		p.body = append(p.body, `","email":"a`...)
		p.body = strconv.AppendUint(p.body, p.number, 10)
		p.body = append(p.body, `@example.com","metadata":{"source":"website","utm_campaign":"diwali"},"customFields":{"city":"Pune"}}`...)
		return p.body, status
	}
}
