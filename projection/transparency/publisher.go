// Package transparency publishes the Merkle tree of the whole log. It follows the log in batches, stores the tree in
// tiles (c2sp.org/tlog-tiles), signs checkpoints (c2sp.org/tlog-checkpoint) and has witnesses cosign them
// (c2sp.org/tlog-witness). Package query/logtree reads the tree.
//
// A signed tree never changes. When the log is not the one that the tree was built from, as after a copy or a restored
// backup, the tree is rebuilt in place and compared with the signed one. If the log differs from it, or is shorter,
// signing stops: that is a [Fault], and an operator has to decide.
package transparency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"filippo.io/torchwood"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/projection/schema"
)

// Options configure a Publisher. WriteInterval and WitnessInterval may be 0.
type Options struct {
	Pool            *pgxpool.Pool    // of the views' database
	Log             eventstore.Store // with stored events, which are sealed
	Tail            *eventstore.Tail // of the log, shared; nil: one of its own
	Signer          *merkle.Signer   // its name is the log's origin
	Witnesses       []merkle.Witness
	Quorum          int // how many of the witnesses must cosign a checkpoint before it is published
	Logger          *slog.Logger
	WriteInterval   time.Duration // least time between two writes of the tree; 0: 1 s
	WitnessInterval time.Duration // least time between two rounds of requests to witnesses; 0: 5 s
}

// Publisher publishes the tree of one log. Any number of processes may run one; a lease lets one at a time write.
type Publisher struct {
	Options
	origin      string
	refusals    []atomic.Uint64 // by witness
	faulty      string          // the fault that was logged last
	interrupted bool            // no session has begun since this was logged
}

// New prepares a Publisher.
func New(o Options) *Publisher {
	if o.WriteInterval == 0 {
		o.WriteInterval = time.Second
	}
	if o.WitnessInterval == 0 {
		o.WitnessInterval = 5 * time.Second
	}
	if o.Tail == nil {
		o.Tail = eventstore.NewTail(o.Log, eventstore.Filter{})
	}
	return &Publisher{Options: o, origin: o.Signer.Name(), refusals: make([]atomic.Uint64, len(o.Witnesses))}
}

// lease names the lease of the session that writes the tree of the log with this origin.
func lease(origin string) string { return "log tree " + origin }

const (
	takeover   = time.Second     // interval at which a standby tries to take the lease
	retryPause = 2 * time.Second // after a failure
	// pageEvents is how many events are taken from the tail at a time.
	pageEvents = 2000
	// bufferedPages is how many pages are buffered while tiles are written.
	bufferedPages = 100
	faultPause    = 10 * time.Second // after a fault, because the right log may be restored
	// maxLeaves is the maximum number of leaves written at once.
	maxLeaves = 50_000
)

// Run publishes until the context is done.
func (p *Publisher) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := p.serve(ctx)
		wait := retryPause
		var fault *Fault
		switch {
		case ctx.Err() != nil:
		case errors.As(err, &fault):
			wait = faultPause
			p.report(ctx, fault)
		case !p.interrupted: // logged once
			p.Logger.Warn("tree of the log interrupted, retrying", slog.Any("error", err))
			p.interrupted = true
		}
		_ = eventstore.Sleep(ctx, wait)
	}
}

// Fault is the error of a log that differs from the signed one.
type Fault struct{ What string }

func (f *Fault) Error() string { return f.What }

func faultf(format string, args ...any) error { return &Fault{fmt.Sprintf(format, args...)} }

// report logs a fault once, and stores it for all processes.
func (p *Publisher) report(ctx context.Context, f *Fault) {
	if p.faulty != f.What {
		p.Logger.Error("the log is not the one that was published; nothing more is signed",
			slog.String("fault", f.What))
		p.faulty = f.What
	}
	if _, err := p.Pool.Exec(ctx, `UPDATE audit.tree SET fault = $2 WHERE origin = $1`, p.origin, f.What); err != nil {
		p.Logger.Warn("fault of the log's tree not recorded", slog.Any("error", err))
	}
}

// state is the stored progress of the tree.
type state struct {
	epoch    string
	position eventstore.Position
	size     int64
	seen     seen
	fault    string
}

