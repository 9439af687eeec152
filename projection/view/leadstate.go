package view

import (
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
)

// appendState writes a live lead as the JSON that schema.LeadRow makes it of, together with the columns of its row: so a
// row is half as long. It writes what json.Marshal would without fields that are zero, by hand: most of the time of a replay
// went there.
func appendState(buffer []byte, s *lead.State) []byte {
	start := len(buffer)
	w := event.Writer{Buffer: buffer, Raw: true}
	w.Number(`,"Revision":`, s.Revision)
	w.Member(`,"ContactUID":`, s.ContactUID)
	w.Member(`,"Name":`, s.Name)
	w.True(`,"NameDerived":`, s.NameDerived)
	appendKnown(&w, `,"Phones":`, s.Phones, s.Phone)
	appendKnown(&w, `,"Emails":`, s.Emails, s.Email)
	w.Member(`,"Status":`, s.Status)
	w.Member(`,"OpportunityID":`, s.OpportunityID)
	w.Member(`,"OpportunityValue":`, s.OpportunityValue)
	w.Members(`,"CustomFields":`, s.CustomFields)
	w.Members(`,"Metadata":`, s.Metadata)
	w.List(`,"VisitorIDs":`, s.VisitorIDs)
	w.List(`,"Joined":`, s.Joined)
	w.Member(`,"JoinedInto":`, s.JoinedInto)
	if !s.UpdatedAt.Equal(s.CreatedAt) {
		w.Moment(`,"UpdatedAt":`, s.UpdatedAt)
	}
	return w.Object(start) // what is not UTF-8 is written with replacements, and none of it is on the log
}

// appendKnown writes the values that find a lead, unless it has the one that is shown and no other.
func appendKnown(w *event.Writer, name string, values []string, shown string) {
	switch {
	case shown == "" || len(values) > 1:
		w.List(name, values)
	case len(values) == 0:
		w.List(name, []string{})
	case values[0] != shown:
		w.List(name, values)
	}
}
