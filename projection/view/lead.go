package view

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// Lead is the view of the current leads, with totals of the won ones. A lead that was joined into another has no row.
type Lead struct{}

func (Lead) Name() string { return schema.Lead }

// Version implements Projector. The rows contain lead.State as JSON, so a change of its fields needs a new version.
func (Lead) Version() int     { return 1 }
func (Lead) Tables() []string { return []string{"lead", "won_day", searchTable} }
func (Lead) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.LeadPrefix}}
}

func (v Lead) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
	return v.Prepare(batch)(ctx, tx)
}

// Prepare implements projection.Preparer. A lead whose stream starts in the batch needs no read of the table.
func (Lead) Prepare(batch []projection.Event) projection.Write {
	created := newFold(batch)
	var known []*projection.Event // of other leads
	var gap error
	for i := range batch {
		e := &batch[i]
		if id := event.LeadID(e.Stream); e.Revision == 0 || created.has(id) {
			gap = cmp.Or(gap, created.evolve(id, e))
		} else {
			known = append(known, e)
		}
	}
	fresh := newLeadRows(created.leads)
	return func(ctx context.Context, tx pgx.Tx) error {
		if gap != nil {
			return gap
		}
		if err := fresh.insert(ctx, tx, "lead", leadColumns...); err != nil {
			return err
		}
		if err := indexLate(ctx, tx, created.leads); err != nil {
			return err
		}
		won, err := changeLeads(ctx, tx, known)
		if err != nil {
			return err
		}
		for i := range created.leads {
			if is, counts := worthOf(&created.leads[i]); counts {
				won.add(is, 1)
			}
		}
		return won.save(ctx, tx)
	}
}

// changeLeads applies events of leads that have, or had, rows, and returns the changes of the won totals.
func changeLeads(ctx context.Context, tx pgx.Tx, batch []*projection.Event) (won wins, err error) {
	if len(batch) == 0 {
		return won, nil
	}
	ids := map[string]struct{}{}
	for _, e := range batch {
		ids[event.LeadID(e.Stream)] = struct{}{}
	}
	known, err := findLeads(ctx, tx, slices.Sorted(maps.Keys(ids)))
	if err != nil {
		return won, err
	}
	before := slices.Clone(known.leads)
	for _, e := range batch {
		if err := known.evolve(event.LeadID(e.Stream), e); err != nil {
			return won, err
		}
	}
	if won, err = winsOf(ctx, tx, before, known.leads[:len(before)]); err != nil {
		return won, err
	}
	if err := indexChanged(ctx, tx, before, known.leads[:len(before)]); err != nil {
		return won, err
	}
	var changed, again []lead.State // again: those that a split made leads again
	var gone []string
	for id := range ids {
		switch at := known.index[id]; {
		case known.leads[at].Phase == lead.Live && at < len(before):
			changed = append(changed, known.leads[at])
		case known.leads[at].Phase == lead.Live:
			again = append(again, known.leads[at])
			if is, counts := worthOf(&known.leads[at]); counts {
				won.add(is, 1)
			}
		default:
			gone = append(gone, id)
		}
	}
	// The same order in all transactions prevents deadlocks.
	slices.SortFunc(changed, func(a, b lead.State) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(again, func(a, b lead.State) int { return cmp.Compare(a.ID, b.ID) })
	slices.Sort(gone)
	live := newLeadRows(again)
	if err := live.insert(ctx, tx, "lead", leadColumns...); err != nil {
		return won, err
	}
	if err := indexLate(ctx, tx, again); err != nil {
		return won, err
	}
	if err := updateLeads(ctx, tx, changed); err != nil {
		return won, err
	}
	for _, table := range []string{"lead", searchTable} {
		if err := deleteLeads(ctx, tx, table, gone); err != nil {
			return won, err
		}
	}
	return won, nil
}

// leadFold folds leads, in the order of their first events.
type leadFold struct {
	leads []lead.State
	index map[string]int // by id
}

// newFold allocates memory for the leads whose streams start in a batch.
func newFold(batch []projection.Event) leadFold {
	created := 0
	for i := range batch {
		if batch[i].Revision == 0 {
			created++
		}
	}
	return leadFold{leads: make([]lead.State, 0, created), index: make(map[string]int, created)}
}

func (f *leadFold) has(id string) bool {
	_, has := f.index[id]
	return has
}

func (f *leadFold) add(id string, state lead.State) int {
	f.index[id] = len(f.leads)
	f.leads = append(f.leads, state)
	return f.index[id]
}

func (f *leadFold) evolve(id string, e *projection.Event) error {
	i, met := f.index[id]
	if !met {
		i = f.add(id, lead.State{})
	}
	state := &f.leads[i]
	*state = lead.Evolve(*state, e.Fact())
	// the lead may have had no row, and is all in this event
	if _, split := e.Data.(event.LeadSplit); split && state.Phase == lead.Live {
		state.Revision = int64(e.Revision)
	}
	if state.Phase != lead.Erased && state.Revision != int64(e.Revision) { // an erased lead may have no row
		return fmt.Errorf("lead %s at revision %d: %w", id, e.Revision, errGap)
	}
	state.Sources = nil // sources grow with every arrival, and have a view of their own
	return nil
}

// deleteLeads deletes leads from a table that were erased or joined into another.
func deleteLeads(ctx context.Context, tx pgx.Tx, table string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `DELETE FROM `+pgx.Identifier{table}.Sanitize()+` WHERE lead_id = ANY ($1)`, ids)
	return err
}

