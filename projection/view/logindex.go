package view

import (
	"context"
	"errors"
	"hash/crc32"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// LogIndex has two sparse indexes of the log. Some engines read only from positions of their events, so a reader that
// starts in the middle needs a position that the log returned.
//
// By time: a row for the first event of each minute that is later than all events before it.
//
// By account: the log is divided into blocks, and the first event of an account and kind in each block has a row. Only
// the id of an event decides whether it starts a block, so the blocks are the same in every engine and in a copy of the
// log. A busy account has a row per block; a reader of a quiet account reads only blocks with its events.
type LogIndex struct{}

// timeInterval is the least time between two rows.
const timeInterval = time.Minute

// blockEvents is the average number of events in a block. It is a power of two.
const blockEvents = 512

func (LogIndex) Name() string     { return schema.LogIndex }
func (LogIndex) Version() int     { return 2 }
func (LogIndex) Tables() []string { return []string{"time_index", "account_index"} }

// Filter selects only events that other projectors also select, so that no more of the log is read for this one.
func (LogIndex) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{
		event.LeadPrefix, event.TokenPrefix, event.TokenUsePrefix, event.WebhookPrefix, event.AccountPrefix,
		event.VisitorPrefix, event.RefusedPrefix, event.IntakePrefix,
		event.ArrivalPrefix,
	}}
}

// Choose implements projection.Chooser: few events need a row.
func (LogIndex) Choose(ctx context.Context, db projection.Rows) (func(projection.Event) bool, error) {
	last, err := readLastTime(ctx, db)
	if err != nil {
		return nil, err
	}
	block, err := lastBlock(ctx, db)
	return func(e projection.Event) bool {
		minute, begins, first := last.passedBy(e), block.endedBy(e), block.firstOf(e)
		return minute || begins || first
	}, err
}

func (LogIndex) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
	last, err := readLastTime(ctx, tx)
	if err != nil {
		return err
	}
	block, err := lastBlock(ctx, tx)
	if err != nil {
		return err
	}
	var times, accounts rows
	account := func(e projection.Event, account, kind string) {
		accounts.row(3)
		accounts.bigint(int64(e.Position))
		accounts.text(account)
		accounts.text(kind)
	}
	for _, e := range batch {
		if last.passedBy(e) {
			times.row(2)
			times.bigint(int64(e.Position))
			times.timestamp(e.At)
		}
		if block.endedBy(e) {
			account(e, "", "")
		}
		if block.firstOf(e) {
			account(e, e.Metadata.Account, event.FeedKind(e.Type))
		}
	}
	if err := times.insert(ctx, tx, "time_index", "position", "at"); err != nil {
		return err
	}
	return accounts.insert(ctx, tx, "account_index", "position", "account", "kind")
}

// lastTime is the time of the last row, which is the latest time of all events up to it.
type lastTime struct{ at time.Time }

func readLastTime(ctx context.Context, db schema.Querier) (last *lastTime, err error) {
	last = &lastTime{}
	err = db.QueryRow(ctx, `SELECT at FROM time_index ORDER BY at DESC LIMIT 1`).Scan(&last.at)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return last, err
}

// passedBy reports whether an event needs a row, which is then the last one.
func (last *lastTime) passedBy(e projection.Event) bool {
	if !e.At.Truncate(timeInterval).After(last.at.Truncate(timeInterval)) {
		return false
	}
	last.at = e.At
	return true
}

// block holds the accounts and kinds of the events in the last block of the log.
type block map[blockPart]struct{}

type blockPart struct{ account, kind string }

func lastBlock(ctx context.Context, db schema.Querier) (b block, err error) {
	b = block{}
	var accounts, kinds []string
	err = db.QueryRow(ctx, `
		SELECT coalesce(array_agg(account), '{}'), coalesce(array_agg(kind), '{}') FROM account_index
		 WHERE position >= (SELECT coalesce(max(position), 0) FROM account_index WHERE account = '')
		 AND account <> ''`).Scan(&accounts, &kinds)
	for i, account := range accounts {
		b[blockPart{account, kinds[i]}] = struct{}{}
	}
	return b, err
}

// endedBy reports whether an event starts the next block, and if so empties this one.
func (b block) endedBy(e projection.Event) bool {
	if crc32.ChecksumIEEE(e.ID[:])%blockEvents != 0 {
		return false
	}
	clear(b)
	return true
}

// firstOf reports whether an event is the first of its account and kind in the block.
func (b block) firstOf(e projection.Event) bool {
	part := blockPart{e.Metadata.Account, event.FeedKind(e.Type)}
	if part.kind == "" || part.account == "" {
		return false
	}
	_, found := b[part]
	b[part] = struct{}{}
	return !found
}

// PositionBefore returns a position that the log returned, such that each event of a lead, token, endpoint, account or
// visitor up to it is earlier than a time: 0 when none is known. If the views lag, a later position may exist.
func PositionBefore(
	ctx context.Context, pool *pgxpool.Pool, store eventstore.Store, at time.Time,
) (eventstore.Position, error) {
	applied, err := projection.AppliedUpTo(ctx, pool, store, schema.LogIndex)
	if err != nil || applied == 0 {
		return 0, err
	}
	var position int64
	err = pool.QueryRow(ctx,
		`SELECT position FROM views.time_index WHERE at < $1 AND position <= $2 ORDER BY at DESC LIMIT 1`,
		at, int64(applied)).
		Scan(&position)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return eventstore.Position(position), schema.Unavailable(err)
}
