// Package account decides on accounts: the features of their plan, the settings by which captures are read, and the
// revocation of their JWTs. It is pure.
package account

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/currency"
	"golang.org/x/text/language"
	"golang.org/x/text/unicode/norm"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// FeatureAPI is the feature that lets an account capture leads.
const FeatureAPI = "crm_api"

// DefaultRegion is the country of phone numbers without a country code when the account names none.
const DefaultRegion = "IN"

// DefaultStages is the pipeline of an account that names none.
func DefaultStages() []string {
	return []string{"new", "contacted", "qualified", "negotiation", "won", "lost"}
}

// State is a fold of an account's stream. The zero value is an account that is not provisioned.
type State struct {
	Provisioned bool
	Name        string
	Features    []string
	Stages      []string // first to last; never empty once provisioned
	Region      string
	Currency    string   // ISO 4217 code of the values of leads
	RateLimit   *float64 // captures a second; nil is the service's default, 0 no limit
	RateBurst   *int
	// TokensSeeLeads lets answers to API tokens show what earlier arrivals stored.
	TokensSeeLeads bool
	// VisitorDays is how long a visitor whom no lead is linked with is remembered after the last activity.
	VisitorDays int
	// Quarantine keeps captures by the API whose fields are refused.
	Quarantine bool
	// QuarantineDays is how long the body of an arrival is kept.
	QuarantineDays int
	WonStages      []string // those that count as a conversion; never empty once provisioned
	// StoragePerDay is how many bytes may be appended in a day; 0 is no limit.
	StoragePerDay int
	// RetentionDays is how long a lead is kept after its last arrival or change; 0 is without end.
	RetentionDays int
	KeepStages    []string // those whose leads are kept without end
	// UnmaskedInConsole shows personal data in the console without a reveal: maskInConsole is off. An account without
	// settings is masked.
	UnmaskedInConsole bool
	// StorageLowAt is when it was recorded last that little storage is left; zero: never since StoragePerDay was
	// changed.
	StorageLowAt time.Time
	// IgnoredContacts identify no person.
	IgnoredContacts contact.Ignored
	// SharedAfter is how many phones, or emails, of one lead make its emails, or phones, shared; 0 is never.
	SharedAfter int
	// JWTNotBefore revokes the JWTs that were issued earlier. Zero revokes none.
	JWTNotBefore time.Time
	CreatedAt    time.Time
	UpdatedAt    time.Time
}

// Evolve folds one fact into the state.
func Evolve(s State, fact event.Fact) State {
	switch data := fact.Data.(type) {
	case event.AccountConfigured:
		created, lowAt := s.CreatedAt, s.StorageLowAt
		if !s.Provisioned {
			created = fact.At
		}
		if data.StoragePerDayOrDefault() != s.StoragePerDay {
			lowAt = time.Time{}
		}
		s = State{
			Provisioned: true, CreatedAt: created, UpdatedAt: fact.At, Name: data.Name, Features: data.Features,
			Stages: data.Stages, Region: data.Region, Currency: data.Currency, RateLimit: data.RateLimit,
			RateBurst: data.RateBurst, JWTNotBefore: s.JWTNotBefore, TokensSeeLeads: data.TokensSeeLeadsOrDefault(),
			VisitorDays: data.VisitorDaysOrDefault(), Quarantine: data.Quarantine,
			QuarantineDays: data.QuarantineDaysOrDefault(), WonStages: data.WonStagesOrDefault(),
			StoragePerDay: data.StoragePerDayOrDefault(), StorageLowAt: lowAt,
			IgnoredContacts: data.IgnoredContacts, SharedAfter: data.SharedAfterOrDefault(),
			RetentionDays: data.RetentionDays, KeepStages: data.KeepStagesOrDefault(),
			UnmaskedInConsole: !data.MaskInConsoleOrDefault(),
		}
	case event.JWTsRevoked:
		s.JWTNotBefore, s.UpdatedAt = data.NotBefore, fact.At
	case event.StorageLow:
		s.StorageLowAt = fact.At
	}
	return s
}

