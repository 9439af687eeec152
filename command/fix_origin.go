package command

import (
	"cmp"
	"context"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// defaultOrigin begins the names of logs that were given none.
const defaultOrigin = "leadlog-log/"

// FixOrigin records the log's name in its checkpoints, and returns it: the wanted name or, if that is empty, the
// recorded one. Without either it generates a name.
func (h *Handlers) FixOrigin(ctx context.Context, wanted string) (origin string, err error) {
	err = h.transact.Do(ctx, []string{event.OriginStream}, func(ctx context.Context) error {
		fixed, expect, err := LoadOrigin(ctx, h.store)
		if err != nil {
			return err
		}
		if origin = cmp.Or(wanted, fixed, defaultOrigin+strings.ToLower(ulid.Make().String())); origin == fixed {
			return nil
		}
		write, err := h.write(Caller{Actor: "system:serve"}, event.OriginStream, expect, h.timestamp(),
			event.OriginFixed{Origin: origin})
		if err == nil {
			_, err = h.store.Append(ctx, write)
		}
		return err
	})
	return origin, err
}

// LoadOrigin returns the log's name in its checkpoints; empty if the log was never served.
func LoadOrigin(ctx context.Context, store eventstore.Store) (string, eventstore.Expected, error) {
	return eventstore.Load(ctx, store, event.OriginStream, func(_ string, fact event.Fact) string {
		return fact.Data.(event.OriginFixed).Origin
	})
}
