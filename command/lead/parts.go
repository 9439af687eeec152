package lead

import (
	"slices"
	"time"

	"github.com/leadlog/leadlog/eventstore/event"
)

// Parts are what a split can take from a lead.
type Parts struct {
	Arrivals []PartArrival // in the order of the log
	Joined   []string      // ids of leads whose joins can be undone
}

// Related returns the streams of other leads that may have arrivals of a lead with this event.
func Related(data event.Data) (streams []string) {
	switch data := data.(type) {
	case event.LeadJoined:
		for _, id := range data.Joined {
			streams = append(streams, event.LeadStream(id))
		}
		streams = append(streams, event.LeadStream(data.From))
	case event.LeadSplit:
		if data.From != "" {
			streams = append(streams, event.LeadStream(data.From))
		}
	}
	return streams
}

// PartArrival is an arrival that a lead has, also one that came to a lead which is part of it.
type PartArrival struct {
	TouchID string
	At      time.Time
	Source  string
	Phone   string // in E.164
	Email   string
}

// Parts returns what a split can take from the lead. History is as that of Split.
func (s State) Parts(history []event.Fact) (parts Parts) {
	d := newDivision(s, history, Rules{})
	joined := map[string]bool{}
	for i, fact := range history {
		switch data := fact.Data.(type) {
		case event.LeadCreated:
			parts.Arrivals = d.addPart(parts.Arrivals, i, data.LeadFields, data.SeenAt(fact.At), data.Source)
		case event.LeadMerged:
			parts.Arrivals = d.addPart(parts.Arrivals, i, data.LeadFields, data.SeenAt(fact.At), data.Source)
		case event.LeadJoined:
			if event.LeadID(fact.Stream) == s.ID {
				joined[data.From] = !fact.Erased
			}
		}
	}
	parts.Joined = slices.DeleteFunc(slices.Clone(s.Joined), func(id string) bool { return !joined[id] })
	return parts
}

// addPart adds an arrival if the lead has it and its data can be read.
func (d *division) addPart(
	to []PartArrival, i int, fields event.LeadFields, at time.Time, source string,
) []PartArrival {
	fact := d.history[i]
	if id := fact.ID.String(); d.owner[id] == d.of.ID && i > d.base && !fact.Erased {
		to = append(to, PartArrival{TouchID: id, At: at, Source: source, Phone: fields.Phone, Email: fields.Email})
	}
	return to
}
