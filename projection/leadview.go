package projection

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// LeadView keeps leads as they are now.
type LeadView struct{}

// Name implements Projector.
func (LeadView) Name() string { return schema.Lead }

// Version implements Projector. The rows hold lead.State as JSON: when its fields change, so does this.
func (LeadView) Version() int { return 1 }

// Tables implements Projector.
func (LeadView) Tables() []string { return []string{"lead"} }

// Filter implements Projector.
func (LeadView) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.LeadPrefix}}
}

// errGap says that a fold was not given every event of a stream.
var errGap = errors.New("the view does not have every event before this one")

// Apply implements Projector.
func (LeadView) Apply(ctx context.Context, tx pgx.Tx, batch []Event) error {
	ids := map[string]struct{}{}
	for _, e := range batch {
		ids[event.LeadID(e.Stream)] = struct{}{}
	}
	leads, err := findLeads(ctx, tx, slices.Sorted(maps.Keys(ids)))
	if err != nil {
		return err
	}
	for _, e := range batch {
		id := event.LeadID(e.Stream)
		after := lead.Evolve(leads[id], e.Fact())
		if after.Revision != int64(e.Revision) {
			return fmt.Errorf("lead %s at revision %d: %w", id, e.Revision, errGap)
		}
		leads[id] = after
	}
	return saveLeads(ctx, tx, leads)
}

func findLeads(ctx context.Context, tx pgx.Tx, ids []string) (map[string]lead.State, error) {
	rows, err := tx.Query(ctx, `SELECT state FROM lead WHERE lead_id = ANY ($1)`, ids)
	if err != nil {
		return nil, err
	}
	leads := make(map[string]lead.State, len(ids))
	var encoded []byte
	_, err = pgx.ForEachRow(rows, []any{&encoded}, func() error {
		var state lead.State
		if err := json.Unmarshal(encoded, &state); err != nil {
			return fmt.Errorf("state of a lead: %w", err)
		}
		leads[state.ID] = state
		return nil
	})
	return leads, err
}

// encodeState writes a state so that reading it gives the very same one.
func encodeState(state lead.State) ([]byte, error) {
	return json.Marshal(state, json.Deterministic(true), json.FormatNilMapAsNull(true), json.FormatNilSliceAsNull(true),
		jsontext.PreserveRawStrings(true))
}

func saveLeads(ctx context.Context, tx pgx.Tx, leads map[string]lead.State) error {
	var ids, accounts, statuses, temperatures, sources, phones, emails, searches []string
	var created []time.Time
	var states [][]byte
	for _, id := range slices.Sorted(maps.Keys(leads)) {
		state := leads[id]
		if state.Phase != lead.Live {
			continue
		}
		encoded, err := encodeState(state)
		if err != nil {
			return fmt.Errorf("state of lead %s: %w", id, err)
		}
		ids, accounts = append(ids, id), append(accounts, state.Account)
		created = append(created, state.CreatedAt)
		statuses, temperatures = append(statuses, strings.ToLower(state.Status)), append(temperatures, state.Temperature)
		sources, phones, emails = append(sources, state.Source), append(phones, state.Phone), append(emails, state.Email)
		searches = append(searches, strings.ToLower(state.Name+"\n"+state.Phone+"\n"+state.Email))
		states = append(states, encoded)
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO lead (lead_id, account, created_at, status, temperature, source, phone, email, search, state)
		SELECT * FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::text[], $5::text[], $6::text[], $7::text[],
		                     $8::text[], $9::text[], $10::json[])
		    ON CONFLICT (lead_id) DO UPDATE
		   SET status = excluded.status, temperature = excluded.temperature, phone = excluded.phone,
		       email = excluded.email, search = excluded.search, state = excluded.state`,
		ids, accounts, created, statuses, temperatures, sources, phones, emails, searches, states)
	return err
}
