package export

import (
	"math"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/query"
)

// Events are an account's own events, as its change feed has them.
func Events() Sheet[query.FeedEvent] {
	type item = query.FeedEvent
	return Sheet[item]{"events", []Column[item]{
		Text("id", func(e item) string { return e.ID }),
		Category("type", func(e item) string { return e.Type }),
		Time("at", func(e item) query.Timestamp { return e.At }),
		Category("actor", func(e item) string { return e.Actor }),
		Text("requestId", func(e item) string { return e.RequestID }),
		Text("stream", func(e item) string { return e.Stream }),
		Integer("revision", func(e item) int64 { return int64(e.Revision) }),
		Integer("position", func(e item) int64 { return int64(e.Position) }),
		Bool("erased", func(e item) bool { return e.Erased }),
		JSON("data", func(e item) string { return string(e.Data) }),
	}}
}

// TokenEvents is the audit trail of tokens.
func TokenEvents() Sheet[query.TokenEvent] {
	type item = query.TokenEvent
	return Sheet[item]{"token-events", []Column[item]{
		Text("id", func(e item) string { return e.ID }),
		Category("tokenId", func(e item) string { return e.TokenID }),
		Category("type", func(e item) string { return e.Type }),
		Integer("position", func(e item) int64 { return int64(e.Position) }),
		Time("at", func(e item) query.Timestamp { return parsed(e.At) }),
		Category("actor", func(e item) string { return e.Actor }),
		Category("ip", func(e item) string { return e.IP }),
		Category("userAgent", func(e item) string { return e.UserAgent }),
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
		Category("source", func(e item) string { return e.Source }),
		Time("firstSeenAt", func(e item) query.Timestamp { return e.FirstSeenAt }),
		Time("lastSeenAt", func(e item) query.Timestamp { return e.LastSeenAt }),
		Integer("arrivals", func(e item) int { return e.Arrivals }),
		Category("credentialKind", func(e item) string { return e.Credential.Kind }),
		Category("credentialId", func(e item) string { return e.Credential.ID }),
		Text("ip", func(e item) string { return e.IP }),
		Category("userAgent", func(e item) string { return e.UserAgent }),
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
		Time("at", func(t item) query.Timestamp { return t.At }),
		Optional("source", func(t item) *string { return t.Source }),
		Category("kind", func(t item) string { return t.Kind }),
		Optional("utmSource", func(t item) *string { return t.UTMSource }),
		Optional("utmMedium", func(t item) *string { return t.UTMMedium }),
		Optional("utmCampaign", func(t item) *string { return t.UTMCampaign }),
		Optional("utmId", func(t item) *string { return t.UTMID }),
		Optional("utmTerm", func(t item) *string { return t.UTMTerm }),
		Optional("utmContent", func(t item) *string { return t.UTMContent }),
		Object("clickIds", func(t item) map[string]string { return t.ClickIDs }),
		Optional("landingPage", func(t item) *string { return t.LandingPage }),
		Optional("referrer", func(t item) *string { return t.Referrer }),
		Category("credential", func(t item) string { return t.Credential }),
		Optional("intakeId", func(t item) *string { return t.IntakeID }),
		Optional("requestId", func(t item) *string { return t.RequestID }),
		Integer("position", func(t item) int64 { return int64(t.Position) }),
		Bool("erased", func(t item) bool { return t.Erased }),
	}}
}

