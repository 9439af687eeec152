package sealed

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Read implements eventstore.Store.
//
// A key is destroyed only after the fact of the erasure is on the stream. So when a key turns out to be missing, the stream is read again
// from that event: a caller that gets an erased event also gets, later, the fact that erased it.
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
	given := recorded.Key
	recorded.Key = nil
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
	if given != nil {
		if err := r.use(*given); err != nil {
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
	hash, err := r.openWith(r.keys, v, recorded)
	if err == nil && hash != nil {
		err = r.openContent(ctx, contentRef{r.stream, v.keyID, string(hash)}, recorded)
	}
	return err
}

// openContent adds the content of an opened event. It sets again if the key was destroyed since. An event whose content is missing or
// changed is returned as erased, so that it can still be deleted; verification reports it.
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
	r.log.Error("the content of an event is missing or changed", slog.String("stream", r.stream), slog.Int64("revision", int64(recorded.Revision)))
	*recorded = AsErased(*recorded)
	recorded.Damaged = r.forensic
	return nil
}

// use adds a key that the wrapped store has read with the events.
func (r *reading) use(given eventstore.Key) error {
	if has(r.keys, given.ID) {
		return nil
	}
	opened, err := r.vault.unseal(given)
	if err == nil {
		r.keys = append(r.keys, openers([]key{opened})...)
		r.cache.add(r.stream, opened, r.version, true)
	}
	return err
}

func has(keys []opener, id int64) bool {
	return slices.ContainsFunc(keys, func(o opener) bool { return o.id == id })
}

// openWith opens an event with one of a stream's keys, and returns the hash of its content, if it has any. If its key is missing, the event
// is erased.
func (s *Store) openWith(keys []opener, v envelope, recorded *eventstore.Recorded) (content []byte, err error) {
	recorded.KeyID = v.keyID
	for i := range keys {
		if keys[i].id != v.keyID {
			continue
		}
		if content, err = v.open(&keys[i], recorded); err == nil {
			return content, nil
		}
		if !s.forensic || !errors.Is(err, ErrDamaged) {
			return nil, err
		}
		recorded.Damaged = true
		break
	}
	v.erase(recorded)
	return nil, nil
}

// keptBuffer is the maximum size in bytes of a subscription's buffer that is reused for the next page.
const keptBuffer = 1 << 20

// Subscribe implements eventstore.Store. The events of a page are opened together, and have no content.
func (s *Store) Subscribe(ctx context.Context, after eventstore.Position, filter eventstore.Filter) iter.Seq2[eventstore.Page, error] {
	return func(yield func(eventstore.Page, error) bool) {
		var buffer []byte
		damage := unsealedEvents{}
		for page, err := range s.Store.Subscribe(ctx, after, filter) {
			if s.forensic {
				damage.mark(page.Events)
			}
			if err == nil {
				buffer, err = s.openAll(ctx, page.Events, buffer[:0])
			}
			if err != nil {
				yield(eventstore.Page{}, err)
				return
			}
			if cap(buffer) > keptBuffer {
				buffer = nil
			}
			if !yield(page, nil) {
				return
			}
		}
	}
}

// ReadRange implements eventstore.RangeReader. The keys of all events are looked up together, and the events have no content.
func (s *Store) ReadRange(ctx context.Context, r eventstore.Range) ([]eventstore.Recorded, eventstore.Position, error) {
	events, reached, err := eventstore.ReadRange(ctx, s.Store, r)
	if err != nil {
		return nil, 0, err
	}
	_, err = s.openAll(ctx, events, nil)
	return events, reached, err
}