// seen is the last leaf. Its stream is empty when there is none.
type seen struct {
	stream   string
	revision eventstore.Revision
	event    string
}

// session is a database session that holds the lease.
type session struct {
	*Publisher
	conn   *pgxpool.Conn
	state  state
	tiles  *merkle.Tiles
	filled []merkle.Tile // since the last write
	// the position before the first leaf of each tile of level 0 that was started since the last write
	starts  map[int64]eventstore.Position
	reached eventstore.Position // position up to which the log was read
	signed  int64               // size of the largest checkpoint that was ever signed
}

// serve runs one session, which always ends with an error.
func (p *Publisher) serve(ctx context.Context) error {
	conn, err := p.Pool.Acquire(ctx)
	if err != nil {
		return schema.Unavailable(err)
	}
	defer func() { // the lease ends with the session
		_ = conn.Conn().Close(context.WithoutCancel(ctx))
		conn.Release()
	}()
	for {
		acquired, err := schema.AcquireLease(ctx, conn, lease(p.origin))
		if err != nil {
			return schema.Unavailable(err)
		}
		if acquired {
			break
		}
		if err := eventstore.Sleep(ctx, takeover); err != nil {
			return err
		}
	}
	// A signed checkpoint must not be lost, because witnesses and callers have seen it.
	if _, err := conn.Exec(ctx, `SET synchronous_commit = on`); err != nil {
		return schema.Unavailable(err)
	}
	s := &session{Publisher: p, conn: conn, starts: map[int64]eventstore.Position{}}
	if err := s.open(ctx); err != nil {
		return schema.Unavailable(err)
	}
	p.interrupted = false
	return schema.Unavailable(s.follow(ctx))
}

// open resumes the tree, or restarts it if the log is not the one that it was built from.
func (s *session) open(ctx context.Context) error {
	epoch, err := s.Log.Epoch(ctx)
	if err != nil {
		return err
	}
	if err := s.conn.QueryRow(ctx, `SELECT coalesce(max(size), 0) FROM audit.checkpoint WHERE origin = $1`,
		s.origin).Scan(&s.signed); err != nil {
		return err
	}
	var position, revision int64
	err = s.conn.QueryRow(ctx, `
		SELECT epoch, position, size, seen_stream, seen_revision, seen_event, fault FROM audit.tree
		WHERE origin = $1`, s.origin).
		Scan(&s.state.epoch, &position, &s.state.size, &s.state.seen.stream, &revision,
			&s.state.seen.event, &s.state.fault)
	if errors.Is(err, pgx.ErrNoRows) {
		return s.restart(ctx, epoch)
	}
	if err != nil {
		return err
	}
	s.state.position, s.state.seen.revision = eventstore.Position(position), eventstore.Revision(revision)
	same, err := s.onLog(ctx, epoch)
	if err != nil {
		return err
	}
	if !same {
		return s.restart(ctx, epoch)
	}
	edge, err := schema.LogTree(s.origin).Tiles(ctx, s.conn, merkle.EdgeOf(s.state.size))
	if err == nil {
		s.tiles, err = merkle.ResumeTiles(s.state.size, edge)
	}
	if errors.Is(err, merkle.ErrTiles) {
		s.Logger.Warn("tree of the log is damaged, building it again", slog.Any("error", err))
		return s.restart(ctx, epoch)
	}
	return err
}

// onLog reports whether the log has the tree's last leaf at its revision.
func (s *session) onLog(ctx context.Context, epoch string) (bool, error) {
	if s.state.epoch != epoch {
		return false, nil
	}
	head, err := s.Log.Head(ctx)
	if err != nil || s.state.position > head {
		return false, err
	}
	if s.state.seen.stream == "" {
		return true, nil
	}
	return eventstore.HasEvent(ctx, s.Log, s.state.seen.stream, s.state.seen.revision, s.state.seen.event)
}

