package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/query"
)

const (
	expiryInterval = time.Minute // between two queries of an index that is mostly empty
	expiryAtOnce   = 100         // tokens
)

// expiry announces API tokens that expire soon. Any number of processes may run it: each expiry is announced once.
type expiry struct {
	query    *query.Reader
	handlers *command.Handlers
	log      *slog.Logger
}

// run announces tokens at each interval until the context ends.
func (e expiry) run(ctx context.Context) {
	tick := time.NewTicker(expiryInterval)
	defer tick.Stop()
	for {
		if err := e.turn(ctx); err != nil && ctx.Err() == nil {
			e.log.Warn("tokens that expire soon not announced", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// turn announces up to expiryAtOnce tokens that are due now; later turns announce the rest.
func (e expiry) turn(ctx context.Context) error {
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