// Spend is what days of advertising cost.
func Spend() Sheet[query.Spend] {
	type item = query.Spend
	return Sheet[item]{"spend", []Column[item]{
		Category("day", func(s item) string { return s.Day }),
		Category("source", func(s item) string { return s.Key.Source }),
		Category("utmSource", func(s item) string { return s.Key.UTMSource }),
		Category("utmMedium", func(s item) string { return s.Key.UTMMedium }),
		Text("utmCampaign", func(s item) string { return s.Key.UTMCampaign }),
		Text("amount", func(s item) string { return s.Amount }),
		Time("setAt", func(s item) query.Timestamp { return s.SetAt }),
		Integer("position", func(s item) int64 { return int64(s.Position) }),
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
		Category("status", func(l item) string { return l.Status }),
		Category("leadTemperature", func(l item) string { return l.LeadTemperature }),
		Amount("opportunityValue", func(l item) string {
			if l.OpportunityID == nil {
				return ""
			}
			return string(l.OpportunityValue)
		}),
		Optional("opportunityId", func(l item) *string { return l.OpportunityID }),
		Category("source", func(l item) string { return l.Source }),
		Time("createdAt", func(l item) query.Timestamp { return l.CreatedAt }),
		Time("updatedAt", func(l item) query.Timestamp { return l.UpdatedAt }),
		Object("customFields", func(l item) map[string]jsontext.Value { return l.CustomFields }),
		Object("consents", func(l item) map[string]jsontext.Value {
			consents := make(map[string]jsontext.Value, len(l.Consents))
			for purpose, granted := range l.Consents {
				consents[purpose] = jsontext.Value(strconv.FormatBool(granted))
			}
			return consents
		}),
	}}
}

// Report has the outcomes of arrivals by interval and source.
func Report() Sheet[query.SourceCount] {
	type item = query.SourceCount
	return Sheet[item]{"sources", []Column[item]{
		Time("from", func(c item) query.Timestamp { return c.From }),
		Category("source", func(c item) string { return c.Source }),
		Integer("created", func(c item) int { return c.Created }),
		Integer("merged", func(c item) int { return c.Merged }),
		Integer("refused", func(c item) int { return c.Refused }),
		Integer("won", func(c item) int { return c.Won }),
		Amount("value", func(c item) string { return string(c.Value) }),
	}}
}

// Attribution has the rows of an attribution report.
func Attribution() Sheet[query.AttributionRow] {
	type item = query.AttributionRow
	return Sheet[item]{"attribution", []Column[item]{
		Category("key", func(r item) string { return r.Key }),
		Integer("touches", func(r item) int64 { return r.Touches }),
		Decimal("conversions", 6, func(r item) string { return r.Conversions }),
		Amount("value", func(r item) string { return r.Value }),
		Amount("cost", func(r item) string { return known(r.Cost) }),
		Amount("costPerConversion", func(r item) string { return known(r.CostPerConversion) }),
		Decimal("returnOnCost", 4, func(r item) string { return known(r.ReturnOnCost) }),
	}}
}

// known is a figure, or empty.
func known(f query.Figure) string {
	if f == query.Unknown {
		return ""
	}
	return string(f)
}

// Tokens are API tokens, without their values.
func Tokens() Sheet[query.Token] {
	type item = query.Token
	return Sheet[item]{"tokens", []Column[item]{
		Text("tokenId", func(t item) string { return t.TokenID }),
		Text("name", func(t item) string { return t.Name }),
		Text("prefix", func(t item) string { return t.Prefix }),
		Category("status", func(t item) string { return t.Status }),
		Time("expiresAt", func(t item) query.Timestamp { return t.ExpiresAt }),
		Time("createdAt", func(t item) query.Timestamp { return t.CreatedAt }),
		Text("createdBy", func(t item) string { return t.CreatedBy }),
		Time("rotatedAt", func(t item) query.Timestamp { return t.RotatedAt }),
		Time("deletedAt", func(t item) query.Timestamp { return t.DeletedAt }),
		Time("lastUsedAt", func(t item) query.Timestamp { return t.LastUsedAt }),
	}}
}

// Trail has the audit records: changes, and accesses to personal data.
func Trail() Sheet[query.TrailRecord] {
	type item = query.TrailRecord
	return Sheet[item]{"audit", []Column[item]{
		Text("id", func(r item) string { return r.ID }),
		Category("type", func(r item) string { return r.Type }),
		Time("at", func(r item) query.Timestamp { return r.At }),
		Category("actor", func(r item) string { return r.Actor }),
		Text("subject", func(r item) string { return r.Subject }),
		Category("ip", func(r item) string { return r.IP }),
		Category("userAgent", func(r item) string { return r.UserAgent }),
		Text("requestId", func(r item) string { return r.RequestID }),
		JSON("data", func(r item) string { return string(r.Data) }),
	}}
}

