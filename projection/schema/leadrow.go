package schema

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/text/unicode/norm"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
)

// LeadRow reads rows of views.lead. The JSON of the state leaves out what has a column of its own, and what follows from the
// columns for most leads: that the only phone or email is the current one, and that nothing was updated since the lead was
// created.
type LeadRow struct {
	id, account, temperature, source, phone, email string
	created                                        time.Time
	state                                          []byte
}

// LeadColumns are the columns that LeadRow reads.
const LeadColumns = `lead_id, account, created_at, temperature, source, phone, email, state`

// Into returns what to scan LeadColumns into, for one row after the other.
func (r *LeadRow) Into() []any {
	return []any{&r.id, &r.account, &r.created, &r.temperature, &r.source, &r.phone, &r.email, &r.state}
}

// State returns the lead without its sources. What is in the JSON takes precedence over the columns.
func (r *LeadRow) State() (lead.State, error) {
	created := r.created.UTC()
	s := lead.State{
		Phase: lead.Live, ID: r.id, Account: r.account, LeadFields: event.LeadFields{Temperature: r.temperature, Phone: r.phone, Email: r.email}, Source: r.source, CreatedAt: created, UpdatedAt: created,
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

// Searched returns a text in the form in which searches compare it: in lower case, with accents in one normal form.
func Searched(text string) string { return norm.NFC.String(strings.ToLower(text)) }
