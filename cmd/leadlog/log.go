package main

import (
	"context"
	"log/slog"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/postgres"
)

// eventLog is the log, wherever it is kept.
type eventLog interface {
	eventstore.Store
	Close()
}

// openLog opens the log at an address that was checked: in EventStoreDB by its schemes, else in PostgreSQL, where the
// schema must be of this program's version. It is an error when the log is out of reach.
func openLog(ctx context.Context, address string, log *slog.Logger) (eventLog, error) {
	return openWatchedLog(ctx, address, log, nil)
}

// openWatchedLog does the same, and has watch told of every batch that is written to PostgreSQL.
func openWatchedLog(ctx context.Context, address string, log *slog.Logger, watch func(postgres.Batch)) (eventLog, error) {
	if esdb.Understands(address) {
		store, err := esdb.Open(ctx, esdb.Options{URL: address, Log: log})
		if err != nil {
			return nil, err
		}
		if _, err := store.Epoch(ctx); err != nil {
			store.Close()
			return nil, err
		}
		return store, nil
	}
	store, err := postgres.Open(ctx, postgres.Options{URL: address, Watch: watch, Log: log})
	if err != nil {
		return nil, err
	}
	if err := store.Current(ctx); err != nil {
		store.Close()
		return nil, err
	}
	return store, nil
}
