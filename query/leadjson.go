package query

import (
	"cmp"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/eventstore/event"
)

// MarshalJSONTo writes a lead as Append does.
func (l *Lead) MarshalJSONTo(to *jsontext.Encoder) error {
	return to.WriteValue(l.Append(to.AvailableBuffer()))
}

// Append writes a lead as the library would by the struct's tags, in a fraction of the time: every capture is answered with
// one.
func (l *Lead) Append(buffer []byte) []byte {
	begin := len(buffer)
	w := event.Writer{Buffer: buffer, Raw: true}
	w.Text(`,"leadId":`, l.LeadID)
	w.Text(`,"contactUID":`, l.ContactUID)
	w.Text(`,"name":`, l.Name)
	w.Text(`,"phone":`, l.Phone)
	w.Text(`,"email":`, l.Email)
	w.Text(`,"status":`, l.Status)
	w.Text(`,"leadTemperature":`, l.LeadTemperature)
	w.Buffer = append(append(w.Buffer, `,"opportunityValue":`...), cmp.Or(string(l.OpportunityValue), "null")...)
	if l.OpportunityID == nil {
		w.Buffer = append(w.Buffer, `,"opportunityId":null`...)
	} else {
		w.Text(`,"opportunityId":`, *l.OpportunityID)
	}
	w.Text(`,"source":`, l.Source)
	if l.CustomFields == nil {
		w.Buffer = append(w.Buffer, `,"customFields":{}`...)
	}
	w.Members(`,"customFields":`, l.CustomFields)
	w.Members(`,"metadata":`, l.Metadata)
	w.List(`,"joined":`, l.Joined)
	w.Member(`,"joinedInto":`, l.JoinedInto)
	w.Buffer = l.CreatedAt.append(append(w.Buffer, `,"createdAt":`...))
	w.Buffer = l.UpdatedAt.append(append(w.Buffer, `,"updatedAt":`...))
	return w.Object(begin)
}

func (t Timestamp) append(buffer []byte) []byte {
	if time.Time(t).IsZero() {
		return append(buffer, "null"...)
	}
	return time.Time(t).UTC().AppendFormat(buffer, `"2006-01-02T15:04:05.000Z"`)
}
