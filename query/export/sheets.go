package export

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/query"
)

// Events are an account's own events, as its change feed has them.
func Events() Sheet[query.FeedEvent] {
	type item = query.FeedEvent
	return Sheet[item]{"events", []Column[item]{
		Text("id", func(e item) string { return e.ID }),
		Term("type", func(e item) string { return e.Type }),
		Moment("at", func(e item) query.Timestamp { return e.At }),
		Term("actor", func(e item) string { return e.Actor }),
		Text("requestId", func(e item) string { return e.RequestID }),
		Text("stream", func(e item) string { return e.Stream }),
		Integer("revision", func(e item) int64 { return int64(e.Revision) }),
		Integer("position", func(e item) int64 { return int64(e.Position) }),
		Truth("erased", func(e item) bool { return e.Erased }),
		JSON("data", func(e item) string { return string(e.Data) }),
	}}
}

// TokenEvents is the audit trail of tokens.
func TokenEvents() Sheet[query.TokenEvent] {
	type item = query.TokenEvent
	return Sheet[item]{"token-events", []Column[item]{
		Text("id", func(e item) string { return e.ID }),
		Term("tokenId", func(e item) string { return e.TokenID }),
		Term("type", func(e item) string { return e.Type }),
		Integer("position", func(e item) int64 { return int64(e.Position) }),
		Moment("at", func(e item) query.Timestamp { return parsed(e.At) }),
		Term("actor", func(e item) string { return e.Actor }),
		Term("ip", func(e item) string { return e.IP }),
		Term("userAgent", func(e item) string { return e.UserAgent }),
		Text("requestId", func(e item) string { return e.RequestID }),
		JSON("data", func(e item) string { return string(e.Data) }),
		Text("digest", func(e item) string { return e.Digest }),
		Integer("leaf", func(e item) int64 { return e.Leaf }),
		Text("lineHash", func(e item) string { return e.LineHash }),
	}}
}

// parsed reads a time as answers write it.
func parsed(at string) query.Timestamp {
	t, _ := time.Parse(time.RFC3339, at)
	return query.Timestamp(t)
}

// Sources is the source history.
func Sources() Sheet[query.SourceEntry] {
	type item = query.SourceEntry
	return Sheet[item]{"source-history", []Column[item]{
		Text("leadId", func(e item) string { return e.LeadID }),
		Term("source", func(e item) string { return e.Source }),
		Moment("firstSeenAt", func(e item) query.Timestamp { return e.FirstSeenAt }),
		Moment("lastSeenAt", func(e item) query.Timestamp { return e.LastSeenAt }),
		Integer("arrivals", func(e item) int { return e.Arrivals }),
		Term("credentialKind", func(e item) string { return e.Credential.Kind }),
		Term("credentialId", func(e item) string { return e.Credential.ID }),
		Text("ip", func(e item) string { return e.IP }),
		Term("userAgent", func(e item) string { return e.UserAgent }),
		Text("requestId", func(e item) string { return e.RequestID }),
		Texts("changed", func(e item) []string { return e.Changed }),
		JSON("metadata", func(e item) string { return string(e.Metadata) }),
	}}
}

// Touches are arrivals and visits.
func Touches() Sheet[query.Touch] {
	type item = query.Touch
	return Sheet[item]{"touches", []Column[item]{
		Text("touchId", func(t item) string { return t.TouchID }),
		Optional("leadId", func(t item) *string { return t.LeadID }),
		Moment("at", func(t item) query.Timestamp { return t.At }),
		Optional("source", func(t item) *string { return t.Source }),
		Term("kind", func(t item) string { return t.Kind }),
		Optional("utmSource", func(t item) *string { return t.UTMSource }),
		Optional("utmMedium", func(t item) *string { return t.UTMMedium }),
		Optional("utmCampaign", func(t item) *string { return t.UTMCampaign }),
		Optional("utmId", func(t item) *string { return t.UTMID }),
		Optional("utmTerm", func(t item) *string { return t.UTMTerm }),
		Optional("utmContent", func(t item) *string { return t.UTMContent }),
		Object("clickIds", func(t item) map[string]string { return t.ClickIDs }),
		Optional("landingPage", func(t item) *string { return t.LandingPage }),
		Optional("referrer", func(t item) *string { return t.Referrer }),
		Term("credential", func(t item) string { return t.Credential }),
		Optional("intakeId", func(t item) *string { return t.IntakeID }),
		Optional("requestId", func(t item) *string { return t.RequestID }),
		Integer("position", func(t item) int64 { return int64(t.Position) }),
		Truth("erased", func(t item) bool { return t.Erased }),
	}}
}

// Leads are leads as they are now.
func Leads() Sheet[query.Lead] {
	type item = query.Lead
	return Sheet[item]{"leads", []Column[item]{
		Text("leadId", func(l item) string { return l.LeadID }),
		Text("contactUID", func(l item) string { return l.ContactUID }),
		Text("name", func(l item) string { return l.Name }),
		Text("phone", func(l item) string { return l.Phone }),
		Text("email", func(l item) string { return l.Email }),
		Term("status", func(l item) string { return l.Status }),
		Term("leadTemperature", func(l item) string { return l.LeadTemperature }),
		Amount("opportunityValue", func(l item) string {
			if l.OpportunityID == nil {
				return ""
			}
			return string(l.OpportunityValue)
		}),
		Optional("opportunityId", func(l item) *string { return l.OpportunityID }),
		Term("source", func(l item) string { return l.Source }),
		Moment("createdAt", func(l item) query.Timestamp { return l.CreatedAt }),
		Moment("updatedAt", func(l item) query.Timestamp { return l.UpdatedAt }),
		Object("customFields", func(l item) map[string]jsontext.Value { return l.CustomFields }),
	}}
}