// Endpoints are webhook endpoints and how they do.
func Endpoints() Sheet[query.Endpoint] {
	type item = query.Endpoint
	return Sheet[item]{"endpoints", []Column[item]{
		Text("webhookId", func(e item) string { return e.WebhookID }),
		Text("url", func(e item) string { return e.URL }),
		Texts("events", func(e item) []string { return e.Events }),
		Text("description", func(e item) string { return e.Description }),
		Text("filter", func(e item) string { return e.Filter }),
		Category("ordering", func(e item) string { return e.Ordering }),
		Amount("rateLimit", func(e item) string {
			return strconv.FormatFloat(math.Round(e.RateLimit*1e4)/1e4, 'f', -1, 64)
		}),
		Category("state", func(e item) string { return e.State }),
		Optional("disabledReason", func(e item) *string { return e.DisabledReason }),
		Time("disabledAt", func(e item) query.Timestamp { return e.DisabledAt }),
		Time("createdAt", func(e item) query.Timestamp { return e.CreatedAt }),
		Time("lastSuccessAt", func(e item) query.Timestamp { return e.LastSuccessAt }),
		Time("lastFailureAt", func(e item) query.Timestamp { return e.LastFailureAt }),
		Time("failingSince", func(e item) query.Timestamp { return e.FailingSince }),
		Integer("filtered", func(e item) int64 { return e.Filtered }),
		Integer("filterFailed", func(e item) int64 { return e.FilterFailed }),
		Integer("queued", func(e item) int { return e.Queued }),
	}}
}

// Deliveries are an endpoint's deliveries. Their attempts are in the JSON lines.
func Deliveries() Sheet[query.Delivery] {
	type item = query.Delivery
	return Sheet[item]{"deliveries", []Column[item]{
		Text("deliveryId", func(d item) string { return d.DeliveryID }),
		Category("webhookId", func(d item) string { return d.WebhookID }),
		Text("eventId", func(d item) string { return d.EventID }),
		Category("type", func(d item) string { return d.Type }),
		Category("state", func(d item) string { return d.State }),
		Time("createdAt", func(d item) query.Timestamp { return d.CreatedAt }),
		Time("finishedAt", func(d item) query.Timestamp { return d.FinishedAt }),
		Time("nextAttemptAt", func(d item) query.Timestamp { return d.NextAttemptAt }),
		Integer("attempts", func(d item) int { return len(d.Attempts) }),
		Bool("gaveWay", func(d item) bool { return d.GaveWay }),
	}}
}

// Projections are how far read models are. Replays are in the JSON lines.
func Projections() Sheet[query.Projection] {
	type item = query.Projection
	return Sheet[item]{"projections", []Column[item]{
		Text("name", func(p item) string { return p.Name }),
		Integer("version", func(p item) int { return p.Version }),
		Integer("position", func(p item) int64 { return int64(p.Position) }),
		Integer("lag", func(p item) int64 { return int64(p.Lag) }),
		Time("updatedAt", func(p item) query.Timestamp { return p.UpdatedAt }),
		Bool("running", func(p item) bool { return p.Running }),
	}}
}

// Usage is how much an account did by day.
func Usage() Sheet[query.UsageDay] {
	type item = query.UsageDay
	return Sheet[item]{"usage", []Column[item]{
		Time("day", func(d item) query.Timestamp { return d.Day }),
		Integer("captures", func(d item) int { return d.Captures }),
		Integer("batchLines", func(d item) int { return d.BatchLines }),
		Integer("refused", func(d item) int { return d.Refused }),
		Integer("deliveries", func(d item) int { return d.Deliveries }),
	}}
}
