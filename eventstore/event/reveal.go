package event

// LeadRevealed says that somebody looked at what people told about themselves, where it is masked until asked for. It
// stands on a stream of its own: no lead changes by being looked at.
type LeadRevealed struct {
	LeadID string `json:"leadId,omitzero"` // absent: of many leads, in an export
	What   string `json:"what"`            // lead, or what was exported: leads or sources
}

func (LeadRevealed) EventType() string { return "lead.revealed.v1" }
