package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/postgres"
)

// webhooksBenchmark asks how fast events reach webhook endpoints, what that costs, and what endpoints that hang do to
// the others. The receiver runs in this process, on the same processors.
type webhooksBenchmark struct {
	settings `embed:""`
	Burst    int           `default:"5000" help:"Leads that come at once."`
	Duration time.Duration `default:"10s" help:"Of each measurement at a steady rate."`
	Backlog  int           `default:"500000" help:"Deliveries that wait for endpoints which hang."`
	Replayed int           `default:"100000" help:"Deliveries that an endpoint asks for again at once."`
}

// webhookRun is one service under measurement, and what was measured so far.
type webhookRun struct {
	*webhooksBenchmark
	*rig
	service  *service
	receiver *receiver
	store    *postgres.Store
	pool     *pgxpool.Pool

	// What rounds gave.
	rates, captured       []float64       // deliveries a second
	each, whole, p50, p99 []time.Duration // processor time of a delivery, without and with its event; latencies
}

// Run is leadbench webhooks.
func (b *webhooksBenchmark) Run(ctx context.Context) error {
	r, err := newRig(ctx, b.settings)
	if err != nil {
		return err
	}
	defer r.close()
	run := &webhookRun{webhooksBenchmark: b, rig: r}
	defer run.end()
	if err := run.begin(ctx); err != nil {
		return err
	}
	for round := range b.Rounds {
		say("round %d of %d", round+1, b.Rounds)
		if err := run.round(ctx); err != nil {
			return err
		}
	}
	return run.report(ctx)
}

func (r *webhookRun) round(ctx context.Context) error {
	_, alone, err := r.burst(ctx, 0)
	if err != nil {
		return err
	}
	id, err := r.register(ctx, r.service.jwt, "/take")
	if err != nil {
		return err
	}
	rate, spent, err := r.burst(ctx, r.Burst)
	if err != nil {
		return err
	}
	captured, err := r.capturedBurst(ctx)
	if err != nil {
		return err
	}
	latencies, err := r.steady(ctx, []target{{r.service.jwt, 1}}, 100)
	if err != nil {
		return err
	}
	r.rates, r.captured = append(r.rates, rate), append(r.captured, captured)
	r.each, r.whole = append(r.each, (spent-alone)/time.Duration(r.Burst)), append(r.whole, spent/time.Duration(r.Burst))
	r.p50, r.p99 = append(r.p50, latencies.quantile(0.5)), append(r.p99, latencies.quantile(0.99))
	return r.service.call(ctx, "DELETE", "/webhooks/endpoints/"+id, "", &struct{}{})
}

// report measures what is measured once, and tells everything.
func (r *webhookRun) report(ctx context.Context) error {
	queued, err := r.replayed(ctx)
	if err != nil {
		return err
	}
	hung, err := r.besideHung(ctx)
	if err != nil {
		return err
	}
	memory, err := r.service.memory()
	if err != nil {
		return err
	}
	resumed, again, err := r.killed(ctx)
	if err != nil {
		return err
	}
	t := newTable("webhooks", "figure", "goal")
	t.row(fmt.Sprintf("deliveries a second, %d events put on the log at once, one endpoint", r.Burst), count(median(r.rates)), atLeast(2500))
	t.row("the same, captured over HTTP meanwhile", count(median(r.captured)), "")
	t.row("processor time of a delivery, service and database", millis(median(r.each)), atMost("0.5 ms"))
	t.row("the same with the append and the views", millis(median(r.whole)), "")
	t.row("capture to receipt at 100 a second: p50, p99", millis(median(r.p50))+", "+millis(median(r.p99)), atMost("25 ms"))
	t.row(fmt.Sprintf("%d deliveries asked for again: until they are queued, sending all the while", r.Replayed), millis(queued), atMost("10 s"))
	t.row(fmt.Sprintf("10 of 100 endpoints hang with %d queued, 100 deliveries a second: healthy p50, p99", r.Backlog),
		millis(hung.quantile(0.5))+", "+millis(hung.quantile(0.99)), atMost("50 ms"))
	t.row("kill -9 in the burst, with that backlog: from the start to the first delivery", millis(resumed), atMost("2 s"))
	t.row("deliveries of that burst which came twice", fmt.Sprintf("%.1f %%", 100*float64(again)/float64(r.Burst)), atMost("2 %"))
	t.row("most resident memory", mebibytes(memory), atMost("256 MiB"))
	t.print()
	return nil
}

func (r *webhookRun) begin(ctx context.Context) error {
	address, err := r.database(ctx, "webhooks")
	if err != nil {
		return err
	}
	if r.service, err = r.serve(ctx, address); err != nil {
		return err
	}
	if r.receiver, err = receive(); err != nil {
		return err
	}
	if r.store, err = postgres.Open(ctx, postgres.Options{URL: address}); err != nil {
		return err
	}
	r.pool, err = pgxpool.New(ctx, address)
	return err
}

func (r *webhookRun) end() {
	if r.service != nil {
		r.service.stop()
	}
	if r.receiver != nil {
		r.receiver.close()
	}
	if r.store != nil {
		r.store.Close()
	}
	if r.pool != nil {
		r.pool.Close()
	}
}

