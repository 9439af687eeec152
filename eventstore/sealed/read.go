package sealed

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"strings"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Read implements eventstore.Store.
//
// A key is destroyed only after the fact of the erasure is on the stream. So when a key turns out to be missing, the
// stream is read again from that event: a caller that gets an erased event also gets, later, the fact that erased it.
func (s *Store) Read(
	ctx context.Context, stream string, from eventstore.Revision,
) iter.Seq2[eventstore.Recorded, error] {
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

// Last implements eventstore.Store. Like Read, it reads the event again if its key turns out to be missing.
func (s *Store) Last(ctx context.Context, stream string) (eventstore.Recorded, error) {
	if !About(stream) {
		return s.Store.Last(ctx, stream)
	}
	r := reading{Store: s, stream: stream}
	for {
		r.again, r.version = false, r.cache.version()
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
	stream  string
	from    eventstore.Revision
	keys    []opener
	gone    []int64 // ids of keys that are not in the vault
	again   bool
	version uint64 // of the key cache, before this pass
	buffer  []byte // for the sealed part of an event
}

func (r *reading) pass(ctx context.Context, yield func(eventstore.Recorded, error) bool) {
	r.again, r.version = false, r.cache.version()
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

// open opens an event. It sets again if the stream must be read again from this event.
func (r *reading) open(ctx context.Context, recorded *eventstore.Recorded) error {
	v, buffer, sealed := openEnvelope(recorded.Data, r.buffer[:0])
	if r.buffer = buffer; !sealed {
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
	hash, err := openWith(r.keys, v, recorded)
	if err == nil && hash != nil {
		err = r.openContent(ctx, contentRef{r.stream, v.keyID, string(hash)}, recorded)
	}
	return err
}

// openContent adds the content of an opened event. It sets again if the key was destroyed since. An event whose content
// is missing or changed is returned as erased, so that it can still be deleted; verification reports it.
func (r *reading) openContent(ctx context.Context, of contentRef, recorded *eventstore.Recorded) error {
	sealed, err := r.vault.content(ctx, of)
	if err != nil {
		return err
	}
	if sealed != nil {
		i := slices.IndexFunc(r.keys, func(o opener) bool { return o.id == of.keyID })
		if openContent(&r.keys[i], []byte(of.hash), sealed, recorded) {
			return nil
		}
	} else {
		r.cache.remove(r.stream)
		keys, err := r.cache.lookUp(ctx, r.stream)
		if err != nil {
			return err
		}
		if r.keys = openers(keys); !has(r.keys, of.keyID) {
			r.gone, r.again = append(r.gone, of.keyID), true
			return nil
		}
	}
	r.log.Error("the content of an event is missing or changed", slog.String("stream", r.stream),
		slog.Int64("revision", int64(recorded.Revision)))
	*recorded = AsErased(*recorded)
	return nil
}

func has(keys []opener, id int64) bool {
	return slices.ContainsFunc(keys, func(o opener) bool { return o.id == id })
}

// openWith opens an event with one of a stream's keys, and returns the hash of its content, if it has any. If its key
// is missing, the event is erased.
func openWith(keys []opener, v envelope, recorded *eventstore.Recorded) (content []byte, err error) {
	recorded.KeyID = v.keyID
	for i := range keys {
		if keys[i].id == v.keyID {
			_, content, err = v.open(&keys[i], recorded)
			return content, err
		}
	}
	v.erase(recorded)
	return nil, nil
}

// OpenWithNonce opens a lead's event that was read in stored form, and also returns the nonce of its commitment. The
// nonce is nil for an event that is not sealed, or whose key is destroyed.
func (s *Store) OpenWithNonce(
	ctx context.Context, stored eventstore.Recorded,
) (opened eventstore.Recorded, nonce []byte, err error) {
	v, _, isSealed := openEnvelope(stored.Data, nil)
	if !isSealed || !About(stored.Stream) {
		return stored, nil, nil
	}
	keys, err := s.vault.find(ctx, []string{stored.Stream})
	if err != nil {
		return stored, nil, err
	}
	for _, k := range keys[stored.Stream] {
		if k.id == v.keyID {
			nonce, _, err = v.open(&opener{key: k}, &stored)
			return stored, nonce, err
		}
	}
	v.erase(&stored)
	return stored, nil, nil
}

// maxIdleBuffer is the maximum size in bytes of a subscription's buffer that is reused for the next page.
const maxIdleBuffer = 1 << 20

// Subscribe implements eventstore.Store. The events of a page are opened together, and have no content.
func (s *Store) Subscribe(
	ctx context.Context, after eventstore.Position, filter eventstore.Filter,
) iter.Seq2[eventstore.Page, error] {
	return func(yield func(eventstore.Page, error) bool) {
		var buffer []byte
		for page, err := range s.Store.Subscribe(ctx, after, filter) {
			if err == nil {
				buffer, err = s.openAll(ctx, page.Events, buffer[:0])
			}
			if err != nil {
				yield(eventstore.Page{}, err)
				return
			}
			if cap(buffer) > maxIdleBuffer {
				buffer = nil
			}
			if !yield(page, nil) {
				return
			}
		}
	}
}

// ReadRange implements eventstore.RangeReader. The keys of all events are looked up together, and the events have no
// content.
func (s *Store) ReadRange(ctx context.Context, r eventstore.Range) ([]eventstore.Recorded, eventstore.Position, error) {
	events, reached, err := eventstore.ReadRange(ctx, s.Store, r)
	if err != nil {
		return nil, 0, err
	}
	_, err = s.openAll(ctx, events, nil)
	return events, reached, err
}

// Below implements eventstore.Sealing.
func (s *Store) Below() eventstore.Store { return s.Store }

// Open implements eventstore.Sealing.
func (s *Store) Open(ctx context.Context, events []eventstore.Recorded) error {
	_, err := s.openAll(ctx, events, nil)
	return err
}

// openAll opens events in place, and returns the buffer for the next batch. The first error ends it.
func (s *Store) openAll(ctx context.Context, events []eventstore.Recorded, buffer []byte) ([]byte, error) {
	all, buffer, err := s.unlock(ctx, events, buffer)
	for _, l := range all {
		if err == nil {
			_, err = openWith(l.keys, l.envelope, l.event)
		}
	}
	return buffer, err
}

// locked is a sealed event with the keys of its stream.
type locked struct {
	envelope
	event *eventstore.Recorded
	index int // of the event
	keys  []opener
}

// unlock finds the keys of events. It looks up all keys that are not cached in one step, and does not cache them: a
// replay reads every stream once, and would evict the keys in use. The sealed parts are in the buffer.
func (s *Store) unlock(
	ctx context.Context, events []eventstore.Recorded, buffer []byte,
) (all []locked, _ []byte, err error) {
	keysOf := make(map[string][]opener, len(events))
	var newLeads, others []string // streams whose keys must be looked up
	for i := range events {
		r := &events[i]
		if !About(r.Stream) {
			continue
		}
		var v envelope
		var sealed bool
		if v, buffer, sealed = openEnvelope(r.Data, buffer); !sealed {
			continue
		}
		all = append(all, locked{envelope: v, event: r, index: i})
		keys, seen := keysOf[r.Stream]
		if !seen {
			if known, ok := s.cache.get(r.Stream); ok {
				keys = openers([]key{known.key})
			}
			keysOf[r.Stream] = keys
		}
		switch {
		case has(keys, v.keyID), seen && len(keys) == 0: // in the second case a lookup is already queued
		case r.Revision == 0 && strings.HasPrefix(r.Stream, event.LeadPrefix):
			newLeads = append(newLeads, r.Stream)
		default:
			others = append(others, r.Stream)
		}
	}
	found, err := s.vault.findMany(ctx, newLeads, others)
	if err != nil {
		return nil, buffer, err
	}
	for stream, keys := range found {
		keysOf[stream] = openers(keys)
	}
	for i := range all {
		all[i].keys = keysOf[all[i].event.Stream]
	}
	return all, buffer, nil
}
