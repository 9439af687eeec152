package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/projection/schema"
)

// stores are the log and the views' database, opened for a command that people run by hand.
type stores struct {
	url    string // of the views' database
	store  *sealedLog
	sparse bool // positions of the log may have gaps
	pool   *pgxpool.Pool
	seal   [][]byte // keys that open what is sealed; nil when there is none
	log    *slog.Logger
	close  func()
}

// collectLess makes the garbage collector run less often, for commands that read the whole log and allocate much on the way. It
// saves them a sixth of their time, and the memory limit keeps them under 256 MiB resident. GOGC or GOMEMLIMIT, if set, is left
// alone.
func collectLess() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(400)
		debug.SetMemoryLimit(200 << 20)
	}
}

// openStores opens the log and the views' database, whose schemas must be of this program's version. Without a seal key, only
// events without personal data can be read.
func (d sealedDatabase) openStores(ctx context.Context, c cli.Output) (_ *stores, err error) {
	var check checker
	d.check(&check)
	keys, err := d.sealKeys(&check)
	if err = errors.Join(err, check.Err()); err != nil {
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
