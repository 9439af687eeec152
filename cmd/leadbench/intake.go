package main

import (
	"context"
	"time"
)

// intakeBenchmark compares the cost of an arrival at an intake with that of the same capture by the API, in turn: both
// with a key that makes them safe to repeat, and both without.
type intakeBenchmark struct {
	settings    `embed:""`
	Connections int           `default:"32"`
	Duration    time.Duration `default:"2s" help:"Of each measurement."`
}

// Run is leadbench intake.
func (b *intakeBenchmark) Run(ctx context.Context) error {
	r, s, stop, err := newService(ctx, b.settings)
	if err != nil {
		return err
	}
	defer stop()
	plain, err := s.intake(ctx, "")
	if err != nil {
		return err
	}
	withID, err := s.intake(ctx, "body.email")
	if err != nil {
		return err
	}
	type way struct {
		figures
		name string
		to   target
	}
	withKey := s.captures()
	withKey.keys = true
	ways := []*way{
		{name: "API", to: s.captures()}, {name: "intake", to: plain},
		{name: "API, with an idempotency key", to: withKey}, {name: "intake, with a delivery id", to: withID},
	}
	for round := range b.Rounds {
		progress("round %d of %d", round+1, b.Rounds)
		for _, w := range ways {
			if err := w.captured(ctx, r, s, w.to, b.Connections, b.Duration, 0, newcomers()); err != nil {
				return err
			}
		}
	}
	t := newTable("by", "a second", "processor time of one: service, database", "to the API", "aim", "p50, p99")
	for i, w := range ways {
		share, goal := "", ""
		if i%2 == 1 {
			share, goal = times(ratio(w.costs(), ways[i-1].costs())), "1.4"
		}
		t.row(w.name, count(median(w.rate)), w.processor(), share, goal,
			millis(median(w.p50))+", "+millis(median(w.p99)))
	}
	t.print()
	t = newSummary()
	t.row("capture by an intake, to one by the API, processor time: without and with a key",
		times(ratio(ways[1].costs(), ways[0].costs()))+", "+times(ratio(ways[3].costs(), ways[2].costs())), "1.4")
	t.print()
	return nil
}

// intake creates an intake that accepts the same bodies as the API, with an expression for the delivery id or none.
func (s *service) intake(ctx context.Context, deliveryID string) (target, error) {
	const secret = "a-secret-of-the-benchmark"
	mapping := ""
	if deliveryID != "" {
		mapping = `,"mapping":{"deliveryId":"` + deliveryID + `"}`
	}
	var created struct {
		Data struct{ URL string }
	}
	err := s.call(ctx, "POST", "/api/v1/crm/intakes",
		`{"name":"bench","kind":"webhook","secret":"`+secret+`","signature":{"scheme":"bearer"}`+mapping+`}`, &created)
	return target{path: created.Data.URL, bearers: []string{secret}, status: 200}, err
}
