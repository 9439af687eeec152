package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// againstBenchmark asks what a change costs or gains: captures by two builds of leadlog, in turn, in many short rounds, so
// that both meet the same moments of the machine. Each has a database of its own in one PostgreSQL.
type againstBenchmark struct {
	settings    `embed:""`
	Other       string        `arg:"" placeholder:"FILE" help:"The program to compare with, such as one built before the change."`
	Connections int           `default:"64"`
	Duration    time.Duration `default:"1s" help:"Of each measurement."`
	Rate        float64       `help:"Captures a second to ask for. Default: as many as there can be."`
	Lines       int           `help:"Send batches of so many lines, one after another, instead of single captures."`
	Merging     float64       `help:"Share of the arrivals that are of people who came before, and were not the last."`
}

// side is one of the two.
type side struct {
	figures
	name string
	service
	known people // who came before
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
	sides := make([]*side, 2)
	for i, program := range []string{r.program, other} {
		r.program = program
		s, err := r.serveAnew(ctx, fmt.Sprintf("side%d", i+1))
		if err != nil {
			return err
		}
		defer s.stop()
		sides[i] = &side{name: program, service: *s}
		if b.Merging > 0 {
			if err := sides[i].meetSome(ctx, b.Connections, 5*b.Duration); err != nil {
				return err
			}
		}
	}
	var interval time.Duration // between the starts of a connection's captures
	if b.Rate > 0 {
		interval = time.Duration(float64(b.Connections) / b.Rate * float64(time.Second))
	}
	for round := range b.Rounds {
		say("round %d of %d", round+1, b.Rounds)
		for _, s := range sides {
			if b.Lines > 0 {
				err = s.tookIn(ctx, r, &s.service, batchBenchmark{Batches: 1, Lines: b.Lines, Duration: b.Duration})
			} else {
				err = s.captured(ctx, r, &s.service, b.Connections, b.Duration, interval, returning(s.known, b.Merging))
			}
			if err != nil {
				return err
			}
		}
	}
	t := newTable("program", "captures a second", "processor time of one: service, database", "together", "to the first", "p50, p99")
	for _, s := range sides {
		t.row(filepath.Base(s.name), count(median(s.rate)), s.processor(), millis(s.cost()), times(float64(s.cost())/float64(sides[0].cost())),
			millis(median(s.p50))+", "+millis(median(s.p99)))
	}
	t.print()
	return nil
}

// meetSome has people come, and then others, so that the first are some of many who were here lately.
func (s *side) meetSome(ctx context.Context, connections int, duration time.Duration) (err error) {
	s.known, err = meet(func() error {
		_, err := s.captureAll(ctx, connections, duration)
		return err
	})
	if err == nil {
		_, err = s.captureAll(ctx, connections, duration)
	}
	return err
}
