package schema

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
)

// LeadRow reads rows of views.lead. The JSON of the state leaves out what has a column of its own, and what follows from the
// columns for most leads: that the only phone or email is the current one, and that nothing was updated since the lead was
// created.
type LeadRow struct {
	id, account, temperature, source, phone, email zeronull.Text
	created                                        zeronull.Timestamptz
	state                                          []byte
}

// LeadColumns are the columns that LeadRow reads.
const LeadColumns = `lead_id, account, created_at, temperature, source, phone, email, state`

// Into returns what to scan LeadColumns into, for one row after the other. All of them may be NULL, when there is no lead.
func (r *LeadRow) Into() []any {
	return []any{&r.id, &r.account, &r.created, &r.temperature, &r.source, &r.phone, &r.email, &r.state}
}

// Found reports whether there is a lead.
func (r *LeadRow) Found() bool { return r.state != nil }

// State returns the lead without its sources. What is in the JSON takes precedence over the columns.
func (r *LeadRow) State() (lead.State, error) {
	created := time.Time(r.created).UTC()
	s := lead.State{
		Phase: lead.Live, ID: string(r.id), Account: string(r.account), LeadFields: event.LeadFields{Temperature: string(r.temperature), Phone: string(r.phone), Email: string(r.email)}, Source: string(r.source), CreatedAt: created, UpdatedAt: created,
	}
	if s.Phone != "" {
		s.Phones = []string{s.Phone}
	}
	if s.Email != "" {
		s.Emails = []string{s.Email}
	}
	if err := json.Unmarshal(r.state, &s); err != nil {
		return s, fmt.Errorf("state of a lead: %w", err)
	}
	return s, nil
}
