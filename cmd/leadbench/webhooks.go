package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/postgres"
)

// webhooksBenchmark measures the rate and the cost of deliveries to a webhook endpoint. The receiver runs in this
// process, on the same processors.
type webhooksBenchmark struct {
	settings `embed:""`
	Burst    int           `default:"5000" help:"Leads that are appended at once."`
	Duration time.Duration `default:"10s" help:"Of the measurement at a steady rate."`
	Filter   string        `help:"Of the endpoint, such as \"type == 'lead.created'\"."`
	Ordering string        `help:"Of the endpoint: lead or endpoint."`
}

// Run is leadbench webhooks.
func (b *webhooksBenchmark) Run(ctx context.Context) error {
	r, err := newRig(ctx, b.settings)
	if err != nil {
		return err
	}
	defer r.close()
	address, err := r.database(ctx, "webhooks")
	if err != nil {
		return err
	}
	s, err := r.serve(ctx, address)
	if err != nil {
		return err
	}
	defer s.stop()
	var captures figures
	for range b.Rounds { // while there is no endpoint
		if err := captures.captured(ctx, r, s, s.captures(), 64, 2*time.Second, 0, newcomers()); err != nil {
			return err
		}
	}
	receiver, err := receive()
	if err != nil {
		return err
	}
	defer receiver.server.Close()
	store, err := postgres.Open(ctx, postgres.Options{URL: address})
	if err != nil {
		return err
	}
	defer store.Close()
	var created struct{ Data struct{ WebhookID string } }
	if err := s.call(ctx, "POST", "/webhooks/endpoints",
		fmt.Sprintf(`{"url":%q,"filter":%q,"ordering":%q}`, receiver.base, b.Filter, b.Ordering),
		&created); err != nil {
		return err
	}
	var rates []float64
	var costs, p50, p99 []time.Duration
	for round := range b.Rounds {
		progress("round %d of %d", round+1, b.Rounds)
		if err := r.checkpoint(ctx); err != nil {
			return err
		}
		service, database, err := r.spent(s.process, func() error {
			rate, err := b.burst(ctx, store, receiver)
			rates = append(rates, rate)
			if err != nil {
				return err
			}
			return queueEmpty(ctx, address)
		})
		if err != nil {
			return err
		}
		l, err := b.steady(ctx, s, receiver)
		if err != nil {
			return err
		}
		costs = append(costs, (service+database)/time.Duration(b.Burst))
		p50, p99 = append(p50, l.quantile(0.5)), append(p99, l.quantile(0.99))
	}
	memory, err := s.memory()
	if err != nil {
		return err
	}
	t := newSummary()
	t.row("capture to receipt of its webhook at 100 a second: p50, p99",
		millis(median(p50))+", "+millis(median(p99)), "25 ms")
	t.row("webhook deliveries in a burst to one endpoint, to captures", times(median(rates)/median(captures.rate)), "0.75")
	t.row(fmt.Sprintf("deliveries of %s events appended at once", count(float64(b.Burst))), perSecond(median(rates)), "")
	t.row("processor time of a delivery, with the append and the views: service and PostgreSQL", millis(median(costs)), "")
	t.row("memory under deliveries", mebibytes(memory), "256 MiB")
	t.print()
	return nil
}

