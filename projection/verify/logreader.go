package verify

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// logReader reads the log once. It keeps in memory the number of tokens and endpoints of each account, the size of its
// tree, and the idempotency keys that still lack their outcome.
type logReader struct {
	tx       pgx.Tx
	limit    int
	seed     maphash.Seed // of the hashes of streams
	sparse   bool
	findings []string
	found    map[string]int // findings, by kind

	last            eventstore.Position
	stored          storedTree                // the stored tree of the log
	trees           map[string]*signedTree    // by account, of those with checkpoints; empty: the tree of the log
	tokens          map[string]int            // live ones, by account
	endpoints       map[string]int            // live ones, by account
	intakes         map[string]int            // live ones, by account, without that of demo data
	demoIntakes     map[string]struct{}       // streams
	brokenEndpoints map[string]error          // why deliveries to an endpoint cannot be signed
	brokenIntakes   map[string]error          // why senders to an intake cannot be authenticated
	leaves          map[string]int64          // number of leaves of each account's tree
	pending         map[string]pendingOutcome // by the claim of the idempotency key
	pendingClaims   map[ulid.ULID]string      // keys of pending, by the id of the outcome
	erased          map[string]erasure        // by lead
	// of erased leads, of leads that were joined into them, and of their visitors
	erasedStreams    map[string]bool
	forgotten        map[string]forgottenVisitor  // by stream
	unreadable       map[string]*unreadableStream // by stream; that of a lead until the lead is erased
	readableArrivals map[string]struct{}          // streams of arrivals whose content can be read
	// accounts of deleted arrivals whose content can still be read, by stream
	restoredArrivals map[string]string

	// Rows of the temporary tables that are not written yet.
	seen, leaf, claimed, lived, joinedInto, joined [][]any
}

// pendingOutcome is an outcome that an idempotency key is bound to and that was not read yet. It usually is one of the
// next events.
type pendingOutcome struct {
	stream string
	id     ulid.ULID
}

// rowsAtOnce is how many rows are written to the database at a time.
const rowsAtOnce = 5000

// all reads the log up to its present end.
func (r *logReader) all(
	ctx context.Context, store eventstore.Store, progress func(done, end eventstore.Position),
) error {
	for _, tree := range r.trees {
		if err := tree.begin(); err != nil {
			return err
		}
	}
	head, err := store.Head(ctx)
	if err != nil || head == 0 {
		return err
	}
	for page, err := range eventstore.Examine(ctx, store, head) {
		if err != nil {
			return err
		}
		for _, e := range page.Events {
			if err := r.note(ctx, e); err != nil {
				return err
			}
		}
		progress(page.Position, head)
	}
	if r.last != head {
		r.find("gap", "the log ends at position %d, and its last event is at %d", head, r.last)
	}
	return r.flush(ctx)
}

func (r *logReader) find(kind, format string, args ...any) {
	if r.found == nil {
		r.found = map[string]int{}
	}
	if r.found[kind]++; r.found[kind] <= r.limit {
		r.findings = append(r.findings, fmt.Sprintf(format, args...))
	}
}

// brokenFindings reports live endpoints whose deliveries cannot be signed, and live intakes whose senders cannot be
// authenticated.
func (r *logReader) brokenFindings() (findings []string) {
	for i, id := range slices.Sorted(maps.Keys(r.brokenIntakes)) {
		if i < r.limit {
			findings = append(findings,
				fmt.Sprintf("arrivals at intake %s cannot be verified: %v", id, r.brokenIntakes[id]))
		}
	}
	for i, id := range slices.Sorted(maps.Keys(r.brokenEndpoints)) {
		if i < r.limit {
			findings = append(findings,
				fmt.Sprintf("deliveries to endpoint %s cannot be signed: %v", id, r.brokenEndpoints[id]))
		}
	}
	return findings
}

// pendingFindings reports idempotency keys whose outcome is missing.
func (r *logReader) pendingFindings() (findings []string) {
	for _, claim := range slices.Sorted(maps.Keys(r.pending)) {
		findings = append(findings,
			fmt.Sprintf("%s: the idempotency key is bound to %s, which does not hold the outcome",
				claim, r.pending[claim].stream))
	}
	return findings[:min(len(findings), r.limit)]
}

func (r *logReader) note(ctx context.Context, e eventstore.Examined) error {
	if e.Position != r.last+1 && !r.sparse {
		r.find("gap", "position %d follows position %d", e.Position, r.last)
	}
	r.last = e.Position
	var at *time.Time // of streams whose times never decrease
	if strings.HasPrefix(e.Stream, event.LeadPrefix) {
		at = &e.At
	}
	r.seen = append(r.seen, []any{
		int64(e.Position), e.Stream, int64(maphash.String(r.seed, e.Stream)), int64(e.Revision), [16]byte(e.ID), at,
	})
	if e.Damage != "" {
		r.find("damage", "event at position %d of stream %s, revision %d, %s", e.Position,
			e.Stream, e.Revision, e.Damage)
	}
	data, err := event.Decode(e.Type, e.Data)
	if err != nil {
		r.find("event", "event at position %d of stream %s is not readable as %s", e.Position, e.Stream, e.Type)
	}
	if err := r.noteInLog(e.Stored); err != nil {
		return err
	}
	if err := r.noteLeaf(e.Recorded, data); err != nil {
		return err
	}
	r.count(e.Recorded, data)
	r.claims(e.Recorded, data)
	r.noteErasure(e, data)
	if len(r.seen) >= rowsAtOnce {
		return r.flush(ctx)
	}
	return nil
}

