// Package sealed is a log that can forget a person: a store that wraps another store.
//
// The personal data of each lead and visitor is encrypted with a key of its own, "sealed", before it goes to the log, and opened
// when it is read; callers do not notice. The keys are in a table beside the log. When a person's key is destroyed, their
// personal data is gone, in every copy of the log that was ever made. The sealed part of an event is authenticated together with
// the rest, so that nobody without the key can change either unnoticed.
//
// One table, in personal.go, says which members of which events are personal. Events from before there were keys are read as they
// are.
package sealed

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/leadlog/leadlog/eventstore"
)

// Store seals what goes into the store below, and opens what comes out of it.
type Store struct {
	eventstore.Store // the store below
	vault            *Vault
	beside           bool
	cache            *keyCache
	log              *slog.Logger
	forensic         bool
}

// Wrap returns a store that seals what it appends to the store below. Beside says that the vault is in the database of the log:
// new keys are then stored by the append that first uses them. Otherwise they are stored in the vault before the append, and an
// append that is refused leaves its key there: another process may have read it meanwhile and sealed an event with it. Only
// forgetting a person deletes a key. A key that no event uses opens nothing and is harmless.
func Wrap(below eventstore.Store, vault *Vault, beside bool, log *slog.Logger) *Store {
	return &Store{Store: below, vault: vault, beside: beside, cache: newKeyCache(vault), log: log}
}

// Run listens, until the context ends, for keys that other processes destroy. Without it, a process may remember such a key for
// at most a minute.
func (s *Store) Run(ctx context.Context) { s.cache.listen(ctx, s.log) }

// Destroy deletes the keys of streams for good, and from memory: here at once, in other processes as soon as they are notified.
func (s *Store) Destroy(ctx context.Context, streams ...string) error {
	s.cache.remove(streams...)
	err := s.vault.Destroy(ctx, streams...)
	s.cache.remove(streams...) // what was looked up while it was there
	return err
}

// Held reports whether there is a key that an event of any of the streams is sealed with. Keys that no event uses do not count.
func (s *Store) Held(ctx context.Context, streams ...string) (bool, error) {
	kept, err := s.vault.find(ctx, streams)
	if err != nil {
		return false, err
	}
	for stream, keys := range kept {
		for recorded, err := range s.Store.Read(ctx, stream, 0) {
			if err != nil {
				return false, err
			}
			v, _, sealed := openEnvelope(recorded.Data, nil)
			if sealed && slices.ContainsFunc(keys, func(k key) bool { return k.id == v.keyID }) {
				return true, nil
			}
		}
	}
	return false, nil
}

// Append implements eventstore.Store.
//
// A process may have cached a key that another has just destroyed. A write that expects a revision then meets a conflict with the
// fact that says so. A write that expects nothing would pass, but nobody could read it. So Append looks for the key afterwards and
// returns a conflict, although the event is on the log: the caller appends another event, under a new key.
func (s *Store) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	if err := eventstore.Validate(writes); err != nil {
		return 0, err
	}
	p := sealing{writes: writes, at: s.cache.version()}
	for i, w := range writes {
		if !About(w.Stream) || !slices.ContainsFunc(w.Events, sealable) {
			continue
		}
		if err := p.seal(ctx, s, i); err != nil {
			return 0, err
		}
	}
	if !s.beside && len(p.keys) > 0 {
		if err := s.vault.keep(ctx, p.keys); err != nil {
			return 0, err
		}
	}
	if s.beside { // those who follow the log may see the events before this hears of them
		s.remember(&p, false)
	}
	position, err := s.Store.Append(ctx, p.writes...)
	if err == nil {
		if !s.beside {
			s.remember(&p, true)
		}
		err = s.legible(ctx, p.unsure)
	}
	return position, err
}

// remember takes note of an append's new keys.
func (s *Store) remember(p *sealing, kept bool) {
	for i, k := range p.minted {
		s.cache.add(p.keys[i].Stream, k, p.at, kept)
	}
}

// legible looks for keys that events have just been sealed with, and is a conflict when one is gone.
func (s *Store) legible(ctx context.Context, streams map[string]int64) error {
	for stream, id := range streams {
		keys, err := s.vault.findOf(ctx, stream)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(keys, func(k key) bool { return k.id == id }) {
			s.cache.remove(stream)
			return fmt.Errorf("the key of a stream was destroyed: %w", &eventstore.ConflictError{
				Stream: stream, Expected: eventstore.Any, Actual: eventstore.Any})
		}
	}
	return nil
}

func sealable(e eventstore.Event) bool { return !bare(e.Type) }

// sealing is an append whose events are being sealed.
type sealing struct {
	writes []eventstore.Write
	own    bool              // writes are a copy
	keys   []*eventstore.Key // new ones
	minted []key             // the same, open
	at     uint64            // version of the key cache
	unsure map[string]int64  // by stream, ids of keys that may be gone before the append is made, without a conflict
}

// seal replaces a write by what is stored of it.
func (p *sealing) seal(ctx context.Context, s *Store, i int) error {
	if !p.own {
		p.writes, p.own = slices.Clone(p.writes), true
	}
	w := &p.writes[i]
	news := len(p.keys)
	k, err := p.keyOf(ctx, s, *w)
	if err != nil {
		return err
	}
	if len(p.keys) > news {
		w.Key = p.keys[news]
	}
	if w.Expect == eventstore.Any && (w.Key == nil || !s.beside) {
		if p.unsure == nil {
			p.unsure = map[string]int64{}
		}
		p.unsure[w.Stream] = k.id
	}
	unsealed := w.Events
	w.Events = slices.Clone(w.Events)
	for j, e := range unsealed {
		if sealable(e) {
			if w.Events[j], err = seal(k, w.Stream, e); err != nil {
				return err
			}
			if w.Events[j].Decoded = nil; e.Decoded != nil {
				w.Events[j].Unsealed = eventstore.Unsealed{Event: &unsealed[j], KeyID: k.id}
			}
		}
	}
	return nil
}

// keyOf is the key of a stream, made when there is none: for a new stream without a look.
func (p *sealing) keyOf(ctx context.Context, s *Store, w eventstore.Write) (key, error) {
	if w.Expect != eventstore.NoStream {
		if known, ok := s.cache.get(w.Stream); ok && known.stored {
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
	fresh, kept, err := s.vault.mint(w.Stream)
	if err != nil {
		return key{}, err
	}
	p.keys = append(p.keys, &kept)
	p.minted = append(p.minted, fresh)
	return fresh, nil
}
