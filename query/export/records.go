package export

import (
	"strconv"
	"strings"

	"github.com/leadlog/leadlog/query"
)

// Report is what became of arrivals, by interval and source.
func Report() Sheet[query.SourceCount] {
	return Sheet[query.SourceCount]{
		Name:    "sources",
		Columns: []string{"from", "source", "created", "merged", "refused", "won", "value"},
		Row: func(c query.SourceCount) []string {
			return []string{moment(c.From), c.Source, strconv.Itoa(c.Created), strconv.Itoa(c.Merged), strconv.Itoa(c.Refused), strconv.Itoa(c.Won), string(c.Value)}
		},
	}
}

// Tokens are API tokens, without their values.
func Tokens() Sheet[query.Token] {
	return Sheet[query.Token]{
		Name:    "tokens",
		Columns: []string{"tokenId", "name", "prefix", "status", "expiresAt", "createdAt", "createdBy", "rotatedAt", "deletedAt", "lastUsedAt"},
		Row: func(t query.Token) []string {
			return []string{
				t.TokenID, t.Name, t.Prefix, t.Status, moment(t.ExpiresAt), moment(t.CreatedAt), t.CreatedBy, moment(t.RotatedAt),
				moment(t.DeletedAt), moment(t.LastUsedAt),
			}
		},
	}
}

// Reveals are who looked at people.
func Reveals() Sheet[query.Reveal] {
	return Sheet[query.Reveal]{
		Name:    "reveals",
		Columns: []string{"at", "actor", "what", "leadId", "ip", "userAgent", "requestId"},
		Row: func(r query.Reveal) []string {
			return []string{moment(r.At), r.Actor, r.What, text(r.LeadID), r.IP, r.UserAgent, r.RequestID}
		},
	}
}

// Endpoints are webhook endpoints and how they do.
func Endpoints() Sheet[query.Endpoint] {
	return Sheet[query.Endpoint]{
		Name: "endpoints",
		Columns: []string{"webhookId", "url", "events", "description", "state", "disabledReason", "disabledAt", "createdAt", "lastSuccessAt",
			"lastFailureAt", "failingSince", "queued"},
		Row: func(e query.Endpoint) []string {
			return []string{
				e.WebhookID, e.URL, strings.Join(e.Events, " "), e.Description, e.State, text(e.DisabledReason), moment(e.DisabledAt),
				moment(e.CreatedAt), moment(e.LastSuccessAt), moment(e.LastFailureAt), moment(e.FailingSince), strconv.Itoa(e.Queued),
			}
		},
	}
}

// Deliveries are what was queued for an endpoint. Attempts are in the JSON lines.
func Deliveries() Sheet[query.Delivery] {
	return Sheet[query.Delivery]{
		Name:    "deliveries",
		Columns: []string{"deliveryId", "webhookId", "eventId", "type", "state", "createdAt", "finishedAt", "nextAttemptAt", "attempts"},
		Row: func(d query.Delivery) []string {
			return []string{
				d.DeliveryID, d.WebhookID, d.EventID, d.Type, d.State, moment(d.CreatedAt), moment(d.FinishedAt), moment(d.NextAttemptAt),
				strconv.Itoa(len(d.Attempts)),
			}
		},
	}
}

// Projections are how far read models are. Replays are in the JSON lines.
func Projections() Sheet[query.Projection] {
	return Sheet[query.Projection]{
		Name:    "projections",
		Columns: []string{"name", "version", "position", "lag", "updatedAt", "running"},
		Row: func(p query.Projection) []string {
			return []string{
				p.Name, strconv.Itoa(p.Version), strconv.FormatUint(uint64(p.Position), 10), strconv.FormatUint(p.Lag, 10),
				moment(p.UpdatedAt), strconv.FormatBool(p.Running),
			}
		},
	}
}

// Usage is how much an account did by day.
func Usage() Sheet[query.UsageDay] {
	return Sheet[query.UsageDay]{
		Name:    "usage",
		Columns: []string{"day", "captures", "batchLines", "refused", "deliveries"},
		Row: func(d query.UsageDay) []string {
			return []string{moment(d.Day), strconv.Itoa(d.Captures), strconv.Itoa(d.BatchLines), strconv.Itoa(d.Refused), strconv.Itoa(d.Deliveries)}
		},
	}
}

func text(t *string) string {
	if t == nil {
		return ""
	}
	return *t
}
