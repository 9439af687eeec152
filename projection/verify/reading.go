package verify

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// reading goes over the log once. Of accounts alone it keeps something in memory: how many tokens each has, and how many leaves its tree.
type reading struct {
	tx       pgx.Tx
	most     int
	findings []string
	told     map[string]int // findings, by kind

	last    eventstore.Position
	tokens  map[string]int
	leaves  map[string]int64 // by account
	seen    [][]any
	leaf    [][]any
	claimed [][]any
}

// rowsAtOnce is how many rows go to the database together.
const rowsAtOnce = 5000

// all reads the log up to its end of now.
func (r *reading) all(ctx context.Context, store eventstore.Store, progress func(string, eventstore.Position, eventstore.Position)) error {
	head, err := store.Head(ctx)
	if err != nil || head == 0 {
		return err
	}
	for item, err := range store.Subscribe(ctx, 0, eventstore.Filter{}) {
		if err != nil {
			return err
		}
		if item.Position > head {
			break
		}
		if item.Event == nil {
			progress("log", item.Position, head)
		} else if err := r.note(ctx, *item.Event); err != nil {
			return err
		}
		if item.Position == head {
			break
		}
	}
	if r.last != head {
		r.find("gap", "the log ends at position %d, and its last event is at %d", head, r.last)
	}
	return r.flush(ctx)
}

func (r *reading) find(kind, format string, args ...any) {
	if r.told == nil {
		r.told = map[string]int{}
	}
	if r.told[kind]++; r.told[kind] <= r.most {
		r.findings = append(r.findings, fmt.Sprintf(format, args...))
	}
}

func (r *reading) note(ctx context.Context, e eventstore.Recorded) error {
	if e.Position != r.last+1 {
		r.find("gap", "position %d follows position %d", e.Position, r.last)
	}
	r.last = e.Position
	r.seen = append(r.seen, []any{int64(e.Position), e.Stream, int64(e.Revision)})
	data, err := event.Decode(e.Type, e.Data)
	if err != nil {
		r.find("event", "event at position %d of stream %s is not readable as %s", e.Position, e.Stream, e.Type)
	}
	if err := r.noteLeaf(e, data); err != nil {
		return err
	}
	switch d := data.(type) {
	case event.ClaimTaken:
		r.claimed = append(r.claimed, []any{int64(e.Position), e.Stream, d.Kind, d.Holder})
	case event.ClaimReleased:
		r.claimed = append(r.claimed, []any{int64(e.Position), e.Stream, d.Kind, ""})
	case event.TokenCreated:
		if r.tokens[e.Metadata.Account]++; r.tokens[e.Metadata.Account] > token.MaxPerAccount {
			r.find("token", "account %s has %d tokens from position %d on", e.Metadata.Account, r.tokens[e.Metadata.Account], e.Position)
		}
	case event.TokenDeleted:
		r.tokens[e.Metadata.Account]--
	}
	if len(r.seen) >= rowsAtOnce {
		return r.flush(ctx)
	}
	return nil
}

func (r *reading) flush(ctx context.Context) error {
	if _, err := r.tx.CopyFrom(ctx, pgx.Identifier{"pg_temp", "seen"}, []string{"position", "stream", "revision"}, pgx.CopyFromRows(r.seen)); err != nil {
		return err
	}
	_, err := r.tx.CopyFrom(ctx, pgx.Identifier{"pg_temp", "claimed"}, []string{"position", "stream", "kind", "holder"}, pgx.CopyFromRows(r.claimed))
	r.seen, r.claimed = r.seen[:0], r.claimed[:0]
	if err != nil {
		return err
	}
	return r.flushLeaves(ctx)
}
