package transparency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/projection/schema"
)

// checkpoint is a row of audit.checkpoint.
type checkpoint struct {
	tlog.Tree
	note      string
	published bool
}

// newest returns the largest signed checkpoint, or one of size 0 when there is none.
func (s *session) newest(ctx context.Context) (c checkpoint, err error) {
	var root []byte
	err = s.conn.QueryRow(ctx, `
		SELECT size, root, note, published_at IS NOT NULL FROM audit.checkpoint WHERE origin = $1 ORDER BY size DESC
		LIMIT 1`, s.origin).
		Scan(&c.N, &root, &c.note, &c.published)
	if errors.Is(err, pgx.ErrNoRows) {
		return checkpoint{published: true}, nil
	}
	copy(c.Hash[:], root)
	return c, err
}

// sign signs the current tree, and publishes the checkpoint if no witness is required. The tree must extend the last
// checkpoint.
func (s *session) sign(ctx context.Context, last checkpoint) (c checkpoint, err error) {
	if err := s.consistent(ctx, last.Tree); err != nil {
		return c, err
	}
	if c.Tree, err = s.tiles.Head(); err != nil {
		return c, err
	}
	if c.note, err = s.Signer.SignTree("", c.Tree); err != nil {
		return c, err
	}
	c.published = s.Quorum == 0
	_, err = s.conn.Exec(ctx, `
		WITH earlier AS (DELETE FROM audit.checkpoint WHERE origin = $1 AND size < $2 AND ($5 OR published_at IS NULL))
		INSERT INTO audit.checkpoint (origin, size, root, note, signed_at, published_at)
		VALUES ($1, $2, $3, $4, now(), CASE WHEN $5 THEN now() END)`,
		s.origin, c.N, c.Hash[:], c.note, c.published)
	s.signed = c.N
	return c, err
}

// publish publishes a signed checkpoint.
func (s *session) publish(ctx context.Context, c checkpoint) error {
	if _, err := s.conn.Exec(ctx, `UPDATE audit.checkpoint SET published_at = now() WHERE origin = $1 AND size = $2`,
		s.origin, c.N); err != nil {
		return err
	}
	return forgetEarlier(ctx, s.conn, s.origin)
}

// consistent checks that the tree extends an earlier one.
func (s *session) consistent(ctx context.Context, earlier tlog.Tree) error {
	if earlier.N == 0 {
		return nil
	}
	root, err := tlog.TreeHash(earlier.N, schema.LogTree(s.origin).Hashes(ctx, s.conn))
	if err == nil && root != earlier.Hash {
		err = faultf("the first %d events of the log are not those that were signed", earlier.N)
	}
	return err
}

// forgetEarlier deletes the checkpoints before the newest published one.
func forgetEarlier(ctx context.Context, db schema.Executor, origin string) error {
	_, err := db.Exec(ctx, `
		DELETE FROM audit.checkpoint WHERE origin = $1
		   AND size < (SELECT max(size) FROM audit.checkpoint WHERE origin = $1 AND published_at IS NOT NULL)`, origin)
	return err
}

// Status is the status of the tree, stored for all processes.
type Status struct {
	Size      int64
	Fault     string // why signing has stopped; empty: no fault
	Published int64  // size of the newest published checkpoint
	Witnesses []WitnessStatus
}

// WitnessStatus is the result of the last request to a witness.
type WitnessStatus struct {
	Name         string
	Asked        bool   // a request to it has succeeded or failed
	Reason       string // why it does not cosign; empty: it does
	RefusedSince time.Time
	Refusals     uint64 // counted by this process
}

// Status reads the status.
func (p *Publisher) Status(ctx context.Context) (st Status, err error) {
	err = p.Pool.QueryRow(ctx, `
		SELECT coalesce(max(size), 0), coalesce(max(fault), ''),
		       coalesce((SELECT max(size) FROM audit.checkpoint WHERE origin = $1 AND published_at IS NOT NULL), 0)
		  FROM audit.tree WHERE origin = $1`, p.origin).Scan(&st.Size, &st.Fault, &st.Published)
	if err != nil {
		return st, schema.Unavailable(err)
	}
	rows, err := p.Pool.Query(ctx,
		`SELECT key, reason, coalesce(refused_since, 'epoch') FROM audit.witness WHERE origin = $1`, p.origin)
	if err != nil {
		return st, schema.Unavailable(err)
	}
	byKey := map[string]WitnessStatus{}
	var key string
	var one WitnessStatus
	_, err = pgx.ForEachRow(rows, []any{&key, &one.Reason, &one.RefusedSince}, func() error {
		one.Asked = true
		byKey[key] = one
		return nil
	})
	for i, w := range p.Witnesses {
		one := byKey[w.Key.String()]
		one.Name, one.Refusals = w.Key.Name(), p.refusals[i].Load()
		st.Witnesses = append(st.Witnesses, one)
	}
	return st, schema.Unavailable(err)
}

// Describe returns why a witness does not cosign, and since when.
func (w WitnessStatus) Describe() string {
	return fmt.Sprintf("%s, since %s", w.Reason, w.RefusedSince.UTC().Format(time.RFC3339))
}
