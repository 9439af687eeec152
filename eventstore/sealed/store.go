// Package sealed is a log that can erase a person: a store that wraps another store.
//
// The personal data of each lead and visitor is encrypted with its own key before an append, and decrypted when it is
// read, transparently for callers. The keys are in a table outside of the log. Once a person's key is destroyed, the
// personal data cannot be read in any copy of the log that was ever made. The encrypted part of an event is
// authenticated together with the rest, so that neither can be changed unnoticed without the key.
//
// Tags of the fields of events say which are personal: event.Class. Events from before there were keys are returned
// unchanged.
package sealed

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Store seals the events that it appends to another store, and opens those that it reads from it.
type Store struct {
	eventstore.Store // the wrapped store
	vault            *Vault
	sameDatabase     bool
	cache            *keyCache
	log              *slog.Logger
}

// Wrap returns a store that seals its appends to the store below. With sameDatabase, the vault is in the log's
// database: the append that first uses a key stores it. Otherwise the key is stored before the append. It is kept if
// the append is refused, because another process may have read it and sealed an event with it. An unused key is
// harmless.
func Wrap(below eventstore.Store, vault *Vault, sameDatabase bool, log *slog.Logger) *Store {
	return &Store{Store: below, vault: vault, sameDatabase: sameDatabase, cache: newKeyCache(vault), log: log}
}

// Run listens for keys that other processes destroy, until the context is done. Without it, a destroyed key stays
// cached for up to a minute.
func (s *Store) Run(ctx context.Context) { s.cache.listen(ctx, s.log) }

// Destroy deletes the keys of streams permanently, and removes them from the caches: here at once, in other processes
// when they are notified.
func (s *Store) Destroy(ctx context.Context, streams ...string) error {
	s.cache.remove(streams...)
	err := s.vault.Destroy(ctx, streams...)
	s.cache.remove(streams...) // a concurrent lookup may have cached them
	return err
}

// Commitments returns the hashes of the keys of streams, by stream. A damaged key has none.
func (s *Store) Commitments(ctx context.Context, streams ...string) (map[string][]string, error) {
	stored, err := s.vault.find(ctx, streams)
	if err != nil {
		return nil, err
	}
	commitments := make(map[string][]string, len(stored))
	for stream, keys := range stored {
		for _, k := range keys {
			if !k.damaged {
				commitments[stream] = append(commitments[stream], Commitment(k.secret))
			}
		}
		slices.Sort(commitments[stream])
	}
	return commitments, nil
}

// HasKeys reports whether any of the streams has a key that seals an event. Unused keys do not count.
func (s *Store) HasKeys(ctx context.Context, streams ...string) (bool, error) {
	stored, err := s.vault.find(ctx, streams)
	if err != nil {
		return false, err
	}
	for stream, keys := range stored {
		for recorded, err := range s.Store.Read(ctx, stream, 0) {
			if err != nil {
				return false, err
			}
			v, _, sealed := openEnvelope(recorded.Data, nil)
			if sealed && hasID(keys, v.keyID) {
				return true, nil
			}
		}
	}
	return false, nil
}

// Returned reports whether any of the streams has a key to events from before it was forgotten, as after the restore of
// a backup of the keys. Only this reveals such keys, because the views know that the person was forgotten. A visitor
// may have returned since; later events have other keys, which do not count.
func (s *Store) Returned(ctx context.Context, streams ...string) (bool, error) {
	for _, stream := range streams {
		if ids, err := s.returned(ctx, stream); len(ids) > 0 || err != nil {
			return err == nil, err
		}
	}
	return false, nil
}

