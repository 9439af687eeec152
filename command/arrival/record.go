package arrival

import "github.com/leadlog/leadlog/eventstore/event"

// Record is an arrival as answers show it, without its times and what was posted. It has no personal data.
type Record struct {
	ArrivalID string                 `json:"arrivalId"`
	IntakeID  *string                `json:"intakeId"` // null: captured by the API
	TokenID   *string                `json:"tokenId"`  // of the API token; null for intakes and JWTs
	State     string                 `json:"state"`
	Reasons   []event.ArrivalReason  `json:"reasons"`
	Warnings  []event.ArrivalWarning `json:"warnings"`
	LeadID    *string                `json:"leadId"` // that it was captured into, or that it conflicts with
}

// Record returns the record of the arrival.
func (a Arrival) Record() Record {
	return Record{
		ArrivalID: a.ID, IntakeID: orNull(a.IntakeID), TokenID: orNull(a.TokenID), State: a.State,
		Reasons:  append([]event.ArrivalReason{}, a.Reasons...),
		Warnings: append([]event.ArrivalWarning{}, a.Warnings...), LeadID: orNull(a.LeadID),
	}
}

// Quarantine returns the record of an arrival as of when it was quarantined.
func Quarantine(id string, data event.ArrivalQuarantined) Record {
	return Arrival{
		ID: id, IntakeID: data.IntakeID, TokenID: data.TokenID, State: Quarantined, Reasons: data.Reasons,
		Warnings: data.Warnings,
	}.Record()
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