// count checks the limits of accounts.
func (r *logReader) count(e eventstore.Recorded, data event.Data) {
	account := e.Metadata.Account
	switch data := data.(type) {
	case event.TokenCreated:
		if r.tokens[account]++; r.tokens[account] > token.MaxPerAccount {
			r.find("token", "account %s has %d tokens from position %d on", account, r.tokens[account], e.Position)
		}
	case event.TokenDeleted:
		r.tokens[account]--
	case event.WebhookRegistered:
		if r.endpoints[account]++; r.endpoints[account] > webhook.MaxPerAccount {
			r.find("endpoint", "account %s has %d endpoints from position %d on", account,
				r.endpoints[account], e.Position)
		}
	case event.WebhookDeleted:
		r.endpoints[account]--
		delete(r.brokenEndpoints, event.WebhookID(e.Stream))
	case event.IntakeCreated:
		if data.Demo { // it does not count against the limit
			r.demoIntakes[e.Stream] = struct{}{}
		} else if r.intakes[account]++; r.intakes[account] > intake.MaxPerAccount {
			r.find("intake", "account %s has %d intakes from position %d on", account, r.intakes[account], e.Position)
		}
	case event.IntakeDeleted:
		if _, demo := r.demoIntakes[e.Stream]; !demo {
			r.intakes[account]--
		}
		delete(r.brokenIntakes, event.IntakeID(e.Stream))
	}
}

// claims records the claims, and which holders exist.
func (r *logReader) claims(e eventstore.Recorded, data event.Data) {
	if claim, known := r.pendingClaims[e.ID]; known && r.pending[claim].stream == e.Stream {
		r.resolve(claim)
	}
	switch d := data.(type) {
	case event.ClaimTaken:
		r.claimed = append(r.claimed, []any{int64(e.Position), e.Stream, int64(e.Revision), d.Kind, d.Holder})
	case event.ClaimReleased:
		r.claimed = append(r.claimed, []any{int64(e.Position), e.Stream, int64(e.Revision), d.Kind, ""})
		r.resolve(e.Stream)
	case event.ClaimBound:
		r.resolve(e.Stream)
		if id, err := ulid.ParseStrict(d.EventID); err == nil {
			r.pending[e.Stream], r.pendingClaims[id] = pendingOutcome{d.Stream, id}, e.Stream
		}
	case event.LeadCreated, event.TokenCreated, event.WebhookRegistered, event.IntakeCreated:
		r.lived = append(r.lived, []any{int64(e.Position), e.Stream, true})
	case event.LeadSplit:
		if d.From != "" {
			r.lived = append(r.lived, []any{int64(e.Position), e.Stream, true})
		}
	case event.LeadJoinedInto:
		r.joinedInto = append(r.joinedInto, []any{int64(e.Position), event.LeadID(e.Stream), d.Into})
		r.lived = append(r.lived, []any{int64(e.Position), e.Stream, false})
	case event.LeadJoined:
		r.joined = append(r.joined, []any{int64(e.Position), event.LeadID(e.Stream), d.From})
	case event.TokenDeleted, event.WebhookDeleted, event.IntakeDeleted:
		r.lived = append(r.lived, []any{int64(e.Position), e.Stream, false})
	}
}

func (r *logReader) resolve(claim string) {
	delete(r.pendingClaims, r.pending[claim].id)
	delete(r.pending, claim)
}

func (r *logReader) flush(ctx context.Context) error {
	for _, table := range []struct {
		name    string
		columns []string
		rows    *[][]any
	}{
		{"seen", []string{"position", "stream", "hash", "revision", "event_id", "at"}, &r.seen},
		{"claimed", []string{"position", "stream", "revision", "kind", "holder"}, &r.claimed},
		{"lived", []string{"position", "stream", "lives"}, &r.lived},
		{"joined_into", []string{"position", "lead_id", "into_id"}, &r.joinedInto},
		{"joined", []string{"position", "lead_id", "from_id"}, &r.joined},
	} {
		_, err := r.tx.CopyFrom(ctx, pgx.Identifier{"pg_temp", table.name}, table.columns,
			pgx.CopyFromRows(*table.rows))
		if err != nil {
			return err
		}
		*table.rows = (*table.rows)[:0]
	}
	return r.flushLeaves(ctx)
}
