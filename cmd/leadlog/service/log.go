package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
)

// EventLog is the log in PostgreSQL or EventStoreDB.
type EventLog interface {
	eventstore.Store
	Close()
	Waiting() int // appends that are queued in this process
}

// OpenLog opens the log at a checked address: in EventStoreDB or in PostgreSQL, by the scheme. The schema in PostgreSQL
// must be of this program's version. It fails if the log cannot be reached.
func OpenLog(ctx context.Context, address string, log *slog.Logger) (EventLog, error) {
	return openWatchedLog(ctx, address, log, nil)
}

// openWatchedLog is OpenLog with a function, which may be nil, that is called for every batch written to PostgreSQL.
func openWatchedLog(
	ctx context.Context, address string, log *slog.Logger, watch func(postgres.Batch),
) (EventLog, error) {
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
	store, err := postgres.Open(ctx, postgres.Options{URL: address, OnBatch: watch, Log: log})
	if err != nil {
		return nil, err
	}
	if err := store.Current(ctx); err != nil {
		store.Close()
		return nil, err
	}
	return store, nil
}

// SealedLog is a log that seals personal data with a key for each person. The keys are in the database of a log in
// PostgreSQL, and otherwise in the database of the views.
type SealedLog struct {
	*sealed.Store
	raw   EventLog      // the same log with events in stored form
	keys  *pgxpool.Pool // nil when the keys are in the database of the views
	Box   *sealbox.Box
	Vault *sealed.Vault
}

// openSealedLog is OpenLog for a log with personal data. Without keys, reading a sealed event is an error.
func openSealedLog(
	ctx context.Context, address string, views *pgxpool.Pool, keys [][]byte, log *slog.Logger,
) (*SealedLog, error) {
	raw, err := OpenLog(ctx, address, log)
	if err != nil {
		return nil, err
	}
	return sealLog(ctx, raw, address, views, keys, log)
}

// sealLog wraps the log at an address, whose events are in stored form, into one that seals personal data. Closing the
// result closes raw, and so does an error.
func sealLog(
	ctx context.Context, raw EventLog, address string, views *pgxpool.Pool, keys [][]byte, log *slog.Logger,
) (_ *SealedLog, err error) {
	l := &SealedLog{raw: raw}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	pool, sameDatabase := views, !esdb.Understands(address)
	if sameDatabase && address != views.Config().ConnString() {
		if l.keys, err = openPool(ctx, address); err != nil {
			return nil, fmt.Errorf("LEADLOG_EVENTSTORE_URL: %w", err)
		}
		pool = l.keys
	}
	if l.Box, err = sealbox.New(keys...); err != nil {
		return nil, fmt.Errorf("LEADLOG_SEAL_KEY: %w", err)
	}
	l.Vault = sealed.NewVault(pool, l.Box)
	l.Store = sealed.Wrap(raw, l.Vault, sameDatabase, log)
	return l, nil
}

// Close closes the log and the pool of its keys.
func (l *SealedLog) Close() {
	l.raw.Close()
	if l.keys != nil {
		l.keys.Close()
	}
}

// rewrap seals data of older keys again with the current key. It runs once, and only if there are older keys.
func (a *App) rewrap(ctx context.Context) {
	if len(a.config.sealKeys) == 1 {
		return
	}
	persons, err := a.store.Vault.Rewrap(ctx)
	if err = errors.Join(err, a.secrets.Rewrap(ctx)); err != nil {
		a.log.Warn("not everything is sealed with the current key; the next start continues", slog.Any("error", err))
		return
	}
	a.log.Info("nothing needs the earlier keys of LEADLOG_SEAL_KEY any more", slog.Int("persons", persons))
}