// restart resets the tree to the start of the log. Signed tiles are kept for the comparison.
func (s *session) restart(ctx context.Context, epoch string) error {
	s.state, s.tiles = state{epoch: epoch, fault: s.state.fault}, &merkle.Tiles{}
	return pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			INSERT INTO audit.tree (origin, epoch, position, size, seen_stream, seen_revision, seen_event, updated_at)
			VALUES ($1, $2, 0, 0, '', 0, '', now())
			ON CONFLICT (origin) DO UPDATE SET epoch = $2, position = 0, size = 0, seen_stream = '', seen_revision = 0,
			  seen_event = '', updated_at = now()`,
			s.origin, epoch)
		if err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, `DELETE FROM audit.tile WHERE origin = $1 AND number * 256 >= $2::bigint >> level * 8`,
			s.origin, s.signed); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE audit.tile SET after = NULL WHERE origin = $1 AND level = 0`, s.origin)
		return err
	})
}

// leaves are consecutive leaves.
type leaves struct {
	hashes    []tlog.Hash
	positions []eventstore.Position // of each
	seen      seen                  // the last event
	reached   eventstore.Position   // the log was read up to this position
}

// follow adds the recorded events of the log, then new ones.
func (s *session) follow(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	read := make(chan leaves, bufferedPages)
	failed := make(chan error, 1)
	var round round
	defer round.wait()
	ticker := time.NewTicker(s.WriteInterval)
	defer ticker.Stop()
	head, err := s.Log.Head(ctx)
	if err != nil {
		return err
	}
	s.reached = s.state.position
	go func() { failed <- s.read(ctx, s.reached, read) }()
	for {
		select {
		case l := <-read:
			if s.add(l); s.tiles.Size()-s.state.size < maxLeaves {
				continue
			}
		case <-ticker.C:
		case err := <-failed:
			return err
		}
		if err := s.write(ctx); err != nil {
			return err
		}
		if s.reached < head {
			continue
		}
		if err := s.check(ctx); err != nil {
			return err
		}
		if err := round.advance(ctx, s); err != nil {
			return err
		}
	}
}

