// Package verify reads the whole log and every view and reports whether they match: positions and streams have no gaps,
// a phone or email has one lead, tokens and endpoints are within their limits, and views and delivery endpoints equal a
// fresh fold. It changes neither.
//
// Its working data, for a log of any size, is in temporary tables of the database, not in the memory of the process.
package verify

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"
	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/projection/view"
)

// Verification configures a verification.
type Verification struct {
	URL    string // of the views' database
	Pool   *pgxpool.Pool
	Store  eventstore.Store
	Sparse bool                // positions of the log may have gaps, as in EventStoreDB
	Signed []merkle.Checkpoint // the log and the audit trees must begin with these
	Origin string              // of the log's checkpoints; empty: there are none yet
	Limit  int                 // maximum number of findings of each kind
	// Progress is called with the position that both parts have reached: the log itself and the views.
	Progress func(done, end eventstore.Position)
	// LogHead, if not nil, is called with the head of the tree over the log that was read.
	LogHead func(tlog.Tree)
	// Unerased, if not nil, is called with each unfinished erasure. These are not findings, because an erasure that is
	// still running looks the same.
	Unerased func(UnfinishedErasure)
	// Unfinished reports whether the erasure of leads and visitors at a position is incomplete, and HasKeys whether a
	// stream has a key. Incomplete erasures are only searched for with both.
	Unfinished func(
		ctx context.Context, account string, leads []string, origins []event.SplitOrigin, visitors []string,
		erased eventstore.Position,
	) (bool, error)
	HasKeys func(ctx context.Context, streams ...string) (bool, error)
	// BrokenSecrets, if not nil, returns the endpoints whose signing secret is missing or cannot be opened, with the
	// reason. Some of them may have been deleted since the view was updated.
	BrokenSecrets func(ctx context.Context) (map[string]error, error)
	// BrokenIntakes, if not nil, returns the intakes whose secrets are missing or cannot be opened, with the reason.
	// Some of them may have been changed or deleted since the view was updated.
	BrokenIntakes func(ctx context.Context) (map[string]error, error)

	projectors []projection.Projector // of the views to compare; nil: all
}

// UnfinishedErasure is an unfinished erasure, or one that was undone by restoring keys from a backup: of a lead or an
// arrival, by id, or of a visitor, by its stream.
type UnfinishedErasure struct {
	Lead, Visitor, Arrival, Account string
	Message                         string // without personal data
}

// Run returns the findings, as sentences without personal data. If it returns an error, nothing was verified.
//
// The log itself and the views are verified concurrently: while one of them waits for PostgreSQL, the other reads.
func (v Verification) Run(ctx context.Context) (findings []string, err error) {
	var ofViews, ofDeliveries []string
	var r logReader
	shown := &progress{report: v.Progress}
	group, parts := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		defer shown.finish(0)
		r, findings, err = v.log(parts, shown.of(0))
		return schema.Unavailable(err)
	})
	group.Go(func() (err error) {
		defer shown.finish(1)
		ofViews, err = v.views(parts, shown.of(1))
		return err
	})
	group.Go(func() (err error) {
		ofDeliveries, err = v.deliveries(parts)
		return err
	})
	// at this point the copies of the views, which have rows of erased persons, are dropped
	if err = group.Wait(); err == nil {
		err = schema.Unavailable(v.unerased(ctx, r))
	}
	return slices.Concat(findings, ofViews, ofDeliveries), err
}

// progress is the progress of two parts.
type progress struct {
	report func(done, end eventstore.Position)
	mu     sync.Mutex
	done   [2]eventstore.Position
	end    eventstore.Position
}

func (p *progress) of(part int) func(done, end eventstore.Position) {
	return func(done, end eventstore.Position) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.done[part], p.end = done, max(p.end, end)
		p.report(min(p.done[0], p.done[1], p.end), p.end)
	}
}

func (p *progress) finish(part int) { p.of(part)(math.MaxInt64, 0) }

// views verifies that each view equals a fresh fold of the log.
func (v Verification) views(
	ctx context.Context, report func(done, end eventstore.Position),
) (findings []string, err error) {
	projectors := v.projectors
	if projectors == nil {
		projectors = view.All()
	}
	compared, err := projection.Replay{
		URL: v.URL, Store: v.Store, Projectors: projectors, Progress: report,
	}.Compare(ctx, v.Limit)
	for _, c := range compared {
		if c.Err != nil { // the view is stale, or the log cannot be folded into it
			findings = append(findings, fmt.Sprintf("view %s: %v", c.View, c.Err))
		}
		for _, d := range c.Differences {
			findings = append(findings, d.Of(c.View))
		}
	}
	return findings, err
}

// deliveries verifies the table of endpoints that deliveries use. Queued and sent deliveries are not a fold of the log.
func (v Verification) deliveries(ctx context.Context) (findings []string, err error) {
	compared, err := projection.Replay{
		URL: v.URL, Store: v.Store, Live: schema.Deliveries, Projectors: []projection.Projector{delivery.Endpoints{}},
	}.Compare(ctx, v.Limit)
	for _, c := range compared {
		if c.Err != nil {
			findings = append(findings, fmt.Sprintf("deliveries: %v", c.Err))
		}
		for _, d := range c.Differences {
			findings = append(findings, fmt.Sprintf("deliveries, %s %s: %s", d.Table, d.Key, d.What))
		}
	}
	return findings, err
}

