package event

// SpendSet records what days of an account's advertising cost. A row replaces the earlier one of its day and key. An
// event has only rows that changed, each day and key once.
type SpendSet struct {
	Rows []SpendRow `json:"rows"` // never empty
}

// SpendRow is the cost of a day (UTC) and a key.
type SpendRow struct {
	Day string `json:"day"` // YYYY-MM-DD
	SpendKey
	Amount string `json:"amount"` // decimal, in the account's currency
}

// SpendKey is what was paid for, in the terms of touches. At least one member is set.
type SpendKey struct {
	Source      string `json:"source,omitzero"`
	UTMSource   string `json:"utmSource,omitzero"`
	UTMMedium   string `json:"utmMedium,omitzero"`
	UTMCampaign string `json:"utmCampaign,omitzero"`
}

func (SpendSet) EventType() string { return "spend.set.v1" }