// read hashes the events after a position.
func (s *session) read(ctx context.Context, after eventstore.Position, to chan<- leaves) error {
	f := s.Tail.Follow(eventstore.Start{After: after, Stored: true})
	defer f.Close()
	var hasher audit.LeafHasher
	for events := []eventstore.Decoded(nil); ; clear(events) {
		var reached eventstore.Position
		var err error
		if events, reached, err = f.Next(ctx, events[:0], pageEvents, nil); err != nil {
			return err
		}
		n := len(events)
		l := leaves{hashes: make([]tlog.Hash, n), positions: make([]eventstore.Position, n), reached: reached}
		for i, e := range events {
			if l.hashes[i], err = hasher.Leaf(e.Stored); err != nil {
				return fmt.Errorf("event %s: %w", e.ID, err)
			}
			l.positions[i] = e.Position
		}
		if n > 0 {
			l.seen = seen{events[n-1].Stream, events[n-1].Revision, events[n-1].ID.String()}
		}
		select {
		case to <- l:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *session) add(l leaves) {
	for i, leaf := range l.hashes {
		if s.tiles.Size()%torchwood.TileWidth == 0 {
			s.starts[s.tiles.Size()/torchwood.TileWidth] = s.state.position
		}
		s.filled = append(s.filled, s.tiles.Add(leaf)...)
		s.state.position = l.positions[i]
	}
	if s.reached = l.reached; len(l.hashes) > 0 {
		s.state.seen = l.seen
	}
}

// write writes the changed tiles and the state.
func (s *session) write(ctx context.Context) error {
	if s.tiles.Size() == s.state.size {
		return nil
	}
	changed := append(s.filled, s.tiles.Changed()...)
	if s.state.size < s.signed {
		if err := s.compare(ctx, changed); err != nil {
			return err
		}
	}
	if err := s.save(ctx, changed); err != nil {
		return err
	}
	s.filled = nil
	clear(s.starts)
	s.state.size = s.tiles.Size()
	return nil
}

// errStateDeleted: an operator deleted the tree. The next session builds it again.
var errStateDeleted = errors.New("the state of the tree was deleted")

// save writes tiles and the state. A signed tile is not truncated while the tree is rebuilt.
func (s *session) save(ctx context.Context, changed []merkle.Tile) error {
	levels, numbers, hashes := make([]int16, len(changed)), make([]int64, len(changed)), make([][]byte, len(changed))
	after := make([]*int64, len(changed))
	for i, tile := range changed {
		levels[i], numbers[i], hashes[i] = int16(tile.Level), tile.Number, tile.Hashes
		if start, begun := s.starts[tile.Number]; begun && tile.Level == 0 {
			after[i] = new(int64(start))
		}
	}
	written, err := s.conn.Exec(ctx, `
		WITH tiles AS (
			INSERT INTO audit.tile AS t (origin, level, number, hashes, after)
			SELECT $1, level, number, hashes, after
			FROM unnest($2::smallint[], $3::bigint[], $4::bytea[], $5::bigint[]) AS changed (level, number, hashes,
			  after)
			ON CONFLICT (origin, level, number) DO UPDATE SET
			    after = coalesce(EXCLUDED.after, t.after),
			    hashes = CASE WHEN octet_length(EXCLUDED.hashes) >= octet_length(t.hashes)
			                    OR EXCLUDED.number * 256 + octet_length(EXCLUDED.hashes) / 32 > $6::bigint >>
			                    EXCLUDED.level * 8
			             THEN EXCLUDED.hashes ELSE t.hashes END)
		UPDATE audit.tree SET position = $7, size = $8, seen_stream = $9, seen_revision = $10, seen_event = $11,
		  updated_at = now() WHERE origin = $1`,
		s.origin, levels, numbers, hashes, after, s.signed,
		int64(s.state.position), s.tiles.Size(), s.state.seen.stream, int64(s.state.seen.revision), s.state.seen.event)
	if err == nil && written.RowsAffected() == 0 {
		return errStateDeleted
	}
	return err
}

// compare compares changed leaves with the signed ones.
func (s *session) compare(ctx context.Context, changed []merkle.Tile) error {
	var wanted []tlog.Tile
	for _, tile := range changed {
		if tile.Level == 0 && tile.Number*torchwood.TileWidth < s.signed {
			wanted = append(wanted, tlog.Tile{H: torchwood.TileHeight, N: tile.Number, W: tile.Width()})
		}
	}
	stored, err := schema.LogTree(s.origin).Tiles(ctx, s.conn, wanted)
	if err != nil {
		return err
	}
	was := map[int64][]byte{}
	for _, tile := range stored {
		was[tile.Number] = tile.Hashes
	}
	for _, tile := range changed {
		if tile.Level > 0 {
			continue
		}
		for i := range tile.Width() {
			at, leaf := tile.Number*torchwood.TileWidth+int64(i), i*tlog.HashSize
			if at >= s.signed || leaf >= len(was[tile.Number]) {
				break
			}
			if [tlog.HashSize]byte(was[tile.Number][leaf:]) != [tlog.HashSize]byte(tile.Hashes[leaf:]) {
				return faultf("event %d of the log is not the one that was signed in a checkpoint of %d events",
					at+1, s.signed)
			}
		}
	}
	return nil
}

// check compares the tree with the largest signed checkpoint, after the log was read to its end.
func (s *session) check(ctx context.Context) error {
	if s.state.size < s.signed {
		if head, err := s.Log.Head(ctx); err != nil || s.reached < head {
			return err // not at the end yet
		}
		return faultf("the log ends after %d events, and a checkpoint of %d was signed: events were lost, as when an "+
			"older backup is restored", s.state.size, s.signed)
	}
	if s.state.fault == "" {
		return nil
	}
	last, err := s.newest(ctx)
	if err == nil {
		err = s.consistent(ctx, last.Tree)
	}
	if err != nil {
		return err
	}
	if _, err := s.conn.Exec(ctx, `UPDATE audit.tree SET fault = '' WHERE origin = $1`, s.origin); err != nil {
		return err
	}
	s.Logger.Info("the log matches the published checkpoints again")
	s.state.fault, s.faulty = "", ""
	return nil
}

// Origin returns the log's name in its checkpoints.
func (p *Publisher) Origin() string { return p.origin }
