package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// load is what came of driving something for a while.
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

// drive runs the workers, each one thing after another, until the time is over or one fails. An interval other than 0 is the
// time between the starts of a worker's things.
func drive(ctx context.Context, duration, interval time.Duration, workers []func(ctx context.Context) error) (load, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	each := make([][]time.Duration, len(workers))
	var working sync.WaitGroup
	for i, work := range workers {
		working.Go(func() {
			next := began.Add(interval * time.Duration(i) / time.Duration(len(workers)))
			for time.Since(began) < duration && ctx.Err() == nil {
				if interval > 0 {
					time.Sleep(time.Until(next))
				}
				start := time.Now()
				if interval > 0 {
					start = next // who is late has waited too
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

// wire is one keep-alive HTTP connection that costs the machine as little as it can, since the machine is also what is
// measured.
type wire struct {
	conn   net.Conn
	reader *bufio.Reader
	head   string
	out    []byte
}

func dial(base, path, bearer string) (*wire, error) {
	host := strings.TrimPrefix(base, "http://")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		return nil, err
	}
	return &wire{conn: conn, reader: bufio.NewReader(conn), head: "POST " + path + " HTTP/1.1\r\nHost: " + host +
		"\r\nAuthorization: Bearer " + bearer + "\r\nContent-Type: application/json\r\nContent-Length: "}, nil
}

// dialAll opens n connections.
func dialAll(n int, base, path, bearer string) ([]*wire, error) {
	wires := make([]*wire, 0, n)
	for range n {
		w, err := dial(base, path, bearer)
		if err != nil {
			closeAll(wires)
			return nil, err
		}
		wires = append(wires, w)
	}
	return wires, nil
}

func closeAll(wires []*wire) {
	for _, w := range wires {
		w.conn.Close()
	}
}

// post sends a body and reads the answer, whose status has to be the one that is wanted.
func (w *wire) post(body []byte, want int) error {
	w.out = append(w.out[:0], w.head...)
	w.out = strconv.AppendInt(w.out, int64(len(body)), 10)
	w.out = append(append(w.out, "\r\n\r\n"...), body...)
	if _, err := w.conn.Write(w.out); err != nil {
		return err
	}
	line, err := w.reader.ReadSlice('\n')
	if err != nil {
		return err
	}
	if len(line) < 12 {
		return fmt.Errorf("not an HTTP answer: %q", line)
	}
	status := string(line[9:12])
	length := -1
	for {
		line, err := w.reader.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) == 2 {
			break
		}
		if value, ok := strings.CutPrefix(string(line), "Content-Length: "); ok {
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return err
			}
		}
	}
	if length < 0 {
		return fmt.Errorf("an answer of status %s without Content-Length", status)
	}
	if status != strconv.Itoa(want) {
		said := make([]byte, length)
		_, _ = io.ReadFull(w.reader, said)
		return fmt.Errorf("status %s instead of %d: %s", status, want, said)
	}
	said, err := w.reader.Peek(length)
	if err != nil {
		return err
	}
	if !bytes.Contains(said, success) {
		return fmt.Errorf("an answer of status %s that says %s", status, said)
	}
	_, err = w.reader.Discard(length)
	return err
}

// success is in every good answer.
var success = []byte(`"success":true`)