// log verifies the log alone, and its claims against the leads. It runs in one transaction, whose snapshot of the leads
// is taken before the log is read, so that the log is never behind them.
func (v Verification) log(
	ctx context.Context, report func(done, end eventstore.Position),
) (r logReader, findings []string, err error) {
	err = pgx.BeginTxFunc(ctx, v.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		var position int64 // of the leads
		err := tx.QueryRow(ctx, `SELECT coalesce(max(position), 0) FROM views.checkpoint WHERE projector = $1`,
			schema.Lead).Scan(&position)
		if err != nil {
			return err
		}
		stored, signed, err := openStored(ctx, tx, v.Origin)
		if err != nil {
			return err
		}
		if r, err = v.read(ctx, tx, stored, signedTrees(append(signed, v.Signed...)), report); err != nil {
			return err
		}
		if findings, err = v.conclude(ctx, tx, &r, position); err != nil {
			return err
		}
		wrong, err := r.stored.findings(ctx, tx, v.Limit)
		if err != nil {
			return err
		}
		findings = append(findings, wrong...)
		if v.LogHead != nil {
			head, err := r.trees[""].tree.Head()
			if err != nil {
				return err
			}
			v.LogHead(head)
		}
		return nil
	})
	return r, findings, err
}

// read reads the log, and fills the temporary tables for the checks.
func (v Verification) read(
	ctx context.Context, tx pgx.Tx, stored storedTree, trees map[string]*signedTree,
	report func(done, end eventstore.Position),
) (
	r logReader, err error,
) {
	for _, statements := range []string{settings, temporary} {
		if _, err := tx.Exec(ctx, statements); err != nil {
			return r, err
		}
	}
	// These are read before the log, because a secret is destroyed after its deletion is on the log.
	var brokenEndpoints, brokenIntakes map[string]error
	if v.BrokenSecrets != nil {
		if brokenEndpoints, err = v.BrokenSecrets(ctx); err != nil {
			return r, err
		}
	}
	if v.BrokenIntakes != nil {
		if brokenIntakes, err = v.BrokenIntakes(ctx); err != nil {
			return r, err
		}
	}
	r = logReader{
		tx: tx, limit: v.Limit, seed: maphash.MakeSeed(), sparse: v.Sparse, stored: stored, trees: trees,
		tokens: map[string]int{}, endpoints: map[string]int{}, intakes: map[string]int{},
		demoIntakes: map[string]struct{}{}, brokenEndpoints: brokenEndpoints, brokenIntakes: brokenIntakes,
		leaves: map[string]int64{}, pending: map[string]pendingOutcome{}, pendingClaims: map[ulid.ULID]string{},
		erased: map[string]erasure{}, erasedStreams: map[string]bool{}, forgotten: map[string]forgottenVisitor{},
		unreadable: map[string]*unreadableStream{}, readableArrivals: map[string]struct{}{},
		restoredArrivals: map[string]string{},
	}
	err = r.all(ctx, v.Store, report)
	return r, err
}

// conclude runs the checks on the data read from the log, and returns their findings. With an error, the result is
// incomplete.
func (v Verification) conclude(
	ctx context.Context, tx pgx.Tx, r *logReader, position int64,
) (findings []string, err error) {
	if _, err := tx.Exec(ctx, `ANALYZE seen, claimed, lived, joined_into, joined`); err != nil {
		return nil, err
	}
	for _, derivation := range derivations {
		if _, err := tx.Exec(ctx, derivation, position); err != nil {
			return nil, err
		}
	}
	// A lead without its key seems to have no values. Its claims are valid nevertheless, because the key may be found
	// again.
	if _, err := tx.Exec(ctx, `DELETE FROM uneven WHERE 'lead-' || lead_id = ANY ($1)`,
		slices.Collect(maps.Keys(r.unreadable))); err != nil {
		return nil, err
	}
	findings = slices.Clone(r.findings)
	for _, account := range slices.Sorted(maps.Keys(r.trees)) {
		findings = append(findings, r.trees[account].findings(account)...)
	}
	findings = slices.Concat(findings, r.brokenFindings(), r.pendingFindings())
	var steps []func() ([]string, error)
	for _, check := range checks {
		steps = append(steps, func() ([]string, error) { return runCheck(ctx, tx, check, position, v.Limit) })
	}
	steps = append(steps,
		func() ([]string, error) { return checkTree(ctx, tx, v.Limit) },
		func() ([]string, error) { return r.lostKeys(ctx, v.Store) },
	)
	for _, step := range steps {
		more, err := step()
		if findings = append(findings, more...); err != nil {
			return findings, err
		}
	}
	return findings, nil
}

func runCheck(ctx context.Context, tx pgx.Tx, check string, position int64, limit int) ([]string, error) {
	rows, err := tx.Query(ctx, check, position, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