// DestroyReturned destroys the keys that Returned reports.
func (s *Store) DestroyReturned(ctx context.Context, streams ...string) error {
	for _, stream := range streams {
		ids, err := s.returned(ctx, stream)
		if err == nil && len(ids) > 0 {
			err = s.vault.destroy(ctx, stream, ids)
			s.cache.remove(stream)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) returned(ctx context.Context, stream string) (ids []int64, err error) {
	stored, err := s.vault.find(ctx, []string{stream})
	keys := stored[stream]
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	var since []int64 // keys of the events since the stream was last forgotten
	for recorded, err := range s.Store.Read(ctx, stream, 0) {
		if err != nil {
			return nil, err
		}
		if bare(recorded.Type) {
			lost, err := lostKeys(recorded)
			if err != nil {
				return nil, err
			}
			for _, k := range keys {
				if slices.Contains(lost, strconv.FormatInt(k.id, 10)) {
					ids = append(ids, k.id)
				}
			}
			if len(lost) == 0 {
				ids, since = append(ids, since...), nil
			}
			continue
		}
		v, _, sealed := openEnvelope(recorded.Data, nil)
		if sealed && !slices.Contains(since, v.keyID) && hasID(keys, v.keyID) {
			since = append(since, v.keyID)
		}
	}
	return ids, nil
}

// lostKeys returns the keys that a fact names; none if the fact covers all earlier events.
func lostKeys(recorded eventstore.Recorded) ([]string, error) {
	fact, err := recorded.Fact()
	forgotten, _ := fact.Data.(event.VisitorForgotten)
	return forgotten.Keys, err
}

func hasID(keys []key, id int64) bool {
	return slices.ContainsFunc(keys, func(k key) bool { return k.id == id })
}

// Append implements eventstore.Store, except that a write of sealed events must expect something of its stream.
//
// Another process may destroy a key at any time, and then appends the fact of the erasure. Events that were sealed with
// this key come before the fact, which covers them, or their append conflicts with it.
func (s *Store) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	p := sealing{writes: writes, version: s.cache.version()}
	for i, w := range writes {
		if !About(w.Stream) || !slices.ContainsFunc(w.Events, sealable) {
			continue
		}
		if w.Expect == eventstore.Any {
			return 0, fmt.Errorf("%w: sealed events of stream %s without an expectation",
				eventstore.ErrInvalid, w.Stream)
		}
		if err := p.seal(ctx, s, i); err != nil {
			return 0, err
		}
	}
	if err := eventstore.Validate(p.writes); err != nil { // in stored form, without content
		return 0, err
	}
	if !s.sameDatabase && p.cloned {
		if err := s.vault.store(ctx, p.writes); err != nil {
			return 0, err
		}
	}
	s.cacheKeys(&p, false) // the tail of this process may read the events before Append returns
	position, err := s.Store.Append(ctx, p.writes...)
	if err == nil && !s.sameDatabase {
		s.cacheKeys(&p, true)
	}
	return position, err
}

// cacheKeys caches the new keys of an append. For stored see cachedKey.
func (s *Store) cacheKeys(p *sealing, stored bool) {
	for i, k := range p.fresh {
		s.cache.add(p.stored[i].Stream, k, p.version, stored)
	}
}

// startsKey reports whether an event is sealed with a new key of its stream: the earlier keys can be destroyed without
// the later events.
func startsKey(e eventstore.Event) bool { return e.Type == event.LeadSplit{}.EventType() }

// latestKey returns the id of the latest key of a stream, which a new one must exceed.
func (s *Store) latestKey(ctx context.Context, w eventstore.Write) (int64, error) {
	if w.Expect == eventstore.NoStream {
		return math.MinInt64, nil
	}
	keys, err := s.vault.findOf(ctx, w.Stream)
	if err != nil || len(keys) == 0 {
		return math.MinInt64, err
	}
	return keys[len(keys)-1].id, nil
}

// CommitmentsBefore returns the hashes of the keys that DestroyBefore destroys. A damaged key has none.
func (s *Store) CommitmentsBefore(
	ctx context.Context, stream string, before eventstore.Revision,
) (commitments []string, err error) {
	ids, err := s.keysBefore(ctx, stream, before)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	stored, err := s.vault.find(ctx, []string{stream})
	for _, k := range stored[stream] {
		if slices.Contains(ids, k.id) && !k.damaged {
			commitments = append(commitments, Commitment(k.secret))
		}
	}
	slices.Sort(commitments)
	return commitments, err
}

// DestroyBefore destroys the keys of a stream that seal only events before a revision.
func (s *Store) DestroyBefore(ctx context.Context, stream string, before eventstore.Revision) error {
	ids, err := s.keysBefore(ctx, stream, before)
	if err == nil && len(ids) > 0 {
		err = s.vault.destroy(ctx, stream, ids)
		s.cache.remove(stream)
	}
	return err
}

// HasKeysBefore reports whether a stream has a key that DestroyBefore destroys.
func (s *Store) HasKeysBefore(ctx context.Context, stream string, before eventstore.Revision) (bool, error) {
	ids, err := s.keysBefore(ctx, stream, before)
	return len(ids) > 0, err
}

func (s *Store) keysBefore(ctx context.Context, stream string, before eventstore.Revision) (ids []int64, err error) {
	stored, err := s.vault.find(ctx, []string{stream})
	if err != nil || len(stored[stream]) == 0 {
		return nil, err
	}
	used := map[int64]bool{} // by key: whether a later event needs it
	for recorded, err := range s.Store.Read(ctx, stream, 0) {
		if err != nil {
			return nil, err
		}
		if v, _, sealed := openEnvelope(recorded.Data, nil); sealed {
			used[v.keyID] = used[v.keyID] || recorded.Revision >= before
		}
	}
	for id, needed := range used {
		if !needed && hasID(stored[stream], id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// sealable reports whether an event is sealed. One without data is not, and is invalid.
func sealable(e eventstore.Event) bool { return !bare(e.Type) && len(e.Data) > 0 }

// sealing is an append while its events are being sealed.
type sealing struct {
	writes  []eventstore.Write
	cloned  bool              // writes are a copy
	stored  []*eventstore.Key // new keys, in stored form
	fresh   []key             // the same keys, unsealed
	version uint64            // of the key cache
}

// seal replaces a write by its stored form.
func (p *sealing) seal(ctx context.Context, s *Store, i int) error {
	if !p.cloned {
		p.writes, p.cloned = slices.Clone(p.writes), true
	}
	w := &p.writes[i]
	before := len(p.stored)
	k, err := p.keyOf(ctx, s, *w)
	if err != nil {
		return err
	}
	if len(p.stored) > before {
		w.Key = p.stored[before]
	}
	w.Events = slices.Clone(w.Events)
	for j, e := range w.Events {
		if sealable(e) {
			var content *eventstore.Content
			if w.Events[j], content, err = seal(k, w.Stream, eventstore.Revision(w.Expect)+1+eventstore.Revision(j),
				e); err != nil {
				return err
			}
			if content != nil {
				w.Contents = append(w.Contents, *content)
			}
		}
	}
	return nil
}

// keyOf returns the key of a stream. It creates one if there is none, and skips the lookup for a new stream. A
// visitor's stream goes on after the fact of an erasure, so a cached key may be from before the fact. A key that exists
// after the caller has read the stream is not.
func (p *sealing) keyOf(ctx context.Context, s *Store, w eventstore.Write) (key, error) {
	if w.Expect != eventstore.NoStream && !slices.ContainsFunc(w.Events, startsKey) {
		if known, ok := s.cache.get(w.Stream); ok && known.stored && !strings.HasPrefix(w.Stream, event.VisitorPrefix) {
			return known.key, nil
		}
		keys, err := s.cache.lookUp(ctx, w.Stream)
		if err != nil {
			return key{}, err
		}
		if len(keys) > 0 {
			return keys[len(keys)-1], nil
		}
	}
	latest, err := s.latestKey(ctx, w)
	if err != nil {
		return key{}, err
	}
	fresh, stored, err := s.vault.create(w.Stream, latest)
	if err != nil {
		return key{}, err
	}
	p.stored = append(p.stored, &stored)
	p.fresh = append(p.fresh, fresh)
	return fresh, nil
}
