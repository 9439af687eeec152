package logcopy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"iter"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/leadlog/leadlog/eventstore"
)

// ErrDiffers says that a copy is not the same as its source.
var ErrDiffers = errors.New("the copy differs from its source")

// Digest sums up a log: how many events, and a SHA-256 over stream, revision, id, type, time, data and metadata of each in
// the order of the log.
type Digest struct {
	Events uint64
	Hash   string // hexadecimal
}

func (d Digest) String() string { return fmt.Sprintf("%d events, SHA-256 %s", d.Events, d.Hash) }

// Compare reads both logs from beginning to end and says, as ErrDiffers, that they are not the same by count and hash. It
// tells each where every event stands in the one and in the other.
func Compare(
	ctx context.Context, from, to eventstore.Store, progress func(done, end eventstore.Position), each func(from, to eventstore.Position) error,
) (Digest, error) {
	end, err := from.Head(ctx)
	if err != nil {
		return Digest{}, err
	}
	copied, err := to.Head(ctx)
	if err != nil {
		return Digest{}, err
	}
	next, stop := iter.Pull2(upTo(ctx, to, copied))
	defer stop()
	source, target := newSum(), newSum()
	for e, err := range upTo(ctx, from, end) {
		if err == nil {
			err = source.add(e)
		}
		if err != nil {
			return Digest{}, err
		}
		progress(e.Position, end)
		there, err, more := next()
		if err == nil && more {
			err = target.add(there)
		}
		if err != nil {
			return Digest{}, err
		}
		if !more || there.ID != e.ID {
			return Digest{}, fmt.Errorf("%w: event %s of stream %s is not in its place", ErrDiffers, e.ID, e.Stream)
		}
		if err := each(e.Position, there.Position); err != nil {
			return Digest{}, err
		}
	}
	if _, err, more := next(); err != nil {
		return Digest{}, err
	} else if more {
		return Digest{}, fmt.Errorf("%w: it has events that the source has not", ErrDiffers)
	}
	if source.digest() != target.digest() {
		return Digest{}, fmt.Errorf("%w: %s, of the source %s", ErrDiffers, target.digest(), source.digest())
	}
	return source.digest(), nil
}

// sum is a Digest in the making.
type sum struct {
	events uint64
	hash   hash.Hash
}

func newSum() *sum { return &sum{hash: sha256.New()} }

// add takes each text with its length before it, so that no two events run into one.
func (s *sum) add(e eventstore.Recorded) error {
	metadata, err := json.Marshal(e.Metadata, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("metadata of event %s: %w", e.ID, err)
	}
	s.events++
	var length [8]byte
	for _, part := range [][]byte{
		[]byte(e.Stream), binary.BigEndian.AppendUint64(nil, uint64(e.Revision)), e.ID.Bytes(), []byte(e.Type),
		[]byte(e.At.Format(time.RFC3339Nano)), e.Data, metadata,
	} {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		s.hash.Write(length[:])
		s.hash.Write(part)
	}
	return nil
}

func (s *sum) digest() Digest {
	return Digest{Events: s.events, Hash: hex.EncodeToString(s.hash.Sum(nil))}
}
