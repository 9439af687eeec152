package projection

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// LeadSearch is the view that lists search for parts of names, phones and emails. Its trigram index costs more than all other views
// of a capture together, so it has a projector of its own, which may be behind under load.
type LeadSearch struct{}

func (LeadSearch) Name() string     { return schema.LeadSearch }
func (LeadSearch) Version() int     { return 1 }
func (LeadSearch) Tables() []string { return []string{"lead_search"} }
func (LeadSearch) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.LeadPrefix}}
}

// yields implements yielder.
func (LeadSearch) yields() {}

func (v LeadSearch) Apply(ctx context.Context, tx pgx.Tx, batch []Event) error {
	return v.prepare(batch)(ctx, tx)
}

// prepare implements preparer.
func (LeadSearch) prepare(batch []Event) write {
	created, known, gap := foldCreated(batch)
	known = slices.DeleteFunc(known, func(e *Event) bool { return keepsSearchText(e) })
	fresh := newSearchRows(created.leads)
	return func(ctx context.Context, tx pgx.Tx) error {
		if gap != nil {
			return gap
		}
		if err := fresh.insert(ctx, tx, "lead_search", searchColumns...); err != nil {
			return err
		}
		return changeSearchRows(ctx, tx, known)
	}
}

// keepsSearchText reports whether an event leaves the name, phone and email of its lead as they are. An erased event does not.
func keepsSearchText(e *Event) bool {
	if e.Erased {
		return false
	}
	switch data := e.Data.(type) {
	case event.LeadMerged:
		return data.Name+data.Phone+data.Email == ""
	case event.LeadUpdated:
		return data.Name == ""
	}
	return false
}

// changeSearchRows applies events of leads that were created in an earlier batch.
func changeSearchRows(ctx context.Context, tx pgx.Tx, batch []*Event) error {
	if len(batch) == 0 {
		return nil
	}
	ids := map[string]struct{}{}
	for _, e := range batch {
		ids[event.LeadID(e.Stream)] = struct{}{}
	}
	known, err := findSearchRows(ctx, tx, slices.Sorted(maps.Keys(ids)))
	if err != nil {
		return err
	}
	before := slices.Clone(known.leads)
	for _, e := range batch {
		id := event.LeadID(e.Stream)
		if known.has(id) {
			known.leads[known.index[id]].Revision = int64(e.Revision) - 1 // the rows do not have it
		}
		if err := known.evolve(id, e); err != nil {
			return err
		}
	}
	var changed []lead.State
	var gone []string
	for i := range before {
		switch state := known.leads[i]; {
		case state.Phase != lead.Live:
			gone = append(gone, before[i].ID)
		case searchText(&state) != searchText(&before[i]) || state.NameDerived != before[i].NameDerived:
			changed = append(changed, state)
		}
	}
	if err := updateSearchRows(ctx, tx, changed); err != nil {
		return err
	}
	return deleteLeads(ctx, tx, "lead_search", gone)
}

// findSearchRows returns leads with what their rows have. Name, phone and email are as searches compare them.
func findSearchRows(ctx context.Context, tx pgx.Tx, ids []string) (leadFold, error) {
	found := leadFold{index: map[string]int{}}
	rows, err := tx.Query(ctx, `SELECT lead_id, name_derived, search FROM lead_search WHERE lead_id = ANY ($1) ORDER BY lead_id`, ids)
	if err != nil {
		return found, err
	}
	var id, search string
	var derived bool
	_, err = pgx.ForEachRow(rows, []any{&id, &derived, &search}, func() error {
		values := strings.Split(search, "\n")
		if len(values) != 3 {
			return fmt.Errorf("row %s of lead_search has %d lines, not 3", id, len(values))
		}
		found.add(id, lead.State{Phase: lead.Live, ID: id, NameDerived: derived, Name: values[0], Phone: values[1], Email: values[2]})
		return nil
	})
	return found, err
}

// searchText is what searches look through: name, phone and email, a line each.
func searchText(state *lead.State) string {
	return schema.SearchText(state.Name + "\n" + state.Phone + "\n" + state.Email)
}

var searchColumns = []string{"lead_id", "account", "created_at", "name_derived", "search"}

func newSearchRows(leads []lead.State) rows {
	r := makeRows(len(leads), 150)
	for i := range leads {
		state := &leads[i]
		if state.Phase != lead.Live {
			continue
		}
		r.row(len(searchColumns))
		r.text(state.ID)
		r.text(state.Account)
		r.timestamp(state.CreatedAt)
		r.boolean(state.NameDerived)
		r.text(searchText(state))
	}
	return r
}

func updateSearchRows(ctx context.Context, tx pgx.Tx, leads []lead.State) error {
	if len(leads) == 0 {
		return nil
	}
	var ids, texts []string
	var derived []bool
	for i := range leads {
		ids, texts, derived = append(ids, leads[i].ID), append(texts, searchText(&leads[i])), append(derived, leads[i].NameDerived)
	}
	_, err := tx.Exec(ctx, `
		UPDATE lead_search AS s SET name_derived = n.name_derived, search = n.search
		  FROM unnest($1::text[], $2::boolean[], $3::text[]) AS n (lead_id, name_derived, search)
		 WHERE s.lead_id = n.lead_id`, ids, derived, texts)
	return err
}
