package event

// ClaimTaken says that a holder owns the value that its claim stream stands for.
type ClaimTaken struct {
	Kind   string `json:"kind"`   // phone, email, token-slot, webhook-slot
	Holder string `json:"holder"` // id of a lead, token or endpoint
}

// ClaimReleased says that the value is free again.
type ClaimReleased struct {
	Kind   string `json:"kind"`
	Holder string `json:"holder"` // who had it
}

// EventType names the fact.
func (ClaimTaken) EventType() string { return "claim.taken.v1" }

// EventType names the fact.
func (ClaimReleased) EventType() string { return "claim.released.v1" }
