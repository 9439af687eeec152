package event

// The most frequent facts, and the metadata of every event, are written by hand, with the bytes that json.Marshal would write.

// written is a fact that writes itself. A pointer to a writer would move it to the heap, since nobody knows who writes.
type written interface {
	write(Writer) Writer
	sizeHint() int // bytes that most take
}

func (LeadCreated) sizeHint() int { return 512 }
func (LeadMerged) sizeHint() int  { return 512 }
func (ClaimTaken) sizeHint() int  { return 64 }

func (d LeadCreated) write(w Writer) Writer {
	w.Text(`,"contactUID":`, d.ContactUID)
	w.Text(`,"name":`, d.Name)
	w.True(`,"nameDerived":`, d.NameDerived)
	w.Member(`,"phone":`, d.Phone)
	w.Member(`,"email":`, d.Email)
	w.Text(`,"status":`, d.Status)
	w.Text(`,"leadTemperature":`, d.Temperature)
	w.Member(`,"opportunityId":`, d.OpportunityID)
	w.Member(`,"opportunityValue":`, d.OpportunityValue)
	w.Text(`,"source":`, d.Source)
	w.Members(`,"customFields":`, d.CustomFields)
	w.Members(`,"metadata":`, d.Metadata)
	w.Member(`,"ip":`, d.IP)
	w.Member(`,"userAgent":`, d.UserAgent)
	w.Member(`,"visitorId":`, d.VisitorID)
	w.List(`,"changed":`, d.Changed)
	return w
}

func (d LeadMerged) write(w Writer) Writer {
	w.Text(`,"source":`, d.Source)
	w.True(`,"newSource":`, d.NewSource)
	w.Member(`,"name":`, d.Name)
	w.Member(`,"phone":`, d.Phone)
	w.Member(`,"email":`, d.Email)
	w.Member(`,"emailHeldBy":`, d.EmailHeldBy)
	w.Member(`,"status":`, d.Status)
	w.Member(`,"leadTemperature":`, d.Temperature)
	w.Member(`,"opportunityId":`, d.OpportunityID)
	w.Member(`,"opportunityValue":`, d.OpportunityValue)
	w.Members(`,"customFields":`, d.CustomFields)
	w.Members(`,"metadata":`, d.Metadata)
	w.Member(`,"ip":`, d.IP)
	w.Member(`,"userAgent":`, d.UserAgent)
	w.Member(`,"visitorId":`, d.VisitorID)
	w.List(`,"changed":`, d.Changed)
	return w
}

func (d ClaimTaken) write(w Writer) Writer {
	w.Text(`,"kind":`, d.Kind)
	w.Text(`,"holder":`, d.Holder)
	return w
}

// Encode returns the metadata as it is stored.
func (m *Metadata) Encode() ([]byte, error) {
	w := Writer{Buffer: make([]byte, 0, 288)}
	w.Member(`,"account":`, m.Account)
	w.Member(`,"actor":`, m.Actor)
	w.Member(`,"credential":`, m.Credential)
	w.Member(`,"requestId":`, m.RequestID)
	w.Member(`,"causation":`, m.Causation)
	w.Member(`,"correlation":`, m.Correlation)
	w.Member(`,"traceParent":`, m.TraceParent)
	w.Member(`,"ip":`, m.IP)
	w.Member(`,"userAgent":`, m.UserAgent)
	w.Member(`,"line":`, m.Line)
	return w.Object(0), w.Err
}
