package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// batchBenchmark asks what it saves to send many leads at once: the same leads, one a request over many connections,
// and many a request.
type batchBenchmark struct {
	settings    `embed:""`
	Connections int           `default:"64" help:"Of the single captures."`
	Batches     int           `default:"1" help:"Batches at a time."`
	Lines       int           `default:"10000" help:"Of a batch."`
	Duration    time.Duration `default:"5s" help:"Of each measurement."`
	Alone       bool          `help:"Only the batches: to look into leadlog while it takes them in."`
}

// Run is leadbench batch.
func (b *batchBenchmark) Run(ctx context.Context) error {
	r, err := newRig(ctx, b.settings)
	if err != nil {
		return err
	}
	defer r.close()
	leadlog, err := r.serveAnew(ctx, "log")
	if err != nil {
		return err
	}
	defer leadlog.stop()
	var one, many figures
	for round := range b.Rounds {
		say("round %d of %d", round+1, b.Rounds)
		if !b.Alone {
			if err := one.captured(ctx, r, leadlog, b.Connections, b.Duration, 0, newcomers()); err != nil {
				return err
			}
		}
		if err := many.tookIn(ctx, r, leadlog, *b); err != nil {
			return err
		}
	}
	t := newTable("what", "leads a second", "processor time of a lead, with its views: service, database")
	t.row(fmt.Sprintf("batches of %d lines, %d at a time", b.Lines, b.Batches), count(median(many.rate)), many.processor())
	if b.Alone {
		t.print()
		return nil
	}
	memory, err := b.memory(ctx, r)
	if err != nil {
		return err
	}
	t.row(fmt.Sprintf("single captures, %d connections", b.Connections), count(median(one.rate)), one.processor())
	t.print()
	t = newTable("leadlog", "figure", "goal")
	t.row("leads a second in batches to single captures", times(share(many.rate, one.rate)), atLeast(3))
	t.row("most resident memory of a fresh service, a batch of 32 MiB", mebibytes(memory), atMost("128 MiB"))
	t.print()
	return nil
}

// tookIn runs one round of batches, after a checkpoint.
func (f *figures) tookIn(ctx context.Context, r *rig, s *service, b batchBenchmark) error {
	if err := r.checkpoint(ctx); err != nil {
		return err
	}
	return f.measure(ctx, r, s, b.Lines, func() (load, error) { return b.post(ctx, s) })
}

// post drives batches, one after another from each sender.
func (b batchBenchmark) post(ctx context.Context, s *service) (load, error) {
	workers := make([]func(context.Context) error, b.Batches)
	for i := range workers {
		workers[i] = func(ctx context.Context) error {
			return s.batch(ctx, batchBody(b.Lines, 0))
		}
	}
	return drive(ctx, b.Duration, 0, workers)
}

// batchBody is newcomers, one a line, each with as many bytes more as padding says.
func batchBody(n, padding int) []byte {
	var body bytes.Buffer
	next, p := newcomers(), &person{}
	for range n {
		line, _ := next(p)
		body.Write(line[:len(line)-1])
		if padding > 0 {
			fmt.Fprintf(&body, `,"note":%q`, bytes.Repeat([]byte{'x'}, min(padding, 2000)))
			fmt.Fprintf(&body, `,"more":%q`, bytes.Repeat([]byte{'x'}, max(0, padding-2000)))
		}
		body.WriteString("}\n")
	}
	return body.Bytes()
}

// batch sends lines, reads an answer to each, and wants all to be new.
func (s *service) batch(ctx context.Context, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+"/api/v1/crm/leads/batch", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Content-Type", "application/x-ndjson")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answers := bufio.NewReaderSize(response.Body, 64<<10)
	for line := 1; ; line++ {
		answer, err := answers.ReadSlice('\n')
		if err == io.EOF {
			if sent := bytes.Count(body, []byte{'\n'}); line-1 != sent {
				return fmt.Errorf("%d answers to %d lines", line-1, sent)
			}
			return nil
		}
		if err != nil {
			return err
		}
		if want := fmt.Appendf(nil, `{"line":%d,"status":201,`, line); !bytes.HasPrefix(answer, want) {
			return fmt.Errorf("line %d: %s", line, answer)
		}
	}
}

// memory is the most that a fresh service takes when it is sent as much as a batch may be.
func (b *batchBenchmark) memory(ctx context.Context, r *rig) (float64, error) {
	fresh, err := r.serveAnew(ctx, "memory")
	if err != nil {
		return 0, err
	}
	defer fresh.stop()
	const most = 32 << 20 // bytes of a batch
	body := batchBody(9_000, most/9_000-300)
	if len(body) > most {
		return 0, fmt.Errorf("a batch of %d bytes", len(body))
	}
	if err := fresh.batch(ctx, body); err != nil {
		return 0, err
	}
	return fresh.memory()
}
