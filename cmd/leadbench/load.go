package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// load is the result of drive.
type load struct {
	took      time.Duration
	latencies []time.Duration // of each success, sorted
}

// rate is successes a second.
func (l load) rate() float64 { return float64(len(l.latencies)) / l.took.Seconds() }

// quantile is the latency that a share of the successes did not exceed.
func (l load) quantile(share float64) time.Duration {
	if len(l.latencies) == 0 {
		return 0
	}
	return l.latencies[min(int(share*float64(len(l.latencies))), len(l.latencies)-1)]
}

// drive calls each worker again and again, until the duration is over or one fails. A rate other than 0 is how many
// calls a second all workers start together; the latency of a call that starts late includes its delay.
func drive(
	ctx context.Context, duration time.Duration, rate float64, workers []func(ctx context.Context) error,
) (load, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var interval time.Duration // between the starts of a worker's calls
	if rate > 0 {
		interval = time.Duration(float64(len(workers)) / rate * float64(time.Second))
	}
	began := time.Now()
	each := make([][]time.Duration, len(workers))
	var working sync.WaitGroup
	for i, work := range workers {
		working.Go(func() {
			next := began.Add(interval * time.Duration(i) / time.Duration(len(workers)))
			for time.Since(began) < duration && ctx.Err() == nil {
				start := time.Now()
				if interval > 0 {
					time.Sleep(time.Until(next))
					start = next
					next = next.Add(interval)
				}
				if err := work(ctx); err != nil {
					cancel(err)
					return
				}
				each[i] = append(each[i], time.Since(start))
			}
		})
	}
	working.Wait()
	l := load{took: time.Since(began), latencies: slices.Concat(each...)}
	slices.Sort(l.latencies)
	return l, context.Cause(ctx)
}

const capturePath = "/api/v1/crm/leads"

// target is where arrivals are posted to.
type target struct {
	path    string
	bearers []string // each arrival has one of them, chosen at random
	status  int      // of a success; 0: that of a capture
	keys    bool     // each has an idempotency key
	media   string   // of the bodies; empty: JSON
}

// captures is the target of captures by the API.
func (s *service) captures() target { return target{path: capturePath, bearers: []string{s.token}} }

// post drives connections that each send arrivals.
func post(
	ctx context.Context, base string, to target, connections int, duration time.Duration, rate float64, next arrivals,
) (load, error) {
	workers := make([]func(context.Context) error, connections)
	for i := range workers {
		w, err := dial(base, to)
		if err != nil {
			return load{}, err
		}
		defer w.conn.Close()
		var body []byte
		workers[i] = func(context.Context) error {
			var status int
			body, status = next(body)
			return w.post(body, cmp.Or(to.status, status))
		}
	}
	return drive(ctx, duration, rate, workers)
}

// people are a range of generated persons.
type people struct{ first, last uint64 }

// madeUp counts the people that this process has made up.
var madeUp atomic.Uint64

// arrivals makes the body of the next arrival in a buffer, and the status of its answer.
type arrivals func(buffer []byte) (body []byte, status int)

// newcomers are arrivals of new people.
func newcomers() arrivals { return returning(people{}, 0) }

// returning are arrivals of which a share are of known people, chosen at random.
func returning(known people, share float64) arrivals {
	return func(buffer []byte) ([]byte, int) {
		n, status := uint64(0), 201
		if share > 0 && rand.Float64() < share {
			n, status = known.first+rand.Uint64N(known.last-known.first+1), 200
		} else {
			n = madeUp.Add(1)
		}
		phone := 6_000_000_000 + n*2_654_435_761%3_999_999_979 // ten digits, unique, in no order
		return fmt.Appendf(buffer[:0], `{"name":"Asha Rao","phone":"+91%d","email":"a%d@example.com",`+
			`"metadata":{"source":"website","utm_campaign":"diwali"},"customFields":{"city":"Pune"}}`,
			phone, phone), status
	}
}

// consenting adds a consent to arrivals.
func consenting(next arrivals) arrivals {
	return func(buffer []byte) ([]byte, int) {
		body, status := next(buffer)
		return bytes.Replace(body, []byte(`"metadata":{`), []byte(`"metadata":{"consent":{"purpose":"whatsapp",`+
			`"text":"Send me offers by WhatsApp","version":"3","url":"https://example.com/form","method":"checkbox"},`),
			1), status
	}
}

// wire is one keep-alive HTTP connection. It uses less processor time than net/http's client, on processors that the
// service shares.
type wire struct {
	conn    net.Conn
	reader  *bufio.Reader
	head    string
	bearers []string
	keys    bool
	extra   string // further headers, each with its line break
	out     []byte
	in      []byte
}

// keys counts the idempotency keys that this process has made up.
var keys atomic.Uint64

func dial(base string, to target) (*wire, error) {
	host := strings.TrimPrefix(base, "http://")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		return nil, err
	}
	return &wire{conn: conn, reader: bufio.NewReader(conn), keys: to.keys, bearers: to.bearers,
		head: "POST " + to.path + " HTTP/1.1\r\nHost: " + host +
			"\r\nContent-Type: " + cmp.Or(to.media, "application/json") + "\r\n"}, nil
}

// post sends a body and reads the answer, which has to be a success of this status.
func (w *wire) post(body []byte, want int) error {
	status, err := w.send(body)
	if err != nil {
		return err
	}
	if status != strconv.Itoa(want) || !bytes.Contains(w.in, success) {
		return fmt.Errorf("status %s instead of %d: %s", status, want, w.in)
	}
	return nil
}

// send sends a body and reads the answer.
func (w *wire) send(body []byte) (status string, err error) {
	w.out = append(append(w.out[:0], w.head...), w.extra...)
	if n := len(w.bearers); n > 0 {
		w.out = append(append(append(w.out, "Authorization: Bearer "...), w.bearers[rand.N(n)]...), "\r\n"...)
	}
	if w.keys {
		w.out = fmt.Appendf(w.out, "Idempotency-Key: key-%d\r\n", keys.Add(1))
	}
	w.out = append(w.out, "Content-Length: "...)
	w.out = strconv.AppendInt(w.out, int64(len(body)), 10)
	w.out = append(append(w.out, "\r\n\r\n"...), body...)
	if _, err := w.conn.Write(w.out); err != nil {
		return "", err
	}
	line, err := w.reader.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	if len(line) < 12 {
		return "", fmt.Errorf("not an HTTP answer: %q", line)
	}
	status = string(line[9:12])
	length := -1
	for len(line) != 2 {
		if line, err = w.reader.ReadSlice('\n'); err != nil {
			return "", err
		}
		if value, ok := strings.CutPrefix(string(line), "Content-Length: "); ok {
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return "", err
			}
		}
	}
	if length < 0 {
		return "", fmt.Errorf("an answer of status %s without Content-Length", status)
	}
	w.in = slices.Grow(w.in[:0], length)[:length]
	if _, err := io.ReadFull(w.reader, w.in); err != nil {
		return "", err
	}
	return status, nil
}

// success is in every good answer.
var success = []byte(`"success":true`)
