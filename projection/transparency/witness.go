package transparency

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/note"

	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/projection/schema"
)

// round requests cosignatures of one checkpoint from the witnesses, concurrently with each other and with the growth of
// the tree.
type round struct {
	running sync.WaitGroup
	ended   chan error  // nil: no round is running
	next    time.Time   // earliest start of the next round
	newest  *checkpoint // nil: a round may have changed it
}

func (r *round) wait() { r.running.Wait() }

// advance signs the tree if it has grown, and starts a round unless one is running or no cosignature is missing.
func (r *round) advance(ctx context.Context, s *session) error {
	if r.ended != nil {
		select {
		case err := <-r.ended:
			r.ended, r.newest = nil, nil
			if err != nil {
				return err
			}
		default:
			return nil
		}
	}
	wait := time.Now().Before(r.next)
	if wait && s.Quorum > 0 {
		return nil
	}
	if r.newest == nil {
		newest, err := s.newest(ctx)
		if err != nil {
			return err
		}
		r.newest = &newest
	}
	c := r.newest
	if !c.published && len(s.cosigned(c.note)) >= s.Quorum { // the quorum was lowered
		if err := s.publish(ctx, *c); err != nil {
			return err
		}
		c.published = true
	}
	if s.tiles.Size() > c.N {
		signed, err := s.sign(ctx, *c)
		if err != nil {
			return err
		}
		r.newest, c = &signed, &signed
	}
	if wait || len(s.Witnesses) == 0 || c.N == 0 {
		return nil
	}
	missing, err := s.missing(ctx, *c)
	if err != nil || len(missing) == 0 {
		return err
	}
	r.next, r.ended = time.Now().Add(s.WitnessInterval), make(chan error, 1)
	given := *c
	r.running.Go(func() { r.ended <- s.collectCosignatures(ctx, given, missing) })
	return nil
}

// pending is a witness that has not cosigned a checkpoint yet.
type pending struct {
	merkle.Witness
	index int   // in Options.Witnesses
	size  int64 // of the last checkpoint that it cosigned
}

func (s *session) missing(ctx context.Context, c checkpoint) (missing []pending, err error) {
	sizes := map[string]int64{}
	rows, err := s.conn.Query(ctx, `SELECT key, size FROM audit.witness WHERE origin = $1`, s.origin)
	if err != nil {
		return nil, err
	}
	var key string
	var size int64
	if _, err := pgx.ForEachRow(rows, []any{&key, &size}, func() error { sizes[key] = size; return nil }); err != nil {
		return nil, err
	}
	have := s.cosigned(c.note)
	for i, w := range s.Witnesses {
		if !slices.Contains(have, w.Key.String()) {
			missing = append(missing, pending{w, i, min(sizes[w.Key.String()], c.N)})
		}
	}
	return missing, nil
}

// cosigned returns the keys of the witnesses that have cosigned a note.
func (p *Publisher) cosigned(signed string) (keys []string) {
	for _, w := range p.Witnesses {
		if opened, err := note.Open([]byte(signed), note.VerifierList(w.Key)); err == nil && len(opened.Sigs) > 0 {
			keys = append(keys, w.Key.String())
		}
	}
	return keys
}

// collectCosignatures collects cosignatures, and publishes the checkpoint once there are enough. A witness that does
// not cosign causes no error.
func (s *session) collectCosignatures(ctx context.Context, c checkpoint, from []pending) error {
	type answer struct {
		pending
		signature string
		err       error
	}
	answers, signed := make(chan answer), c.note
	for _, w := range from {
		go func() {
			signature, err := w.Cosign(ctx, s.Signer, signed, w.size, schema.LogTree(s.origin).Hashes(ctx, s.Pool))
			answers <- answer{w, signature, err}
		}()
	}
	var failed error
	for range from {
		a := <-answers
		if ctx.Err() != nil || failed != nil {
			continue
		}
		if a.err != nil {
			failed = s.refused(ctx, a.pending, a.err)
			continue
		}
		c.note += a.signature
		failed = s.cosignedBy(ctx, a.pending, c)
	}
	if failed == nil {
		failed = ctx.Err()
	}
	return failed
}

// cosignedBy stores a checkpoint with a new cosignature.
func (s *session) cosignedBy(ctx context.Context, w pending, c checkpoint) error {
	enough := len(s.cosigned(c.note)) >= s.Quorum
	return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		var was string
		err := tx.QueryRow(ctx, `SELECT reason FROM audit.witness WHERE origin = $1 AND key = $2`,
			s.origin, w.Key.String()).Scan(&was)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if was != "" {
			s.Logger.Info("witness cosigns again", slog.String("witness", w.Key.Name()))
		}
		if _, err := tx.Exec(ctx, `
			INSERT INTO audit.witness (origin, key, size, cosigned_at) VALUES ($1, $2, $3, now())
			ON CONFLICT (origin, key) DO UPDATE SET size = $3, cosigned_at = now(), refused_since = NULL, reason = ''`,
			s.origin, w.Key.String(), c.N); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `
			UPDATE audit.checkpoint SET note = $3, published_at = CASE WHEN $4 THEN coalesce(published_at, now())
			ELSE published_at END
			 WHERE origin = $1 AND size = $2`, s.origin, c.N, c.note, enough); err != nil {
			return err
		}
		return forgetEarlier(ctx, tx, s.origin)
	})
}

// refused counts, logs and stores why a witness did not cosign.
func (s *session) refused(ctx context.Context, w pending, reason error) error {
	s.refusals[w.index].Add(1)
	var was string
	var size int64
	if seen, ok := errors.AsType[*merkle.SeenError](reason); ok {
		size = seen.Size
	}
	err := s.Pool.QueryRow(ctx, `
		WITH was AS (SELECT reason FROM audit.witness WHERE origin = $1 AND key = $2)
		INSERT INTO audit.witness AS w (origin, key, size, refused_since, reason) VALUES ($1, $2, $4, now(), $3)
		ON CONFLICT (origin, key) DO UPDATE SET refused_since = coalesce(w.refused_since, now()), reason = $3,
		  size = greatest(w.size, $4)
		RETURNING coalesce((SELECT reason FROM was), '')`, s.origin, w.Key.String(), reason.Error(), size).Scan(&was)
	if err == nil && was != reason.Error() { // logged once
		s.Logger.Error("witness does not cosign the log", slog.String("witness", w.Key.Name()),
			slog.String("reason", reason.Error()))
	}
	return schema.Unavailable(err)
}
