package sealed

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/leadlog/leadlog/eventstore"
)

// Read implements eventstore.Store.
//
// A key is destroyed only after the fact that says so is on the stream. So when a key turns out to be gone, the stream is read
// again: a caller that gets an erased event also gets, further on, the fact that erased it.
func (s *Store) Read(ctx context.Context, stream string, from eventstore.Revision) iter.Seq2[eventstore.Recorded, error] {
	if !About(stream) {
		return s.Store.Read(ctx, stream, from)
	}
	return func(yield func(eventstore.Recorded, error) bool) {
		r := reading{Store: s, stream: stream, from: from}
		for r.again = true; r.again; {
			r.pass(ctx, yield)
		}
	}
}

// Last implements eventstore.Store. When the key turns out to be gone, the event is read again, as Read does it.
func (s *Store) Last(ctx context.Context, stream string) (eventstore.Recorded, error) {
	if !About(stream) {
		return s.Store.Last(ctx, stream)
	}
	r := reading{Store: s, stream: stream}
	for {
		r.again, r.at = false, r.cache.version()
		recorded, err := s.Store.Last(ctx, stream)
		if err == nil && !recorded.ID.IsZero() {
			err = r.open(ctx, &recorded)
		}
		if err != nil || !r.again {
			return recorded, err
		}
	}
}

// reading is one read of a stream.
type reading struct {
	*Store
	stream string
	from   eventstore.Revision
	keys   []opener
	gone   []int64 // ids of keys that are not in the vault
	again  bool
	at     uint64 // version of the key cache before this pass
	sealed []byte // of the event at hand
}

func (r *reading) pass(ctx context.Context, yield func(eventstore.Recorded, error) bool) {
	r.again, r.at = false, r.cache.version()
	for recorded, err := range r.Store.Store.Read(ctx, r.stream, r.from) {
		if err == nil {
			err = r.open(ctx, &recorded)
		}
		if r.again {
			return
		}
		if !yield(recorded, err) || err != nil {
			return
		}
		r.from = recorded.Revision + 1
	}
}

// open opens an event, or returns that the stream has to be read again from there.
func (r *reading) open(ctx context.Context, recorded *eventstore.Recorded) error {
	v, buffer, sealed := openEnvelope(recorded.Data, r.sealed[:0])
	given := recorded.Key
	recorded.Key = nil
	if r.sealed = buffer; !sealed {
		return nil
	}
	if len(r.keys) == 0 {
		if known, ok := r.cache.get(r.stream); ok {
			r.keys = openers([]key{known.key})
			if !known.stored && known.id == v.keyID {
				r.cache.confirm(r.stream, v.keyID)
			}
		}
	}
	if given != nil {
		if err := r.take(*given); err != nil {
			return err
		}
	}
	if !has(r.keys, v.keyID) && !slices.Contains(r.gone, v.keyID) {
		keys, err := r.cache.lookUp(ctx, r.stream)
		if err != nil {
			return err
		}
		if r.keys = openers(keys); !has(r.keys, v.keyID) {
			r.gone, r.again = append(r.gone, v.keyID), true
			return nil
		}
	}
	return r.openWith(r.keys, v, recorded)
}

// take uses a key that was read together with the events.
func (r *reading) take(given eventstore.Key) error {
	if has(r.keys, given.ID) {
		return nil
	}
	opened, err := r.vault.unseal(given)
	if err == nil {
		r.keys = append(r.keys, openers([]key{opened})...)
		r.cache.add(r.stream, opened, r.at, true)
	}
	return err
}

func has(keys []opener, id int64) bool {
	return slices.ContainsFunc(keys, func(o opener) bool { return o.id == id })
}

// openWith opens an event with one of a stream's keys; it is erased when there is none for it.
func (s *Store) openWith(keys []opener, v envelope, recorded *eventstore.Recorded) error {
	for i := range keys {
		if keys[i].id != v.keyID {
			continue
		}
		err := v.open(&keys[i], recorded)
		if s.forensic && errors.Is(err, ErrDamaged) {
			recorded.Damaged = true
			break
		}
		return err
	}
	v.erase(recorded)
	return nil
}
