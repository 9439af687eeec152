package main

import (
	"context"
	"time"
)

// figures are what rounds of one way to send leads gave.
type figures struct {
	rate                  []float64       // leads a second
	inService, inDatabase []time.Duration // processor time of a lead, with its views
	behind                []time.Duration // until the views had read everything
	p50, p99              []time.Duration // until an answer was there
}

// measure runs one round, from and to a service whose views have read everything. Each success is so many leads.
func (f *figures) measure(ctx context.Context, r *rig, s *service, leads int, run func() (load, error)) error {
	var l load
	var behind time.Duration
	service, database, err := r.spent(s, func() (err error) {
		if l, err = run(); err == nil {
			behind, err = s.catchUp(ctx)
		}
		return err
	})
	if err != nil {
		return err
	}
	all := time.Duration(len(l.latencies) * leads)
	f.rate, f.behind = append(f.rate, l.rate()*float64(leads)), append(f.behind, behind)
	f.inService, f.inDatabase = append(f.inService, service/all), append(f.inDatabase, database/all)
	f.p50, f.p99 = append(f.p50, l.quantile(0.5)), append(f.p99, l.quantile(0.99))
	return nil
}

// captured runs one round of single captures, after a checkpoint. An interval other than 0 is the time between the starts of
// a connection's captures.
func (f *figures) captured(
	ctx context.Context, r *rig, s *service, connections int, duration, interval time.Duration, next func(*person) (body []byte, status int),
) error {
	if err := r.checkpoint(ctx); err != nil {
		return err
	}
	return f.measure(ctx, r, s, 1, func() (load, error) {
		return post(ctx, s.base, capturePath, s.token, connections, duration, interval, next)
	})
}

func (f *figures) processor() string {
	return millis(median(f.inService)) + ", " + millis(median(f.inDatabase))
}

// cost is the processor time of one lead, of both together.
func (f *figures) cost() time.Duration {
	each := make([]time.Duration, len(f.inService))
	for i := range each {
		each[i] = f.inService[i] + f.inDatabase[i]
	}
	return median(each)
}