// SeveralPersons is how many phones, or emails, make a lead look like several persons: SharedAfter, but at least 2. An
// account that shares no contacts has the default.
func (s State) SeveralPersons() int { return max(2, cmp.Or(s.SharedAfter, event.DefaultSharedAfter)) }

// Has reports whether the account's plan has a feature.
func (s State) Has(feature string) bool { return slices.Contains(s.Features, feature) }

// Stage finds a pipeline stage without regard to case, or to how accents are encoded, and returns it as the account
// spells it.
func Stage(stages []string, name string) (string, bool) {
	name = norm.NFC.String(name)
	for _, stage := range stages {
		if strings.EqualFold(norm.NFC.String(stage), name) {
			return stage, true
		}
	}
	return "", false
}

// FoldStage folds a stage's name, so that the names by which Stage finds one stage become one.
func FoldStage(name string) string {
	return strings.ToLower(strings.Map(func(r rune) rune {
		least := r
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			least = min(least, other)
		}
		return least
	}, norm.NFC.String(name)))
}

// MaxSubject is the maximum length of a subject, in characters.
const MaxSubject = 255

// ValidSubject reports whether a text may name a user of an account. The log and the views have it in the actor of
// events, and PostgreSQL cannot store NUL.
func ValidSubject(subject string) bool {
	return subject != "" && utf8.ValidString(subject) && utf8.RuneCountInString(subject) <= MaxSubject &&
		!strings.ContainsFunc(subject, unicode.IsControl)
}

// ValidID reports whether a text may name an account: 1 to 64 of A-Z, a-z, 0-9, _ and -.
func ValidID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	return !strings.ContainsFunc(id, func(r rune) bool {
		return r > unicode.MaxASCII || (!unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '-')
	})
}

// Bounds of an account's settings.
const (
	maxName     = 200 // characters
	maxStages   = 50
	maxStage    = 50 // characters
	maxFeatures = 50

	maxVisitorDays    = 3650
	maxQuarantineDays = 365
	maxStorage        = 1 << 40 // bytes a day

	maxIgnoredContacts = 200
	maxSharedAfter     = 1000

	minRetentionDays = 30
	maxRetentionDays = 3650
)

// MaxRate is the most captures a second, or of a burst, that a limit may be.
const MaxRate = 1_000_000

// Settings are an account's settings. Each configuration replaces all of them.
type Settings struct {
	Name      string
	Features  []string
	Stages    []string // empty: the default ones
	Region    string   // empty: DefaultRegion
	Currency  string   // empty: that of the region
	RateLimit *float64
	RateBurst *int
	// TokensSeeLeads is true when it is nil.
	TokensSeeLeads *bool
	VisitorDays    *int // nil: event.DefaultVisitorDays
	Quarantine     *bool
	QuarantineDays *int     // nil: event.DefaultQuarantineDays
	WonStages      []string // empty: event.DefaultWonStages
	StoragePerDay  *int     // nil: event.DefaultStoragePerDay
	// IgnoredContacts are phones in any form, emails, *@domain and local@*.
	IgnoredContacts []string
	SharedAfter     *int     // nil: event.DefaultSharedAfter
	RetentionDays   *int     // nil: 0
	KeepStages      []string // nil: the won stages
	// MaskInConsole is true when it is nil.
	MaskInConsole *bool
}

