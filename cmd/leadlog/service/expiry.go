package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/forget"
	"github.com/leadlog/leadlog/query"
)

const (
	tokenInterval   = time.Minute // between two queries of an index that is mostly empty
	expiryAtOnce    = 100         // tokens
	visitorInterval = 24 * time.Hour
	visitorRetry    = time.Hour // after a failure
)

// expiry announces API tokens that expire soon, and forgets visitors without a lead who have been inactive for long. Any number of processes may run it: each expiry is announced once, and each visitor forgotten once.
type expiry struct {
	query    *query.Reader
	handlers *command.Handlers
	eraser   forget.Eraser
	log      *slog.Logger
}

// run does both at their intervals until the context ends.
func (e expiry) run(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.every(ctx, visitorInterval, visitorRetry, "expired visitors not forgotten", func(ctx context.Context) error {
			return e.forgetVisitors(ctx, time.Now())
		})
	}()
	e.every(ctx, tokenInterval, tokenInterval, "tokens that expire soon not announced", e.announceTokens)
	<-done
}

func (e expiry) every(ctx context.Context, interval, retry time.Duration, failed string, turn func(context.Context) error) {
	for ctx.Err() == nil {
		pause := interval
		if err := turn(ctx); err != nil && ctx.Err() == nil {
			e.log.Warn(failed, slog.Any("error", err))
			pause = retry
		}
		_ = eventstore.Sleep(ctx, pause)
	}
}

// announceTokens announces up to expiryAtOnce tokens that are due now; later turns announce the rest.
func (e expiry) announceTokens(ctx context.Context) error {
	ids, err := e.query.TokensToAnnounce(ctx, token.Notice, expiryAtOnce)
	if err != nil {
		return err
	}
	var failed error
	for _, id := range ids {
		failed = errors.Join(failed, e.handlers.AnnounceExpiry(ctx, id))
	}
	return failed
}

// forgetVisitors forgets all visitors that have expired at a time. What a failure or a killed process leaves undone is found by
// the next turn.
func (e expiry) forgetVisitors(ctx context.Context, now time.Time) error {
	forgotten := 0
	var failed error // of one visitor: the others are forgotten all the same
	for visitor, err := range e.query.ExpiredVisitors(ctx, now) {
		if err != nil {
			return errors.Join(failed, err)
		}
		err = e.eraser.ExpireVisitor(ctx, e.handlers.Erasure(command.Caller{Account: visitor.Account, Actor: "system:expiry"}), visitor.Stream, visitor.Before)
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
		e.log.Info("expired visitors forgotten", slog.Int("visitors", forgotten))
	}
	return failed
}
