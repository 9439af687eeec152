package view

import (
	"time"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
)

var stateCodec = event.NewCodec[lead.State]()

// appendState writes what schema.LeadRow reads of a live lead besides the columns of its row.
func appendState(buffer []byte, s *lead.State) ([]byte, error) {
	rest := *s
	rest.Phase, rest.ID, rest.Account, rest.Temperature, rest.Source, rest.Phone, rest.Email = 0, "", "", "", "", "", ""
	rest.Phones, rest.Emails = besides(s.Phones, s.Phone), besides(s.Emails, s.Email)
	rest.Sources = nil // they have a view of their own
	if rest.CreatedAt = (time.Time{}); s.UpdatedAt.Equal(s.CreatedAt) {
		rest.UpdatedAt = time.Time{}
	}
	return stateCodec.Append(buffer, &rest)
}

// besides returns the values that find a lead, or nil if that is the one in the column alone.
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