// Patched returns settings in which nil and empty texts are replaced by the account's values. Lists that are empty but
// not nil stay empty.
func (s State) Patched(want Settings) Settings {
	if want.Features == nil {
		want.Features = s.Features
	}
	if want.Stages == nil {
		want.Stages = s.Stages
	}
	want.Name, want.Region, want.Currency = cmp.Or(want.Name, s.Name), cmp.Or(want.Region, s.Region),
		cmp.Or(want.Currency, s.Currency)
	want.RateLimit, want.RateBurst = cmp.Or(want.RateLimit, s.RateLimit), cmp.Or(want.RateBurst, s.RateBurst)
	if want.TokensSeeLeads == nil && s.Provisioned && !s.TokensSeeLeads {
		want.TokensSeeLeads = new(false)
	}
	if want.VisitorDays == nil && s.VisitorDays > 0 {
		want.VisitorDays = &s.VisitorDays
	}
	if want.Quarantine == nil && s.Quarantine {
		want.Quarantine = new(true)
	}
	if want.QuarantineDays == nil && s.QuarantineDays > 0 {
		want.QuarantineDays = &s.QuarantineDays
	}
	if want.WonStages == nil {
		want.WonStages = s.WonStages
	}
	if want.StoragePerDay == nil && s.Provisioned {
		want.StoragePerDay = &s.StoragePerDay
	}
	if want.IgnoredContacts == nil {
		want.IgnoredContacts = s.IgnoredContacts
	}
	if want.SharedAfter == nil && s.Provisioned {
		want.SharedAfter = &s.SharedAfter
	}
	if want.RetentionDays == nil && s.RetentionDays > 0 {
		want.RetentionDays = &s.RetentionDays
	}
	if want.KeepStages == nil && !slices.Equal(s.KeepStages, s.WonStages) {
		want.KeepStages = s.KeepStages
	}
	if want.MaskInConsole == nil && s.UnmaskedInConsole {
		want.MaskInConsole = new(false)
	}
	return want
}

// Configure decides on new settings. Invalid ones are returned as field.Errors. knownRegion reports whether phone
// numbers of a region can be read. When nothing changes, the event is nil.
func (s State) Configure(want Settings, knownRegion func(string) bool) (*event.AccountConfigured, error) {
	var wrong field.Errors
	refuse := func(name, message string) { wrong.Add(name, message) }

	name := strings.TrimSpace(want.Name)
	if utf8.RuneCountInString(norm.NFC.String(name)) > maxName {
		refuse("name", "must be at most 200 characters")
	}
	features, ok := distinct(want.Features, false)
	if !ok || len(features) > maxFeatures || slices.ContainsFunc(features, badFeature) {
		refuse("features", "must be at most 50 different names of letters, digits, _ and -")
	}
	stages, ok := distinct(want.Stages, true)
	switch {
	case !ok:
		refuse("stages", "must be different from each other without regard to case")
	case len(stages) > maxStages || slices.ContainsFunc(stages, badStage):
		refuse("stages", "must be at most 50 names of 1 to 50 characters, none of them a control character")
	case len(stages) == 0:
		stages = DefaultStages()
	}
	region := strings.ToUpper(strings.TrimSpace(want.Region))
	if region == "" {
		region = DefaultRegion
	}
	if !knownRegion(region) {
		refuse("region", "must be a two-letter country code such as IN")
	}
	unit, known := currencyOf(want.Currency, region)
	if !known {
		refuse("currency", "must be an ISO 4217 code such as INR")
	}
	if r := want.RateLimit; r != nil && !(*r >= 0 && *r <= MaxRate) {
		refuse("rateLimit", "must be between 0 and 1000000")
	}
	if b := want.RateBurst; b != nil && (*b < 1 || *b > MaxRate) {
		refuse("rateBurst", "must be between 1 and 1000000")
	}
	if d := want.VisitorDays; d != nil && (*d < 1 || *d > maxVisitorDays) {
		refuse("visitorDays", "must be between 1 and 3650")
	}
	if d := want.QuarantineDays; d != nil && (*d < 1 || *d > maxQuarantineDays) {
		refuse("quarantineDays", "must be between 1 and 365")
	}
	if b := want.StoragePerDay; b != nil && (*b < 0 || *b > maxStorage) {
		refuse("storagePerDay", "must be between 0 and 1099511627776 bytes")
	}
	if n := want.SharedAfter; n != nil && (*n < 0 || *n > maxSharedAfter) {
		refuse("sharedAfter", "must be between 0 and 1000")
	}
	ignored, message := ignoredContacts(want.IgnoredContacts, region)
	if message != "" {
		refuse("ignoredContacts", message)
	}
	if d := want.RetentionDays; d != nil && *d != 0 && (*d < minRetentionDays || *d > maxRetentionDays) {
		refuse("retentionDays", "must be 0 or between 30 and 3650")
	}
	wonStages, message := s.wonStages(want.WonStages, stages)
	if message != "" {
		refuse("wonStages", message)
	}
	keepStages, message := s.keepStages(want.KeepStages, stages, wonStages)
	if message != "" {
		refuse("keepStages", message)
	}
	if wrong != nil {
		return nil, wrong
	}
	configured := event.AccountConfigured{
		Name: name, Features: features, Stages: stages, Region: region, Currency: unit,
		RateLimit: want.RateLimit, RateBurst: want.RateBurst,
		TokensSeeLeads: want.TokensSeeLeads, VisitorDays: orZero(want.VisitorDays),
		Quarantine: orZero(want.Quarantine), QuarantineDays: orZero(want.QuarantineDays), WonStages: wonStages,
		StoragePerDay: want.StoragePerDay, IgnoredContacts: ignored, SharedAfter: want.SharedAfter,
		RetentionDays: orZero(want.RetentionDays), KeepStages: keepStages, MaskInConsole: want.MaskInConsole,
	}
	if s.Provisioned && s.is(configured) {
		return nil, nil
	}
	return &configured, nil
}

