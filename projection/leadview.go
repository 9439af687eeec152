package projection

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// LeadView keeps leads as they are now. One that has departed into another is not among them: the log knows it.
type LeadView struct{}

// Name implements Projector.
func (LeadView) Name() string { return schema.Lead }

// Version implements Projector. The rows hold lead.State as JSON: when its fields change, so does this.
func (LeadView) Version() int { return 2 }

// Tables implements Projector.
func (LeadView) Tables() []string { return []string{"lead"} }

// Filter implements Projector.
func (LeadView) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.LeadPrefix}}
}

// errGap says that a fold was not given every event of a stream.
var errGap = errors.New("the view does not have every event before this one")

// Apply implements Projector. A lead whose stream begins in the batch needs no look at what is there.
func (LeadView) Apply(ctx context.Context, tx pgx.Tx, batch []Event) error {
	born, known := map[string]struct{}{}, map[string]struct{}{}
	for _, e := range batch {
		id := event.LeadID(e.Stream)
		if e.Revision == 0 {
			born[id] = struct{}{}
		} else if _, new := born[id]; !new {
			known[id] = struct{}{}
		}
	}
	leads, err := findLeads(ctx, tx, slices.Sorted(maps.Keys(known)))
	if err != nil {
		return err
	}
	for _, e := range batch {
		id := event.LeadID(e.Stream)
		after := lead.Evolve(leads[id], e.Fact())
		if after.Phase != lead.Erased && after.Revision != int64(e.Revision) { // of one that is erased there may be no row
			return fmt.Errorf("lead %s at revision %d: %w", id, e.Revision, errGap)
		}
		after.Sources = nil // they grow with every arrival, and have a view of their own
		leads[id] = after
	}
	if err := insertLeads(ctx, tx, leads, slices.Sorted(maps.Keys(born))); err != nil {
		return err
	}
	var changed, gone []string
	for _, id := range slices.Sorted(maps.Keys(known)) {
		if leads[id].Phase == lead.Live {
			changed = append(changed, id)
		} else {
			gone = append(gone, id)
		}
	}
	if err := updateLeads(ctx, tx, leads, changed); err != nil {
		return err
	}
	return deleteLeads(ctx, tx, "lead", gone)
}

// deleteLeads takes leads out of a table: those that are erased, or part of another one.
func deleteLeads(ctx context.Context, tx pgx.Tx, table string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `DELETE FROM `+pgx.Identifier{table}.Sanitize()+` WHERE lead_id = ANY ($1)`, ids)
	return err
}

func findLeads(ctx context.Context, tx pgx.Tx, ids []string) (map[string]lead.State, error) {
	leads := make(map[string]lead.State, len(ids))
	if len(ids) == 0 {
		return leads, nil
	}
	rows, err := tx.Query(ctx, `SELECT state FROM lead WHERE lead_id = ANY ($1)`, ids)
	if err != nil {
		return nil, err
	}
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

// searched is what a list's search looks through.
func searched(state lead.State) string {
	return strings.ToLower(state.Name + "\n" + state.Phone + "\n" + state.Email)
}

func insertLeads(ctx context.Context, tx pgx.Tx, leads map[string]lead.State, ids []string) error {
	r := makeRows(len(ids), 800)
	for _, id := range ids {
		state := leads[id]
		if state.Phase != lead.Live {
			continue
		}
		r.row(10)
		r.text(id)
		r.text(state.Account)
		r.timestamp(state.CreatedAt)
		r.text(strings.ToLower(state.Status))
		r.text(state.Temperature)
		r.text(state.Source)
		r.text(state.Phone)
		r.text(state.Email)
		r.text(searched(state))
		r.jsonBy(func(buffer []byte) []byte { return appendState(buffer, state) })
	}
	return r.insert(ctx, tx, "lead", "lead_id", "account", "created_at", "status", "temperature", "source", "phone", "email",
		"search", "state")
}

func updateLeads(ctx context.Context, tx pgx.Tx, leads map[string]lead.State, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	var statuses, temperatures, phones, emails, searches []string
	var states [][]byte
	for _, id := range ids {
		state := leads[id]
		statuses, temperatures = append(statuses, strings.ToLower(state.Status)), append(temperatures, state.Temperature)
		phones, emails, searches = append(phones, state.Phone), append(emails, state.Email), append(searches, searched(state))
		states = append(states, appendState(nil, state))
	}
	_, err := tx.Exec(ctx, `
		UPDATE lead SET status = n.status, temperature = n.temperature, phone = n.phone, email = n.email, search = n.search,
		                state = n.state
		  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::json[])
		       AS n (lead_id, status, temperature, phone, email, search, state)
		 WHERE lead.lead_id = n.lead_id`,
		ids, statuses, temperatures, phones, emails, searches, states)
	return err
}
