// Package worker has what reacts to the log and acts. The packages below it are the larger workers: they send webhooks,
// fetch the content of arrivals, capture arrivals again and erase persons.
//
// A worker is not a projection: reading the log again does not repeat what it did. It reads views, decides with a
// command, and appends the outcome. So workers are below command and may import command, query and projection; only
// httpapi and cmd import them.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/command/worker/forget"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/query"
)

const (
	tokenInterval   = time.Minute // between two queries of an index that is mostly empty
	expiryAtOnce    = 100         // tokens
	visitorInterval = 24 * time.Hour
	visitorRetry    = time.Hour // after a failure
	arrivalInterval = time.Minute
	arrivalsAtOnce  = 500
	contentInterval = time.Hour
	contentAge      = 24 * time.Hour // no append takes as long
)

// Expiry announces API tokens that expire soon, forgets visitors without a lead who have been inactive for long, and
// deletes the content of expired arrivals, and content without an event. Several processes may run it: each change is
// made once.
type Expiry struct {
	Query    *query.Reader
	Handlers *command.Handlers
	Eraser   forget.Eraser
	Sweep    func(ctx context.Context, before time.Time) (deleted int, err error) // of sealed.Store
	Log      *slog.Logger
}

// Run does all of it at their intervals until the context ends.
func (e Expiry) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() {
		e.every(ctx, visitorInterval, visitorRetry, "forget expired visitors", func(ctx context.Context) error {
			return e.forgetVisitors(ctx, time.Now())
		})
	})
	running.Go(func() {
		e.every(ctx, arrivalInterval, arrivalInterval, "delete expired arrivals", func(ctx context.Context) error {
			return e.deleteArrivals(ctx, time.Now())
		})
	})
	running.Go(func() {
		e.every(ctx, contentInterval, contentInterval, "delete content without an event", e.sweepContent)
	})
	e.every(ctx, tokenInterval, tokenInterval, "announce tokens that expire soon", e.announceTokens)
	running.Wait()
}

func (e Expiry) erasure(account string) command.Erasure {
	return e.Handlers.Erasure(command.Caller{Account: account, Actor: "system:expiry"})
}

func (e Expiry) every(
	ctx context.Context, interval, retry time.Duration, work string, once func(context.Context) error,
) {
	background := eventstore.Background{Work: work, Interval: interval, Retry: retry, Log: e.Log}
	background.Run(ctx, func(ctx context.Context) (bool, error) { return false, once(ctx) })
}

// announceTokens announces up to expiryAtOnce tokens that are due now; later runs announce the rest.
func (e Expiry) announceTokens(ctx context.Context) error {
	ids, err := e.Query.TokensToAnnounce(ctx, token.Notice, expiryAtOnce)
	if err != nil {
		return err
	}
	var failed error
	for _, id := range ids {
		failed = errors.Join(failed, e.Handlers.AnnounceExpiry(ctx, id))
	}
	return failed
}

// forgetVisitors forgets all visitors that have expired at a time. The next run completes those that a failure or a
// killed process left.
func (e Expiry) forgetVisitors(ctx context.Context, now time.Time) error {
	forgotten := 0
	var failed error // of one visitor: the others are forgotten all the same
	for visitor, err := range e.Query.ExpiredVisitors(ctx, now) {
		if err != nil {
			return errors.Join(failed, err)
		}
		err = e.Eraser.ExpireVisitor(ctx, e.erasure(visitor.Account), visitor.Stream, visitor.Before)
		switch {
		case errors.Is(err, eventstore.ErrUnavailable) || ctx.Err() != nil:
			return err
		case err != nil:
			failed = fmt.Errorf("%s: %w", visitor.Stream, err)
		default:
			forgotten++
		}
	}
	if forgotten > 0 {
		e.Log.Info("expired visitors forgotten", slog.Int("visitors", forgotten))
	}
	return failed
}

func (e Expiry) sweepContent(ctx context.Context) error {
	deleted, err := e.Sweep(ctx, time.Now().Add(-contentAge))
	if deleted > 0 {
		e.Log.Info("content of appends that failed deleted", slog.Int("contents", deleted))
	}
	return err
}

// deleteArrivals deletes the content of all expired arrivals. The next run completes those that a failure or a killed
// process left.
func (e Expiry) deleteArrivals(ctx context.Context, now time.Time) error {
	deleted := 0
	var failed error // of one arrival: the others are deleted all the same
	for last := ""; ; {
		page, err := e.Query.ExpiredArrivals(ctx, now, last, arrivalsAtOnce)
		if err != nil {
			return errors.Join(failed, err)
		}
		for _, arrival := range page {
			err := e.Eraser.ExpireArrival(ctx, e.erasure(arrival.Account), arrival.ID)
			switch {
			case errors.Is(err, eventstore.ErrUnavailable) || ctx.Err() != nil:
				return err
			case err != nil:
				failed = fmt.Errorf("arrival %s: %w", arrival.ID, err)
			default:
				deleted++
			}
			last = arrival.ID
		}
		if len(page) < arrivalsAtOnce {
			break
		}
	}
	if deleted > 0 {
		e.Log.Info("expired arrivals deleted", slog.Int("arrivals", deleted))
	}
	return failed
}
