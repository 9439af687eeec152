package main

import (
	"context"
	"math"
	"slices"
	"time"
)

// formBenchmark measures whether the time of a form's answer shows that the account knows a person: posts of new and of
// known people, in turn.
type formBenchmark struct {
	settings    `embed:""`
	Connections int           `default:"4"`
	Duration    time.Duration `default:"4s" help:"Of each measurement."`
}

// Run is leadbench form.
func (b *formBenchmark) Run(ctx context.Context) error {
	_, s, stop, err := newService(ctx, b.settings)
	if err != nil {
		return err
	}
	defer stop()
	var created struct{ Data struct{ URL string } }
	if err := s.call(ctx, "POST", "/api/v1/crm/intakes", `{"name":"bench","kind":"form"}`, &created); err != nil {
		return err
	}
	form := target{path: created.Data.URL, status: 200}
	first := madeUp.Load()
	if _, err := post(ctx, s.base, s.captures(), b.Connections, b.Duration, 0, newcomers()); err != nil {
		return err
	}
	known := people{first + 1, madeUp.Load()}
	groups := []struct {
		name string
		next arrivals
		took []time.Duration
	}{{name: "new people", next: newcomers()}, {name: "known people", next: returning(known, 1)}}
	for round := range b.Rounds {
		progress("round %d of %d", round+1, b.Rounds)
		for i := range groups {
			l, err := post(ctx, s.base, form, b.Connections, b.Duration, 0, groups[i].next)
			if err != nil {
				return err
			}
			groups[i].took = append(groups[i].took, l.latencies...)
		}
	}
	t := newTable("form posted by", "answers", "p50", "p90", "p99", "mean, with its standard error")
	for _, g := range groups {
		slices.Sort(g.took)
		l := load{latencies: g.took}
		mean, deviation := spread(g.took)
		t.row(g.name, count(float64(len(g.took))), millis(l.quantile(0.5)), millis(l.quantile(0.9)),
			millis(l.quantile(0.99)),
			millis(mean)+" ± "+millis(time.Duration(float64(deviation)/math.Sqrt(float64(len(g.took))))))
	}
	t.print()
	return nil
}

// spread is the mean of times, and their standard deviation.
func spread(times []time.Duration) (mean, deviation time.Duration) {
	var sum, squares float64
	for _, t := range times {
		sum += float64(t)
		squares += float64(t) * float64(t)
	}
	n := float64(max(1, len(times)))
	return time.Duration(sum / n), time.Duration(math.Sqrt(max(0, squares/n-sum/n*sum/n)))
}
