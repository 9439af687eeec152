package sealed

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"

	"github.com/leadlog/leadlog/eventstore"
)

// Forensic is a store for the detection of damage. Its subscriptions return an event that cannot be opened as erased;
// the store itself returns ErrDamaged and stops there, because such an event must not be acted on.
type Forensic struct{ *Store }

// Forensic returns the store for the detection of damage.
func (s *Store) Forensic() Forensic { return Forensic{s} }

// Kinds of damage, as predicates. The event is returned as erased, unless it is notSealed.
const (
	notOpened = "does not open: it or its key was changed, or moved here from another stream"
	notSealed = "is not sealed, though earlier events are"
	noContent = "has lost its content: the row of person.content is missing or was changed"
)

// Examine implements eventstore.Examiner. The events have no content, which is compared with its hash.
func (f Forensic) Examine(ctx context.Context, until eventstore.Position) iter.Seq2[eventstore.Examination, error] {
	return func(yield func(eventstore.Examination, error) bool) {
		x := examiner{Store: f.Store}
		for page, err := range eventstore.ReadTo(ctx, f.Store.Store, 0, until, eventstore.Filter{}) {
			examined := eventstore.NewExamination(page)
			if err == nil {
				err = x.examine(ctx, page.Events, examined.Events)
			}
			if !yield(examined, err) || err != nil {
				return
			}
		}
	}
}

// Subscribe implements eventstore.Store.
func (f Forensic) Subscribe(
	ctx context.Context, after eventstore.Position, filter eventstore.Filter,
) iter.Seq2[eventstore.Page, error] {
	return func(yield func(eventstore.Page, error) bool) {
		x := examiner{Store: f.Store}
		for page, err := range f.Store.Store.Subscribe(ctx, after, filter) {
			if err == nil {
				_, err = x.open(ctx, page.Events, make([]eventstore.Examined, len(page.Events)))
			}
			if !yield(page, err) || err != nil {
				return
			}
		}
	}
}

// examiner opens the events of a log in their order.
type examiner struct {
	*Store
	sealed bool // a sealed event was read
	buffer []byte
}

// examine opens events, and notes them and their damage.
func (e *examiner) examine(ctx context.Context, events []eventstore.Recorded, into []eventstore.Examined) error {
	for i, r := range events {
		if !About(r.Stream) || bare(r.Type) {
			continue
		}
		if _, _, sealed := openEnvelope(r.Data, nil); sealed {
			e.sealed = true
		} else if e.sealed {
			into[i].Damage = notSealed
		}
	}
	contents, err := e.open(ctx, events, into)
	if err == nil {
		err = e.checkContents(ctx, contents, events, into)
	}
	for i := range into {
		into[i].Recorded = events[i]
	}
	return err
}

// open opens events in place, or marks them as damaged and erased. It returns the indexes of the events with content.
func (e *examiner) open(
	ctx context.Context, events []eventstore.Recorded, into []eventstore.Examined,
) (contents map[contentRef]int, err error) {
	all, buffer, err := e.unlock(ctx, events, e.buffer[:0])
	e.buffer = buffer
	if err != nil {
		return nil, err
	}
	contents = map[contentRef]int{}
	for _, l := range all {
		hash, err := openWith(l.keys, l.envelope, l.event)
		switch {
		case errors.Is(err, ErrDamaged):
			into[l.index].Damage = notOpened
			l.erase(l.event)
		case err != nil:
			return nil, err
		case hash != nil:
			contents[contentRef{l.event.Stream, l.keyID, string(hash)}] = l.index
		}
	}
	return contents, nil
}

// checkContents notes missing and changed content, unless its key was destroyed since.
func (e *examiner) checkContents(
	ctx context.Context, of map[contentRef]int, events []eventstore.Recorded, into []eventstore.Examined,
) error {
	if len(of) == 0 {
		return nil
	}
	unchanged, err := e.vault.unchanged(ctx, slices.Collect(maps.Keys(of)))
	if err != nil {
		return err
	}
	for ref, i := range of {
		if unchanged[ref] {
			continue
		}
		keys, err := e.vault.find(ctx, []string{ref.stream})
		if err != nil {
			return err
		}
		if events[i] = AsErased(events[i]); hasID(keys[ref.stream], ref.keyID) {
			into[i].Damage = noContent
		}
	}
	return nil
}
