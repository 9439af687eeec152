package projection

import (
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/lead"
)

// appendState writes a state as JSON so that reading it gives the very same one, but for the sources, which are a view of
// their own. It writes what json.Marshal would without fields that are zero, by hand: most of the time of a replay went
// there.
func appendState(buffer []byte, s *lead.State) []byte {
	start := len(buffer)
	e := encoder{buffer}
	e.number(`,"Phase":`, int64(s.Phase))
	e.member(`,"ID":`, s.ID)
	e.number(`,"Revision":`, s.Revision)
	e.member(`,"Account":`, s.Account)
	e.member(`,"ContactUID":`, s.ContactUID)
	e.member(`,"Name":`, s.Name)
	if s.NameDerived {
		e.buffer = append(e.buffer, `,"NameDerived":true`...)
	}
	e.member(`,"Phone":`, s.Phone)
	e.member(`,"Email":`, s.Email)
	e.list(`,"Phones":`, s.Phones)
	e.list(`,"Emails":`, s.Emails)
	e.member(`,"Status":`, s.Status)
	e.member(`,"Temperature":`, s.Temperature)
	e.member(`,"OpportunityID":`, s.OpportunityID)
	e.member(`,"OpportunityValue":`, s.OpportunityValue)
	e.member(`,"Source":`, s.Source)
	e.members(`,"CustomFields":`, s.CustomFields)
	e.members(`,"Metadata":`, s.Metadata)
	e.list(`,"VisitorIDs":`, s.VisitorIDs)
	e.list(`,"Joined":`, s.Joined)
	e.member(`,"JoinedInto":`, s.JoinedInto)
	e.moment(`,"CreatedAt":`, s.CreatedAt)
	e.moment(`,"UpdatedAt":`, s.UpdatedAt)
	if len(e.buffer) == start {
		return append(e.buffer, "{}"...)
	}
	e.buffer[start] = '{' // where the first comma was
	return append(e.buffer, '}')
}

// encoder appends JSON. Members that are zero or nil it leaves out.
type encoder struct{ buffer []byte }

func (e *encoder) member(name, value string) {
	if value != "" {
		e.text(name, value)
	}
}

func (e *encoder) number(name string, value int64) {
	if value != 0 {
		e.buffer = strconv.AppendInt(append(e.buffer, name...), value, 10)
	}
}

func (e *encoder) moment(name string, at time.Time) {
	if !at.IsZero() {
		e.buffer = append(append(e.buffer, name...), '"')
		e.buffer = append(at.AppendFormat(e.buffer, time.RFC3339Nano), '"')
	}
}

func (e *encoder) list(name string, values []string) {
	if values == nil {
		return
	}
	e.buffer = append(append(e.buffer, name...), '[')
	for i, value := range values {
		e.text(separator(i), value)
	}
	e.buffer = append(e.buffer, ']')
}

func (e *encoder) members(name string, of map[string]jsontext.Value) {
	if of == nil {
		return
	}
	e.buffer = append(append(e.buffer, name...), '{')
	var room [16]string // most objects have fewer members
	keys := room[:0]
	for key := range of {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for i, key := range keys {
		e.text(separator(i), key)
		e.buffer = append(append(e.buffer, ':'), of[key]...)
	}
	e.buffer = append(e.buffer, '}')
}

// text appends a name, or whatever comes before, and a text. Most texts are as they are between quotes.
func (e *encoder) text(before, value string) {
	e.buffer = append(e.buffer, before...)
	for i := range len(value) {
		if c := value[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			// One that is not UTF-8 is written with replacements, and none is on the log.
			e.buffer, _ = jsontext.AppendQuote(e.buffer, value)
			return
		}
	}
	e.buffer = append(append(append(e.buffer, '"'), value...), '"')
}

func separator(i int) string {
	if i == 0 {
		return ""
	}
	return ","
}
