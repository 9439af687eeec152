package projection

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/lead"
)

// appendState writes a state as JSON so that reading it gives the very same one. It writes what json.Marshal would, by
// hand: most of the time of a replay went there.
func appendState(buffer []byte, s lead.State) []byte {
	e := encoder{buffer}
	e.buffer = strconv.AppendInt(append(e.buffer, `{"Phase":`...), int64(s.Phase), 10)
	e.text(`,"ID":`, s.ID)
	e.buffer = strconv.AppendInt(append(e.buffer, `,"Revision":`...), s.Revision, 10)
	e.text(`,"Account":`, s.Account)
	e.text(`,"ContactUID":`, s.ContactUID)
	e.text(`,"Name":`, s.Name)
	e.buffer = strconv.AppendBool(append(e.buffer, `,"NameDerived":`...), s.NameDerived)
	e.text(`,"Phone":`, s.Phone)
	e.text(`,"Email":`, s.Email)
	e.list(`,"Phones":`, s.Phones)
	e.list(`,"Emails":`, s.Emails)
	e.text(`,"Status":`, s.Status)
	e.text(`,"Temperature":`, s.Temperature)
	e.text(`,"OpportunityID":`, s.OpportunityID)
	e.text(`,"OpportunityValue":`, s.OpportunityValue)
	e.text(`,"Source":`, s.Source)
	e.sources(`,"Sources":`, s.Sources)
	e.members(`,"CustomFields":`, s.CustomFields)
	e.members(`,"Metadata":`, s.Metadata)
	e.list(`,"VisitorIDs":`, s.VisitorIDs)
	e.moment(`,"CreatedAt":`, s.CreatedAt)
	e.moment(`,"UpdatedAt":`, s.UpdatedAt)
	return append(e.buffer, '}')
}

// encoder appends JSON. What is nil is written as null.
type encoder struct{ buffer []byte }

func (e *encoder) text(name, value string) {
	// A string that is not UTF-8 is written with replacements, and none is on the log.
	e.buffer, _ = jsontext.AppendQuote(append(e.buffer, name...), value)
}

func (e *encoder) moment(name string, at time.Time) {
	e.buffer = append(append(e.buffer, name...), '"')
	e.buffer = append(at.AppendFormat(e.buffer, time.RFC3339Nano), '"')
}

func (e *encoder) list(name string, values []string) {
	e.buffer = append(e.buffer, name...)
	if values == nil {
		e.buffer = append(e.buffer, "null"...)
		return
	}
	e.buffer = append(e.buffer, '[')
	for i, value := range values {
		e.text(separator(i), value)
	}
	e.buffer = append(e.buffer, ']')
}

func (e *encoder) members(name string, of map[string]jsontext.Value) {
	e.buffer = append(e.buffer, name...)
	if of == nil {
		e.buffer = append(e.buffer, "null"...)
		return
	}
	e.buffer = append(e.buffer, '{')
	var room [16]string // most objects have fewer members
	keys := slices.AppendSeq(room[:0], maps.Keys(of))
	slices.Sort(keys)
	for i, key := range keys {
		e.text(separator(i), key)
		e.buffer = append(append(e.buffer, ':'), of[key]...)
	}
	e.buffer = append(e.buffer, '}')
}

func (e *encoder) sources(name string, entries []lead.SourceEntry) {
	e.buffer = append(e.buffer, name...)
	if entries == nil {
		e.buffer = append(e.buffer, "null"...)
		return
	}
	e.buffer = append(e.buffer, '[')
	for i, s := range entries {
		e.text(separator(i)+`{"source":`, s.Source)
		e.moment(`,"firstSeenAt":`, s.FirstSeenAt)
		e.moment(`,"lastSeenAt":`, s.LastSeenAt)
		e.buffer = strconv.AppendInt(append(e.buffer, `,"arrivals":`...), int64(s.Arrivals), 10)
		e.text(`,"credential":`, s.Credential)
		e.members(`,"metadata":`, s.Metadata)
		e.text(`,"ip":`, s.IP)
		e.text(`,"userAgent":`, s.UserAgent)
		e.text(`,"requestId":`, s.RequestID)
		e.list(`,"changed":`, s.Changed)
		e.buffer = append(e.buffer, '}')
	}
	e.buffer = append(e.buffer, ']')
}

func separator(i int) string {
	if i == 0 {
		return ""
	}
	return ","
}
