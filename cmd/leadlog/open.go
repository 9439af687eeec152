package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/projection/schema"
)

// stores are the log and the read models, open for a command that people run by hand.
type stores struct {
	url    string // of the read models' database
	store  *sealedLog
	sparse bool // positions of the log need not follow each other
	pool   *pgxpool.Pool
	seal   [][]byte // keys that open what is sealed; none when none is given
	log    *slog.Logger
	close  func()
}

// collectLess is for commands that read the whole log, and make much garbage on the way. Collecting it less often saves
// them a sixth of their time, and the limit keeps them under 256 MiB resident. GOGC and GOMEMLIMIT have precedence.
func collectLess() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(400)
		debug.SetMemoryLimit(200 << 20)
	}
}

// openStores opens the log and the read models, both of this program's version. Without a key to open it with, the log can be
// read as far as it is about nobody.
func (d sealedDatabase) openStores(ctx context.Context, c console) (_ *stores, err error) {
	var check checker
	d.check(&check)
	keys, err := d.sealKeys(&check)
	if err = errors.Join(err, check.err()); err != nil {
		return nil, err
	}
	log := plainLogger(c)
	views, events, private, err := d.open(ctx, log)
	if err != nil {
		return nil, err
	}
	h := &stores{url: views, sparse: esdb.Understands(events), seal: keys, log: log}
	h.close = func() {
		if h.store != nil {
			h.store.Close()
		}
		if h.pool != nil {
			h.pool.Close()
		}
		stopPrivate(private, log)
	}
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	if h.pool, err = openLong(ctx, views); err != nil {
		return nil, fmt.Errorf("LEADLOG_DATABASE_URL: %w", err)
	}
	if h.store, err = openSealedLog(ctx, events, h.pool, keys, log); err != nil {
		return nil, err
	}
	return h, schema.Current(ctx, h.pool)
}
