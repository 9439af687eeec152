package projection

import (
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
)

// appendState writes a state as JSON so that reading it gives the very same one, but for the sources, which are a view of
// their own. It writes what json.Marshal would without fields that are zero, by hand: most of the time of a replay went
// there.
func appendState(buffer []byte, s *lead.State) []byte {
	start := len(buffer)
	w := event.Writer{Buffer: buffer, Raw: true}
	w.Number(`,"Phase":`, int64(s.Phase))
	w.Member(`,"ID":`, s.ID)
	w.Number(`,"Revision":`, s.Revision)
	w.Member(`,"Account":`, s.Account)
	w.Member(`,"ContactUID":`, s.ContactUID)
	w.Member(`,"Name":`, s.Name)
	w.True(`,"NameDerived":`, s.NameDerived)
	w.Member(`,"Phone":`, s.Phone)
	w.Member(`,"Email":`, s.Email)
	w.List(`,"Phones":`, s.Phones)
	w.List(`,"Emails":`, s.Emails)
	w.Member(`,"Status":`, s.Status)
	w.Member(`,"Temperature":`, s.Temperature)
	w.Member(`,"OpportunityID":`, s.OpportunityID)
	w.Member(`,"OpportunityValue":`, s.OpportunityValue)
	w.Member(`,"Source":`, s.Source)
	w.Members(`,"CustomFields":`, s.CustomFields)
	w.Members(`,"Metadata":`, s.Metadata)
	w.List(`,"VisitorIDs":`, s.VisitorIDs)
	w.List(`,"Joined":`, s.Joined)
	w.Member(`,"JoinedInto":`, s.JoinedInto)
	w.Moment(`,"CreatedAt":`, s.CreatedAt)
	w.Moment(`,"UpdatedAt":`, s.UpdatedAt)
	return w.Object(start) // what is not UTF-8 is written with replacements, and none of it is on the log
}