// register makes an endpoint of the JWT's account and returns its id.
func (r *webhookRun) register(ctx context.Context, jwt, path string) (string, error) {
	owner := *r.service
	owner.jwt = jwt
	var created struct{ Data struct{ WebhookID string } }
	err := owner.call(ctx, "POST", "/webhooks/endpoints", `{"url":"`+r.receiver.base+path+`"}`, &created)
	return created.Data.WebhookID, err
}

// burst puts leads on the log, as fast as it takes them, and waits for as many deliveries as there are to be. The rate
// is that of the deliveries, from the first append to the last receipt.
func (r *webhookRun) burst(ctx context.Context, deliveries int) (rate float64, spent time.Duration, err error) {
	r.receiver.reset()
	if err := r.checkpoint(ctx); err != nil {
		return 0, 0, err
	}
	service, database, err := r.spent(r.service, func() error {
		began := time.Now()
		if err := r.put(ctx, r.Burst); err != nil {
			return err
		}
		last, err := r.receiver.await(ctx, deliveries)
		if err != nil {
			return err
		}
		rate = float64(deliveries) / last.Sub(began).Seconds()
		return r.settled(ctx)
	})
	return rate, service + database, err
}

// put puts leads on the log.
func (r *webhookRun) put(ctx context.Context, leads int) error {
	const together = 100
	for left := leads; left > 0; left -= together {
		var writes []eventstore.Write
		for range min(left, together) {
			writes = append(writes, newLead("Asha Rao"))
		}
		if _, err := r.store.Append(ctx, writes...); err != nil {
			return err
		}
	}
	return nil
}

func newLead(name string) eventstore.Write {
	id := ulid.Make()
	e := eventstore.Event{ID: id, At: time.Now().UTC().Truncate(time.Millisecond), Metadata: event.Metadata{Account: account, Actor: "system:bench"}}
	e.Type, e.Data, _ = event.Encode(event.LeadCreated{ // a fact that can be encoded
		ContactUID: id.String(), Name: name, Phone: "+919876543210", Email: "asha@example.com", Status: "new", Temperature: "warm", Source: "website",
	})
	return eventstore.Write{Stream: event.LeadStream(id.String()), Expect: eventstore.NoStream, Events: []eventstore.Event{e}}
}

// settled waits until the views are up to date and what was delivered is written down.
func (r *webhookRun) settled(ctx context.Context) error {
	if _, err := r.service.catchUp(ctx); err != nil {
		return err
	}
	return until(ctx, func() (empty bool, err error) {
		err = r.pool.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM delivery.queue)`).Scan(&empty)
		return empty, err
	})
}

// capturedBurst captures leads over HTTP on 64 connections, and says at what rate their deliveries came.
func (r *webhookRun) capturedBurst(ctx context.Context) (float64, error) {
	r.receiver.reset()
	const connections = 64
	wires, err := dialAll(connections, r.service.base, capturePath, r.service.token)
	if err != nil {
		return 0, err
	}
	defer closeAll(wires)
	began := time.Now()
	errs := make(chan error, connections)
	for i, w := range wires {
		go func() {
			p, err := &person{}, error(nil)
			for n := i; n < r.Burst && err == nil; n += connections {
				body, status := newcomers()(p)
				err = w.post(body, status)
			}
			errs <- err
		}()
	}
	for range wires {
		if err := <-errs; err != nil {
			return 0, err
		}
	}
	last, err := r.receiver.await(ctx, r.Burst)
	if err != nil {
		return 0, err
	}
	return float64(r.Burst) / last.Sub(began).Seconds(), r.settled(ctx)
}

// target is an account, by a JWT, and how many endpoints of it answer.
type target struct {
	jwt       string
	endpoints int
}

// steady captures so many leads a second, in turn for each account, and tells how long each delivery took from the
// start of the capture's request to its receipt.
func (r *webhookRun) steady(ctx context.Context, targets []target, rate int) (load, error) {
	r.receiver.reset()
	wires := make([]*wire, len(targets))
	defer func() { closeAll(slices.DeleteFunc(wires, func(w *wire) bool { return w == nil })) }()
	for i, t := range targets {
		var err error
		if wires[i], err = dial(r.service.base, capturePath, t.jwt); err != nil {
			return load{}, err
		}
	}
	began := time.Now()
	starts := map[string]time.Time{}
	wanted := 0
	for n := range int(r.Duration.Seconds() * float64(rate)) {
		time.Sleep(time.Until(began.Add(time.Duration(n) * time.Second / time.Duration(rate))))
		name := "steady " + strconv.Itoa(n)
		starts[name] = time.Now()
		body := fmt.Sprintf(`{"name":%q,"email":"s%s@example.com"}`, name, strings.ToLower(ulid.Make().String()))
		if err := wires[n%len(wires)].post([]byte(body), 201); err != nil {
			return load{}, err
		}
		wanted += targets[n%len(targets)].endpoints
	}
	if _, err := r.receiver.await(ctx, wanted); err != nil {
		return load{}, err
	}
	l := load{took: time.Since(began)}
	for name, start := range starts {
		for _, at := range r.receiver.came(name) {
			l.latencies = append(l.latencies, at.Sub(start))
		}
	}
	slices.Sort(l.latencies)
	return l, nil
}
