package report

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/command/attribution"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/query"
)

// Cause is an event that changed a row.
type Cause struct {
	ID       ulid.ULID
	Type     string // public name
	Position eventstore.Position
	Lead     string // whose part of the row it changed; empty: of all leads
}

func (c Cause) String() string {
	if c.Lead == "" {
		return fmt.Sprintf("%s %s at position %d", c.Type, c.ID, c.Position)
	}
	return fmt.Sprintf("%s %s at position %d, lead %s", c.Type, c.ID, c.Position, c.Lead)
}

// Change is a row that differs between two reports. Before or After is nil if the report has no such row.
type Change struct {
	Key           string
	Before, After *Row
	Events        []Cause // set by Explain, in the order of the log
}

func (c Change) String() string {
	written := func(r *Row) string {
		if r == nil {
			return "no row"
		}
		text := fmt.Sprintf("touches %d, conversions %s, value %s", r.Touches, r.Conversions, r.Value)
		if r.Cost != "" {
			text += fmt.Sprintf(", cost %s", r.Cost)
		}
		return text
	}
	return fmt.Sprintf("row %q: %s -> %s", c.Key, written(c.Before), written(c.After))
}

// costDiffers reports whether the rows have other costs. That no row is there is a cost of none.
func (c Change) costDiffers() bool {
	cost := func(r *Row) query.Figure {
		if r == nil {
			return query.Unknown
		}
		return r.Cost
	}
	return cost(c.Before) != cost(c.After)
}

// Changes lists the rows that differ, by key.
func Changes(before, after File) (changes []Change) {
	rows := map[string]*Change{}
	for i := range before.Rows {
		rows[before.Rows[i].Key] = &Change{Key: before.Rows[i].Key, Before: &before.Rows[i]}
	}
	for i := range after.Rows {
		key := after.Rows[i].Key
		if rows[key] == nil {
			rows[key] = &Change{Key: key}
		}
		rows[key].After = &after.Rows[i]
	}
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		if c := rows[key]; c.Before == nil || c.After == nil || *c.Before != *c.After {
			changes = append(changes, *c)
		}
	}
	return changes
}

// Comparable returns why the rows of two reports cannot be compared, if so.
func Comparable(before, after File) error {
	switch {
	case before.Account != after.Account:
		return fmt.Errorf("the reports are of two accounts, %s and %s", before.Account, after.Account)
	case before.By != after.By:
		return fmt.Errorf("the reports have rows by %s and by %s", before.By, after.By)
	}
	return nil
}

// Parameters lists the parameters besides asOf in which two reports differ: then rows may differ without any event.
func (f File) Parameters(after File) (differ []string) {
	for _, p := range []struct {
		name          string
		before, after any
	}{
		{"model", f.Model, after.Model}, {"since", shown(f.Since), shown(after.Since)},
		{"until", shown(f.Until), shown(after.Until)},
		{"window", f.Window, after.Window}, {"halfLife", f.HalfLife, after.HalfLife},
		{"visits", f.Visits, after.Visits}, {"cost", f.Cost, after.Cost},
	} {
		if p.before != p.after {
			differ = append(differ, fmt.Sprintf("%s: %v -> %v", p.name, p.before, p.after))
		}
	}
	return differ
}

func (d Duration) String() string { return attribution.FormatDuration(time.Duration(d)) }

func shown(t *Time) string {
	if t == nil {
		return "none"
	}
	text, _ := t.MarshalJSON() // which never fails
	return string(text)
}

// Explain lists the rows that differ in two reports of one account, by one key, with the events behind each: those on
// the log between the two positions, of the leads whose part of the row is another.
func (r Reading) Explain(ctx context.Context, before, after File) ([]Change, error) {
	changes := Changes(before, after)
	if len(changes) == 0 {
		return nil, nil
	}
	var err error
	if before, err = r.locate(ctx, before); err != nil {
		return nil, err
	}
	if after, err = r.locate(ctx, after); err != nil {
		return nil, err
	}
	from, to := before.AsOf, after.AsOf
	if from > to {
		from, to = to, from
	}
	causes := map[string][]Cause{} // by lead
	var costs []Cause
	ledger, _, err := r.fold(ctx, after.Account, attribution.Key(after.By), to, func(
		e *eventstore.Recorded, leads []string,
	) {
		if e.Position <= from {
			return
		}
		cause := Cause{ID: e.ID, Type: event.PublicName(e.Type), Position: e.Position}
		if e.Type == (event.AccountConfigured{}).EventType() {
			causes[""] = append(causes[""], cause)
		}
		if e.Type == (event.SpendSet{}).EventType() {
			costs = append(costs, cause)
		}
		for _, lead := range leads {
			cause.Lead = lead
			causes[lead] = append(causes[lead], cause)
		}
	})
	if err != nil {
		return nil, err
	}
	wonBefore, wonAfter := ledger.Won().AsOf(int64(before.AsOf)), ledger.Won().AsOf(int64(after.AsOf))
	for id, history := range ledger.Leads() {
		was, is := before.part(id, history, wonBefore), after.part(id, history, wonAfter)
		for i := range changes {
			if was[changes[i].Key] != is[changes[i].Key] {
				changes[i].Events = append(changes[i].Events, causes[id]...)
			}
		}
	}
	for i := range changes {
		if !slices.Equal(wonBefore, wonAfter) {
			changes[i].Events = append(changes[i].Events, causes[""]...)
		}
		if changes[i].costDiffers() {
			changes[i].Events = append(changes[i].Events, costs...)
		}
		slices.SortFunc(changes[i].Events, func(a, b Cause) int {
			return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.Lead, b.Lead))
		})
	}
	return changes, nil
}

// part returns the rows of a report for one lead.
func (f File) part(id string, history *attribution.History, won []string) map[string]attribution.Row {
	c, converted := history.Conversion(id, int64(f.AsOf), won, f.Visits)
	if !converted {
		return nil
	}
	report := attribution.NewReport(f.rules())
	report.Add(c)
	part := map[string]attribution.Row{}
	for _, row := range report.Rows() {
		part[row.Key] = row
	}
	return part
}
