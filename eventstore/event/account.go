package event

import (
	"cmp"
	"time"
)

// AccountConfigured has an account's plan and settings. Each event replaces the previous one.
type AccountConfigured struct {
	Name      string   `json:"name,omitzero"`
	Features  []string `json:"features"`
	Stages    []string `json:"stages"`             // of the pipeline, first to last; never empty
	Region    string   `json:"region"`             // ISO 3166 code by which national phone numbers are read
	Currency  string   `json:"currency"`           // ISO 4217 code of the values of leads
	RateLimit *float64 `json:"rateLimit,omitzero"` // captures a second; 0 is no limit, absent the service's default
	RateBurst *int     `json:"rateBurst,omitzero"` // absent: the service's default
	// TokensSeeLeads reports whether the response to an API token shows data stored by earlier arrivals. Absent is
	// true.
	TokensSeeLeads *bool `json:"tokensSeeLeads,omitzero"`
	// VisitorDays is how long a visitor without a lead is kept after the last activity. Zero is DefaultVisitorDays.
	VisitorDays int `json:"visitorDays,omitzero"`
	// Quarantine reports whether API captures with invalid fields are kept for correction.
	Quarantine bool `json:"quarantine,omitzero"`
	// QuarantineDays is how long the body of an arrival is kept. Zero is DefaultQuarantineDays.
	QuarantineDays int `json:"quarantineDays,omitzero"`
	// WonStages are the stages that count as a conversion. Empty is DefaultWonStages.
	WonStages []string `json:"wonStages,omitzero"`
	// StoragePerDay is how many bytes captures, posts to intakes and visitors' activity may append to the log in a day.
	// 0 is no limit, absent DefaultStoragePerDay.
	StoragePerDay *int `json:"storagePerDay,omitzero"`
	// IgnoredContacts are phones and emails that identify no person, in the form of contact.ParseIgnored.
	IgnoredContacts []string `json:"ignoredContacts,omitzero"`
	// SharedAfter is how many phones a lead has whose emails no longer identify it beside another phone, and likewise
	// emails. 0 is never, absent DefaultSharedAfter.
	SharedAfter *int `json:"sharedAfter,omitzero"`
	// RetentionDays is how long a lead is kept after its last arrival or change. Zero is without end.
	RetentionDays int `json:"retentionDays,omitzero"`
	// KeepStages are the stages whose leads are kept without end. Absent is WonStages.
	KeepStages []string `json:"keepStages,omitzero"`
	// MaskInConsole reports whether the console masks personal data until they are revealed. Absent is true.
	MaskInConsole *bool `json:"maskInConsole,omitzero"`
}

// DefaultVisitorDays is a year and a month, so that activity can be compared with that of a year ago.
const DefaultVisitorDays = 395

// DefaultQuarantineDays is how long the body of an arrival is kept by default.
const DefaultQuarantineDays = 30

// DefaultStoragePerDay is how many bytes an account may append in a day by default.
const DefaultStoragePerDay = 1 << 30

// DefaultSharedAfter is more phones than a family or a small office has.
const DefaultSharedAfter = 10

// DefaultWonStages are the stages that count as a conversion by default.
func DefaultWonStages() []string { return []string{"won"} }

// QuarantineDaysOrDefault returns QuarantineDays, or its default.
func (a AccountConfigured) QuarantineDaysOrDefault() int {
	return cmp.Or(a.QuarantineDays, DefaultQuarantineDays)
}

// WonStagesOrDefault returns WonStages, or their default.
func (a AccountConfigured) WonStagesOrDefault() []string {
	if len(a.WonStages) == 0 {
		return DefaultWonStages()
	}
	return a.WonStages
}

// KeepStagesOrDefault returns KeepStages, or their default.
func (a AccountConfigured) KeepStagesOrDefault() []string {
	if a.KeepStages == nil {
		return a.WonStagesOrDefault()
	}
	return a.KeepStages
}

// VisitorDaysOrDefault returns VisitorDays, or its default.
func (a AccountConfigured) VisitorDaysOrDefault() int {
	return cmp.Or(a.VisitorDays, DefaultVisitorDays)
}

// TokensSeeLeadsOrDefault returns TokensSeeLeads, or its default.
func (a AccountConfigured) TokensSeeLeadsOrDefault() bool {
	return a.TokensSeeLeads == nil || *a.TokensSeeLeads
}

// MaskInConsoleOrDefault returns MaskInConsole, or its default.
func (a AccountConfigured) MaskInConsoleOrDefault() bool {
	return a.MaskInConsole == nil || *a.MaskInConsole
}

// StoragePerDayOrDefault returns StoragePerDay, or its default.
func (a AccountConfigured) StoragePerDayOrDefault() int {
	if a.StoragePerDay == nil {
		return DefaultStoragePerDay
	}
	return *a.StoragePerDay
}

// SharedAfterOrDefault returns SharedAfter, or its default.
func (a AccountConfigured) SharedAfterOrDefault() int {
	if a.SharedAfter == nil {
		return DefaultSharedAfter
	}
	return *a.SharedAfter
}

// StorageLow records that an account has used four fifths of its StoragePerDay. It is recorded at most once in a day,
// by UTC.
type StorageLow struct {
	StoragePerDay int `json:"storagePerDay"`
}

// JWTsRevoked records that JWTs of the account which were issued before a time are refused. It is not one of the
// settings, so that a later AccountConfigured does not undo it.
type JWTsRevoked struct {
	NotBefore time.Time `json:"notBefore"` // whole milliseconds, UTC
}

func (JWTsRevoked) EventType() string       { return "account.jwtsrevoked.v1" }
func (AccountConfigured) EventType() string { return "account.configured.v1" }
func (StorageLow) EventType() string        { return "account.storage_low.v1" }