// openAll opens events in place. It looks up all keys that are not cached in one step, and does not cache them: a replay reads every stream
// once, and would evict the keys in use. The buffer is for the sealed parts; it is returned for the next batch.
func (s *Store) openAll(ctx context.Context, events []eventstore.Recorded, buffer []byte) ([]byte, error) {
	type locked struct {
		envelope
		event *eventstore.Recorded
	}
	closed, bytes := s.closed(events)
	if len(closed) == 0 { // usual in the process that has appended them
		return buffer, nil
	}
	all := make([]locked, 0, len(closed))
	keysOf := make(map[string][]opener, len(closed))
	var newLeads, others []string // streams whose keys must be looked up
	buffer = slices.Grow(buffer, bytes)
	for _, r := range closed {
		var v envelope
		var sealed bool
		if v, buffer, sealed = openEnvelope(r.Data, buffer); !sealed {
			continue
		}
		all = append(all, locked{v, r})
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
		return buffer, err
	}
	for stream, keys := range found {
		keysOf[stream] = openers(keys)
	}
	contents := map[contentRef]*eventstore.Recorded{}
	for _, l := range all {
		hash, err := s.openWith(keysOf[l.event.Stream], l.envelope, l.event)
		if err != nil {
			return buffer, err
		}
		if hash != nil && s.forensic {
			contents[contentRef{l.event.Stream, l.keyID, string(hash)}] = l.event
		}
	}
	return buffer, s.checkContents(ctx, contents)
}

// checkContents marks events as damaged whose content is missing or changed, unless their key was destroyed since.
func (s *Store) checkContents(ctx context.Context, of map[contentRef]*eventstore.Recorded) error {
	if len(of) == 0 {
		return nil
	}
	unchanged, err := s.vault.unchanged(ctx, slices.Collect(maps.Keys(of)))
	if err != nil {
		return err
	}
	for ref, recorded := range of {
		if unchanged[ref] {
			continue
		}
		keys, err := s.vault.find(ctx, []string{ref.stream})
		if err != nil {
			return err
		}
		*recorded = AsErased(*recorded)
		recorded.Damaged = hasID(keys[ref.stream], ref.keyID)
	}
	return nil
}

// closed returns the events that may have to be opened, and the size of their data. It restores those that this process has appended.
func (s *Store) closed(events []eventstore.Recorded) (closed []*eventstore.Recorded, bytes int) {
	for i := range events {
		r := &events[i]
		if !About(r.Stream) || r.Unsealed.Event != nil && s.restore(r) {
			continue
		}
		closed = append(closed, r)
		bytes += len(r.Data)
	}
	return closed, bytes
}

// restore restores the event that this process appended, if the key that sealed it is still cached. An event that was erased since is
// opened like any other, and found erased, even if its stream has another key now.
func (s *Store) restore(r *eventstore.Recorded) bool {
	before, id := r.Unsealed.Event, r.Unsealed.KeyID
	r.Unsealed = eventstore.Unsealed{}
	if known, ok := s.cache.get(r.Stream); !ok || known.id != id {
		return false
	}
	r.Data, r.Metadata, r.Decoded, r.KeyID = before.Data, before.Metadata, before.Decoded, id
	return true
}

// Forensic returns the same store for the detection of damage. If an event or its key cannot be opened, it returns the event as damaged and
// erased. The store itself returns ErrDamaged and stops there, because such an event must not be acted on. Forensic subscriptions also
// return each event in stored form, and mark an unsealed event after a sealed one as damaged.
func (s *Store) Forensic() *Store {
	forensic := *s
	forensic.forensic = true
	return &forensic
}

// unsealedEvents detects unsealed events after the first sealed one.
type unsealedEvents struct{ sealed bool }

// mark adds the stored form and the damage to events, before they are opened.
func (u *unsealedEvents) mark(events []eventstore.Recorded) {
	for i := range events {
		r := &events[i]
		stored := r.Event
		r.Stored = &stored
		if !About(r.Stream) || bare(r.Type) {
			continue
		}
		_, _, sealed := openEnvelope(r.Data, nil)
		r.Damaged = u.sealed && !sealed
		u.sealed = u.sealed || sealed
	}
}
