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

// LeadRow reads rows of views.lead. The JSON of the state omits values that have a column. It also omits values that
// the columns imply for most leads: that the only phone or email is the current one, and that the lead was not updated
// since it was created.
type LeadRow struct {
	id, account, temperature, source, phone, email string
	created                                        time.Time
	state                                          []byte
}

// LeadColumns are the columns that LeadRow reads.
const LeadColumns = `lead_id, account, created_at, temperature, source, phone, email, state`

// Into returns the scan destinations of LeadColumns. They can be reused for the next row.
func (r *LeadRow) Into() []any {
	return []any{&r.id, &r.account, &r.created, &r.temperature, &r.source, &r.phone, &r.email, &r.state}
}

// State returns the lead without its sources. Values in the JSON take precedence over the columns.
func (r *LeadRow) State() (lead.State, error) {
	created := r.created.UTC()
	s := lead.State{
		Phase: lead.Live, ID: r.id, Account: r.account,
		LeadFields: event.LeadFields{Temperature: r.temperature, Phone: r.phone, Email: r.email}, Source: r.source,
		CreatedAt: created, UpdatedAt: created,
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

// Searched returns the normalized form in which searches compare a text: lower case, NFC.
func Searched(text string) string { return norm.NFC.String(strings.ToLower(text)) }
