package sealed

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Restoring a backup of the keys brings back the keys of everybody who was forgotten after it was made. Their events can then be
// read again, and nothing shows this, because the views know that they were forgotten. A visitor may have come again since; what
// came later has keys of its own, which stay.

// Returned reports whether there is a key to what any of the streams said before it was forgotten.
func (s *Store) Returned(ctx context.Context, streams ...string) (bool, error) {
	for _, stream := range streams {
		if ids, err := s.returned(ctx, stream); len(ids) > 0 || err != nil {
			return err == nil, err
		}
	}
	return false, nil
}

// Expel destroys such keys.
func (s *Store) Expel(ctx context.Context, streams ...string) error {
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
	kept, err := s.vault.find(ctx, []string{stream})
	if err != nil || len(kept[stream]) == 0 {
		return nil, err
	}
	var since []int64 // the keys of what came after the stream was forgotten last
	for recorded, err := range s.Store.Read(ctx, stream, 0) {
		if err != nil {
			return nil, err
		}
		if bare(recorded.Type) {
			lost, err := lostKeys(recorded)
			if err != nil {
				return nil, err
			}
			for _, k := range kept[stream] {
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
		if sealed && !slices.Contains(since, v.keyID) && slices.ContainsFunc(kept[stream], func(k key) bool { return k.id == v.keyID }) {
			since = append(since, v.keyID)
		}
	}
	return ids, nil
}

// lostKeys are those that a fact is about which is not about all that came before it.
func lostKeys(recorded eventstore.Recorded) ([]string, error) {
	fact, err := recorded.Fact()
	forgotten, _ := fact.Data.(event.VisitorForgotten)
	return forgotten.Keys, err
}

// destroy deletes some keys of a stream for good, and notifies every process that may have them in memory.
func (v *Vault) destroy(ctx context.Context, stream string, ids []int64) error {
	return v.destroyBy(ctx, []string{stream}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM person.key WHERE stream = $1 AND id = ANY ($2)`, stream, ids); err != nil {
			return fmt.Errorf("destroy keys that came back: %w", err)
		}
		return nil
	})
}