func findLeads(ctx context.Context, tx pgx.Tx, ids []string) (leadFold, error) {
	found := leadFold{index: map[string]int{}}
	rows, err := tx.Query(ctx, `SELECT `+schema.LeadColumns+` FROM lead WHERE lead_id = ANY ($1)`, ids)
	if err != nil {
		return found, err
	}
	var row schema.LeadRow
	_, err = pgx.ForEachRow(rows, row.Into(), func() error {
		state, err := row.State()
		found.add(state.ID, state)
		return err
	})
	return found, err
}

// searched returns the text of a lead that searches compare.
func searched(state *lead.State) string {
	return schema.Searched(state.Name + "\n" + state.Phone + "\n" + state.Email)
}

// contactsOf returns how many phones find a lead, or emails, if these are more.
func contactsOf(state *lead.State) int64 { return int64(max(len(state.Phones), len(state.Emails))) }

var leadColumns = []string{
	"lead_id", "account", "created_at", "status", "temperature", "source", "phone", "email", "search", "contacts",
	"state",
}

func newLeadRows(leads []lead.State) rows {
	r := makeRows(len(leads), 500)
	for i := range leads {
		state := &leads[i]
		if state.Phase != lead.Live {
			continue
		}
		r.row(len(leadColumns))
		r.text(state.ID)
		r.text(state.Account)
		r.timestamp(state.CreatedAt)
		r.text(strings.ToLower(state.Status))
		r.text(state.Temperature)
		r.text(state.Source)
		r.text(state.Phone)
		r.text(state.Email)
		r.text(searched(state))
		r.bigint(contactsOf(state))
		r.jsonBy(func(buffer []byte) ([]byte, error) { return appendState(buffer, state) })
	}
	return r
}

func updateLeads(ctx context.Context, tx pgx.Tx, leads []lead.State) error {
	if len(leads) == 0 {
		return nil
	}
	var ids, statuses, temperatures, sources, phones, emails, searches []string
	var contacts []int64
	var states [][]byte
	for i := range leads {
		state := &leads[i]
		ids, statuses, temperatures = append(ids, state.ID), append(statuses, strings.ToLower(state.Status)),
			append(temperatures, state.Temperature)
		phones, emails, searches = append(phones, state.Phone), append(emails, state.Email),
			append(searches, searched(state))
		contacts, sources = append(contacts, contactsOf(state)), append(sources, state.Source)
		encoded, err := appendState(nil, state)
		if err != nil {
			return err
		}
		states = append(states, encoded)
	}
	_, err := tx.Exec(ctx, `
		UPDATE lead SET status = n.status, temperature = n.temperature, phone = n.phone, email = n.email,
		  search = n.search,
		                contacts = n.contacts, state = n.state, source = n.source
		  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::json[],
		    $9::text[])
		       AS n (lead_id, status, temperature, phone, email, search, contacts, state, source)
		 WHERE lead.lead_id = n.lead_id`,
		ids, statuses, temperatures, phones, emails, searches, contacts, states, sources)
	return err
}

// appendState appends the JSON of a live lead: the values that schema.LeadRow does not read from other columns.
func appendState(buffer []byte, s *lead.State) ([]byte, error) {
	rest := *s
	rest.Phase, rest.ID, rest.Account, rest.Temperature, rest.Source, rest.Phone, rest.Email = 0, "", "", "", "", "", ""
	rest.Phones, rest.Emails = besides(s.Phones, s.Phone), besides(s.Emails, s.Email)
	rest.Sources = nil // sources have a view of their own
	if rest.CreatedAt = (time.Time{}); s.UpdatedAt.Equal(s.CreatedAt) {
		rest.UpdatedAt = time.Time{}
	}
	return event.AppendJSON(buffer, &rest)
}

// besides returns the values that are claimed for a lead, or nil if the only one is in the column.
func besides(values []string, column string) []string {
	switch {
	case column == "":
		return values
	case len(values) == 0:
		return []string{}
	case len(values) == 1 && values[0] == column:
		return nil
	}
	return values
}