// currencyOf returns the ISO 4217 code that a setting names. An empty one is the currency of the region, or USD for a
// region without one of its own.
func currencyOf(setting, region string) (code string, known bool) {
	if setting = strings.TrimSpace(setting); setting != "" {
		unit, err := currency.ParseISO(setting)
		return unit.String(), err == nil
	}
	if parsed, err := language.ParseRegion(region); err == nil {
		if unit, ok := currency.FromRegion(parsed); ok {
			return unit.String(), true
		}
	}
	return currency.USD.String(), true
}

// wonStages returns the stages that count as a conversion, as the account spells them, or why they are invalid. A stage
// that was removed from the account may stay, since leads keep it. The default may stay too, because no account has to
// name it.
func (s State) wonStages(want, stages []string) (won []string, wrong string) {
	if len(want) == 0 || slices.Equal(want, event.DefaultWonStages()) {
		return nil, ""
	}
	return spelled(want, stages, s.WonStages)
}

// keepStages returns the stages whose leads are kept, as wonStages does. Nil is the default, the won stages, and an
// empty list is none.
func (s State) keepStages(want, stages, won []string) (keep []string, wrong string) {
	if want == nil {
		return nil, ""
	}
	won = event.AccountConfigured{WonStages: won}.WonStagesOrDefault()
	if keep, wrong = spelled(want, stages, slices.Concat(s.KeepStages, won)); slices.Equal(keep, won) {
		return nil, wrong
	}
	return keep, wrong
}

// spelled returns stages as the account spells them, or has them in a present setting.
func spelled(want, stages, present []string) (found []string, wrong string) {
	want, ok := distinct(want, true)
	if !ok {
		return nil, "must be different from each other without regard to case"
	}
	found = []string{}
	for _, name := range want {
		stage, known := Stage(stages, name)
		if !known {
			stage, known = Stage(present, name)
		}
		if !known {
			return nil, "must be stages of the account"
		}
		found = append(found, stage)
	}
	return found, ""
}

// ignoredContacts returns the entries of the list in their canonical form, each once, or why they are invalid.
func ignoredContacts(want []string, region string) (ignored contact.Ignored, wrong string) {
	for i, raw := range want {
		entry, err := contact.ParseIgnored(raw, region)
		if err != nil {
			return nil, "entry " + strconv.Itoa(i+1) + " " + err.Error()
		}
		if !slices.Contains(ignored, entry) {
			ignored = append(ignored, entry)
		}
		if len(ignored) > maxIgnoredContacts {
			return nil, "must be at most 200"
		}
	}
	return ignored, ""
}

// orZero returns the value of a pointer, or the zero value, the default, for nil.
func orZero[T any](value *T) (v T) {
	if value != nil {
		v = *value
	}
	return v
}