// burst appends leads as fast as possible. The rate is that of the deliveries, from the first append to the last
// receipt.
func (b *webhooksBenchmark) burst(
	ctx context.Context, store eventstore.Store, receiver *receiver,
) (rate float64, err error) {
	receiver.reset()
	const together = 100
	began := time.Now()
	for left := b.Burst; left > 0; left -= together {
		var writes []eventstore.Write
		for range min(left, together) {
			e := eventstore.Event{
				ID: ulid.Make(), At: time.Now().UTC().Truncate(time.Millisecond),
				Metadata: event.Metadata{Account: account, Actor: "system:bench"},
			}
			e.Type, e.Data, err = event.Encode(event.LeadCreated{
				ContactUID: e.ID.String(),
				LeadFields: event.LeadFields{
					Name: "Asha Rao", Phone: "+919876543210", Email: "asha@example.com", Status: "new",
					Temperature: "warm",
				}, Source: "website",
			})
			if err != nil {
				return 0, err
			}
			writes = append(writes, newStream(event.LeadStream(e.ID.String()), e))
		}
		if _, err := store.Append(ctx, writes...); err != nil {
			return 0, err
		}
	}
	last, err := receiver.await(ctx, b.Burst)
	return float64(b.Burst) / last.Sub(began).Seconds(), err
}

// steady captures 100 leads a second. The latencies are from the start of a capture's request to the receipt of its
// delivery.
func (b *webhooksBenchmark) steady(ctx context.Context, s *service, receiver *receiver) (l load, err error) {
	const rate = 100
	receiver.reset()
	w, err := dial(s.base, s.captures())
	if err != nil {
		return l, err
	}
	defer w.conn.Close()
	began := time.Now()
	starts := map[string]time.Time{}
	for n := range int(b.Duration.Seconds() * rate) {
		time.Sleep(time.Until(began.Add(time.Duration(n) * time.Second / rate)))
		name := "steady " + strconv.Itoa(n)
		starts[name] = time.Now()
		body := fmt.Appendf(nil, `{"name":%q,"email":"s%s@example.com"}`, name, strings.ToLower(ulid.Make().String()))
		if err := w.post(body, 201); err != nil {
			return l, err
		}
	}
	if _, err := receiver.await(ctx, len(starts)); err != nil {
		return l, err
	}
	receiver.mu.Lock()
	defer receiver.mu.Unlock()
	for name, start := range starts {
		l.latencies = append(l.latencies, receiver.byName[name].Sub(start))
	}
	slices.Sort(l.latencies)
	return l, nil
}

// queueEmpty waits until the attempts of all deliveries are recorded.
func queueEmpty(ctx context.Context, address string) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return until(ctx, func() (empty bool, err error) {
		err = conn.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM delivery.queue)`).Scan(&empty)
		return empty, err
	})
}

// receiver is the server of the webhook endpoint. It answers every delivery with 200.
type receiver struct {
	base   string
	server *http.Server

	mu     sync.Mutex
	ids    map[string]struct{}  // of the deliveries received
	byName map[string]time.Time // when the first delivery of a lead of this name was received
	newest time.Time            // when the newest delivery was
	more   *sync.Cond
}

func receive() (*receiver, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{base: "http://" + listener.Addr().String()}
	r.more = sync.NewCond(&r.mu)
	r.reset()
	r.server = &http.Server{Handler: http.HandlerFunc(r.receive)}
	go func() { _ = r.server.Serve(listener) }() // until it is closed
	return r, nil
}

func (r *receiver) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids, r.byName = map[string]struct{}{}, map[string]time.Time{}
}

func (r *receiver) receive(_ http.ResponseWriter, request *http.Request) {
	at := time.Now()
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return
	}
	// The name is found without decoding: the receiver uses the processors that are measured.
	_, rest, _ := bytes.Cut(body, []byte(`"name":"`))
	name, _, _ := bytes.Cut(rest, []byte(`"`))
	id := request.Header.Get("webhook-id")
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, seen := r.ids[id]; seen {
		return
	}
	r.ids[id] = struct{}{}
	r.byName[string(name)], r.newest = at, at
	r.more.Broadcast()
}

// await waits for n different deliveries, and returns when the newest was received.
func (r *receiver) await(ctx context.Context, n int) (time.Time, error) {
	stop := context.AfterFunc(ctx, r.more.Broadcast)
	defer stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.ids) < n {
		if ctx.Err() != nil {
			return time.Time{}, ctx.Err()
		}
		r.more.Wait()
	}
	return r.newest, nil
}
