package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/projection/schema"
)

// catchUpBenchmark measures captures while a service that was started with empty views reads the log, and after it.
// With the setting LEADLOG_EVENTSTORE_URL the log is there, and that server must be empty before each round.
type catchUpBenchmark struct {
	settings    `embed:""`
	Connections int `default:"64"`
	Events      int `default:"200000" help:"Events on the log."`
}

// catchUpFigures has one of each for a round.
type catchUpFigures struct {
	took          []time.Duration // until the views had read the log
	during, after []float64       // captures a second
}

// Run is leadbench catchup.
func (b *catchUpBenchmark) Run(ctx context.Context) error {
	r, err := newRig(ctx, b.settings)
	if err != nil {
		return err
	}
	defer r.close()
	var f catchUpFigures
	for round := range b.Rounds {
		progress("round %d of %d", round+1, b.Rounds)
		if err := b.round(ctx, r, &f); err != nil {
			return err
		}
	}
	t := newTable("what", "figure", "aim")
	t.row("time until the views have read the log", fmt.Sprintf("%.1f s", median(f.took).Seconds()), "")
	t.row("captures a second meanwhile", count(median(f.during)), "")
	t.row("captures a second after it", count(median(f.after)), "")
	t.row("share of the rate", times(ratio(f.during, f.after)), "0.5")
	t.print()
	return nil
}

func (b *catchUpBenchmark) round(ctx context.Context, r *rig, f *catchUpFigures) error {
	address, err := r.database(ctx, "log")
	if err != nil {
		return err
	}
	sealKey := key()
	if err := b.fill(ctx, r, address, sealKey); err != nil {
		return err
	}
	if err := r.checkpoint(ctx); err != nil {
		return err
	}
	with := *r
	with.setting = append([]string{"LEADLOG_SEAL_KEY=" + sealKey}, r.setting...)
	s, err := with.serve(ctx, address)
	if err != nil {
		return err
	}
	defer s.stop()
	began := time.Now()
	rate, err := b.captures(ctx, s, func(int) (bool, error) { return s.caughtUpWithin(ctx, 100*time.Millisecond) })
	if err != nil {
		return err
	}
	f.took, f.during = append(f.took, time.Since(began)), append(f.during, rate)
	if err := s.catchUp(ctx); err != nil {
		return err
	}
	if rate, err = b.captures(ctx, s, func(seconds int) (bool, error) { return seconds == 5, nil }); err != nil {
		return err
	}
	f.after = append(f.after, rate)
	return nil
}

// captures returns the rate of captures during the seconds until a condition is met.
func (b *catchUpBenchmark) captures(
	ctx context.Context, s *service, until func(seconds int) (bool, error),
) (rate float64, err error) {
	sum := 0.0
	for seconds := 1; ; seconds++ {
		l, err := post(ctx, s.base, s.captures(), b.Connections, time.Second, 0, newcomers())
		if err != nil {
			return 0, err
		}
		sum += l.rate()
		if met, err := until(seconds); met || err != nil {
			return sum / float64(seconds), err
		}
	}
}

// caughtUpWithin reports whether every view reads the whole log before a timeout.
func (s *service) caughtUpWithin(ctx context.Context, timeout time.Duration) (bool, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := s.catchUp(limited)
	if limited.Err() != nil && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
}

// fill writes the log, sealed as the service seals it.
func (b *catchUpBenchmark) fill(ctx context.Context, r *rig, address, sealKey string) error {
	if err := schema.Migrate(ctx, address); err != nil {
		return err
	}
	keys, err := pgxpool.New(ctx, address)
	if err != nil {
		return err
	}
	defer keys.Close()
	log, closeLog, external, err := r.openLog(ctx, address)
	if err != nil {
		return err
	}
	defer closeLog()
	store, err := sealing(log, keys, sealKey, !external)
	if err != nil {
		return err
	}
	progress("writing a log of %d events", b.Events)
	_, err = newHistory().write(ctx, store, b.Events)
	return err
}

// openLog opens the log where the settings have it, otherwise in the database.
func (r *rig) openLog(ctx context.Context, address string) (
	log eventstore.Store, closeLog func(), external bool, err error,
) {
	for _, setting := range r.setting {
		if url, is := strings.CutPrefix(setting, "LEADLOG_EVENTSTORE_URL="); is && esdb.Understands(url) {
			store, err := esdb.Open(ctx, esdb.Options{URL: url, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				return nil, nil, false, err
			}
			return store, store.Close, true, nil
		}
	}
	store, err := openLog(ctx, address)
	if err != nil {
		return nil, nil, false, err
	}
	return store, store.Close, false, nil
}
