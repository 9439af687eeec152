package schema

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/leadlog/leadlog/command/lead"
)

// LeadRow reads rows of views.lead. What has a column of its own is not in the JSON of the state, nor is what follows from
// it for most leads: that the only phone or email is the one that is shown, and that nothing was updated since.
type LeadRow struct {
	id, account, temperature, source, phone, email zeronull.Text
	created                                        zeronull.Timestamptz
	state                                          []byte
}

// LeadColumns are those that LeadRow reads.
const LeadColumns = `lead_id, account, created_at, temperature, source, phone, email, state`

// Into is what to scan LeadColumns into, row after row. All of them may be NULL, where there is no lead.
func (r *LeadRow) Into() []any {
	return []any{&r.id, &r.account, &r.created, &r.temperature, &r.source, &r.phone, &r.email, &r.state}
}

// Found tells whether there is a lead.
func (r *LeadRow) Found() bool { return r.state != nil }

// State is the lead, but for its sources: what the columns say, unless the JSON knows better.
func (r *LeadRow) State() (lead.State, error) {
	created := time.Time(r.created).UTC()
	s := lead.State{
		Phase: lead.Live, ID: string(r.id), Account: string(r.account), Temperature: string(r.temperature), Source: string(r.source),
		Phone: string(r.phone), Email: string(r.email), CreatedAt: created, UpdatedAt: created,
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
