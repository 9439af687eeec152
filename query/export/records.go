package export

import "github.com/leadlog/leadlog/query"

// Report is what became of arrivals, by interval and source.
func Report() Sheet[query.SourceCount] {
	type item = query.SourceCount
	return Sheet[item]{"sources", []Column[item]{
		Moment("from", func(c item) query.Timestamp { return c.From }),
		Term("source", func(c item) string { return c.Source }),
		Integer("created", func(c item) int { return c.Created }),
		Integer("merged", func(c item) int { return c.Merged }),
		Integer("refused", func(c item) int { return c.Refused }),
		Integer("won", func(c item) int { return c.Won }),
		Amount("value", func(c item) string { return string(c.Value) }),
	}}
}

// Tokens are API tokens, without their values.
func Tokens() Sheet[query.Token] {
	type item = query.Token
	return Sheet[item]{"tokens", []Column[item]{
		Text("tokenId", func(t item) string { return t.TokenID }),
		Text("name", func(t item) string { return t.Name }),
		Text("prefix", func(t item) string { return t.Prefix }),
		Term("status", func(t item) string { return t.Status }),
		Moment("expiresAt", func(t item) query.Timestamp { return t.ExpiresAt }),
		Moment("createdAt", func(t item) query.Timestamp { return t.CreatedAt }),
		Text("createdBy", func(t item) string { return t.CreatedBy }),
		Moment("rotatedAt", func(t item) query.Timestamp { return t.RotatedAt }),
		Moment("deletedAt", func(t item) query.Timestamp { return t.DeletedAt }),
		Moment("lastUsedAt", func(t item) query.Timestamp { return t.LastUsedAt }),
	}}
}

// Trail is who did what, and who read personal data.
func Trail() Sheet[query.TrailRecord] {
	type item = query.TrailRecord
	return Sheet[item]{"audit", []Column[item]{
		Text("id", func(r item) string { return r.ID }),
		Term("type", func(r item) string { return r.Type }),
		Moment("at", func(r item) query.Timestamp { return r.At }),
		Term("actor", func(r item) string { return r.Actor }),
		Text("subject", func(r item) string { return r.Subject }),
		Term("ip", func(r item) string { return r.IP }),
		Term("userAgent", func(r item) string { return r.UserAgent }),
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
		Term("state", func(e item) string { return e.State }),
		Optional("disabledReason", func(e item) *string { return e.DisabledReason }),
		Moment("disabledAt", func(e item) query.Timestamp { return e.DisabledAt }),
		Moment("createdAt", func(e item) query.Timestamp { return e.CreatedAt }),
		Moment("lastSuccessAt", func(e item) query.Timestamp { return e.LastSuccessAt }),
		Moment("lastFailureAt", func(e item) query.Timestamp { return e.LastFailureAt }),
		Moment("failingSince", func(e item) query.Timestamp { return e.FailingSince }),
		Integer("queued", func(e item) int { return e.Queued }),
	}}
}

// Deliveries are what was queued for an endpoint. Attempts are in the JSON lines.
func Deliveries() Sheet[query.Delivery] {
	type item = query.Delivery
	return Sheet[item]{"deliveries", []Column[item]{
		Text("deliveryId", func(d item) string { return d.DeliveryID }),
		Term("webhookId", func(d item) string { return d.WebhookID }),
		Text("eventId", func(d item) string { return d.EventID }),
		Term("type", func(d item) string { return d.Type }),
		Term("state", func(d item) string { return d.State }),
		Moment("createdAt", func(d item) query.Timestamp { return d.CreatedAt }),
		Moment("finishedAt", func(d item) query.Timestamp { return d.FinishedAt }),
		Moment("nextAttemptAt", func(d item) query.Timestamp { return d.NextAttemptAt }),
		Integer("attempts", func(d item) int { return len(d.Attempts) }),
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
		Moment("updatedAt", func(p item) query.Timestamp { return p.UpdatedAt }),
		Truth("running", func(p item) bool { return p.Running }),
	}}
}

// Usage is how much an account did by day.
func Usage() Sheet[query.UsageDay] {
	type item = query.UsageDay
	return Sheet[item]{"usage", []Column[item]{
		Moment("day", func(d item) query.Timestamp { return d.Day }),
		Integer("captures", func(d item) int { return d.Captures }),
		Integer("batchLines", func(d item) int { return d.BatchLines }),
		Integer("refused", func(d item) int { return d.Refused }),
		Integer("deliveries", func(d item) int { return d.Deliveries }),
	}}
}