func (s State) is(c event.AccountConfigured) bool {
	return s.Name == c.Name && s.Region == c.Region && s.Currency == c.Currency &&
		slices.Equal(s.Features, c.Features) && slices.Equal(s.Stages, c.Stages) &&
		equal(s.RateLimit, c.RateLimit) && equal(s.RateBurst, c.RateBurst) &&
		s.TokensSeeLeads == c.TokensSeeLeadsOrDefault() && s.VisitorDays == c.VisitorDaysOrDefault() &&
		s.Quarantine == c.Quarantine && s.QuarantineDays == c.QuarantineDaysOrDefault() &&
		slices.Equal(s.WonStages, c.WonStagesOrDefault()) &&
		s.StoragePerDay == c.StoragePerDayOrDefault() &&
		slices.Equal(s.IgnoredContacts, c.IgnoredContacts) && s.SharedAfter == c.SharedAfterOrDefault() &&
		s.RetentionDays == c.RetentionDays && slices.Equal(s.KeepStages, c.KeepStagesOrDefault()) &&
		s.UnmaskedInConsole != c.MaskInConsoleOrDefault()
}

func equal[T comparable](a, b *T) bool {
	return a == b || (a != nil && b != nil && *a == *b)
}

// distinct trims names and reports whether they are all different.
func distinct(names []string, foldCase bool) ([]string, bool) {
	out := make([]string, 0, len(names))
	seen := make(map[string]struct{}, len(names))
	for _, name := range names {
		name = strings.TrimSpace(name)
		key := name
		if foldCase {
			key = strings.Map(foldRune, norm.NFC.String(name))
		}
		if _, twice := seen[key]; twice {
			return nil, false
		}
		seen[key] = struct{}{}
		out = append(out, name)
	}
	return out, true
}

// foldRune returns the same rune for all runes that strings.EqualFold considers equal. ToLower does not: it
// distinguishes σ from ς.
func foldRune(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	return least
}

func badFeature(name string) bool { return !ValidID(name) }

func badStage(name string) bool {
	return name == "" || utf8.RuneCountInString(norm.NFC.String(name)) > maxStage ||
		strings.ContainsFunc(name, unicode.IsControl)
}

// ReportStorageLow decides whether to record that little storage is left: once in a day, by UTC. The event is nil if it
// is recorded already, or there is no limit.
func (s State) ReportStorageLow(now time.Time) *event.StorageLow {
	if s.StoragePerDay == 0 || s.StorageLowAt.UTC().Format(time.DateOnly) == now.UTC().Format(time.DateOnly) {
		return nil
	}
	return &event.StorageLow{StoragePerDay: s.StoragePerDay}
}

// StorageLow reports whether little storage was left in the last 24 hours.
func (s State) StorageLow(now time.Time) bool {
	return !s.StorageLowAt.IsZero() && now.Sub(s.StorageLowAt) < 24*time.Hour
}

// LatestAt is when the latest event of the account's stream happened.
func (s State) LatestAt() time.Time {
	if s.StorageLowAt.After(s.UpdatedAt) {
		return s.StorageLowAt
	}
	return s.UpdatedAt
}

// AdmitsJWT reports whether the account accepts a JWT by its time of issue; zero is a JWT without one.
func (s State) AdmitsJWT(issued time.Time) bool {
	return s.JWTNotBefore.IsZero() || !issued.Before(s.JWTNotBefore)
}

// RevokeJWTs decides that JWTs issued before a time are no longer accepted. The event is nil for the zero time, and for
// the present setting. An earlier time than the present one undoes a part of the revocation. The error is field.Errors
// for a time in the future, which would refuse every JWT until then, and for one before the year 1, which RFC 3339
// cannot write.
func (s State) RevokeJWTs(notBefore, now time.Time) (*event.JWTsRevoked, error) {
	notBefore = notBefore.UTC().Truncate(time.Millisecond)
	if notBefore.IsZero() || notBefore.Equal(s.JWTNotBefore) {
		return nil, nil
	}
	if notBefore.After(now) {
		return nil, field.Errors{{Field: "jwtNotBefore", Message: "must not be in the future"}}
	}
	if notBefore.Before(time.Time{}) {
		return nil, field.Errors{{Field: "jwtNotBefore", Message: "must not be before the year 1"}}
	}
	return &event.JWTsRevoked{NotBefore: notBefore}, nil
}
