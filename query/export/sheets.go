package export

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/leadlog/leadlog/query"
)

// TokenEvents is the audit trail of tokens.
func TokenEvents() Sheet[query.TokenEvent] {
	return Sheet[query.TokenEvent]{
		Name: "token-events",
		Columns: []string{"id", "tokenId", "type", "position", "at", "actor", "ip", "userAgent", "requestId", "data",
			"digest", "leaf", "lineHash"},
		Row: func(e query.TokenEvent) []string {
			return []string{
				e.ID, e.TokenID, e.Type, strconv.FormatUint(uint64(e.Position), 10), e.At,
				e.Actor, e.IP, e.UserAgent, e.RequestID, string(e.Data), e.Digest, strconv.FormatInt(e.Leaf, 10), e.LineHash,
			}
		},
	}
}

// Events are an account's own events, as its change feed has them.
func Events() Sheet[query.FeedEvent] {
	return Sheet[query.FeedEvent]{
		Name:    "events",
		Columns: []string{"id", "type", "at", "actor", "requestId", "stream", "revision", "position", "erased", "data"},
		Row: func(e query.FeedEvent) []string {
			return []string{
				e.ID, e.Type, moment(e.At), e.Actor, e.RequestID, e.Stream, strconv.FormatInt(int64(e.Revision), 10),
				strconv.FormatUint(uint64(e.Position), 10), strconv.FormatBool(e.Erased), string(e.Data),
			}
		},
	}
}

// Sources is the source history.
func Sources() Sheet[query.SourceEntry] {
	return Sheet[query.SourceEntry]{
		Name: "source-history",
		Columns: []string{
			"leadId", "source", "firstSeenAt", "lastSeenAt", "arrivals", "credentialKind", "credentialId",
			"ip", "userAgent", "requestId", "changed", "metadata",
		},
		Row: func(e query.SourceEntry) []string {
			return []string{
				e.LeadID, e.Source, moment(e.FirstSeenAt), moment(e.LastSeenAt), strconv.Itoa(e.Arrivals),
				e.Credential.Kind, e.Credential.ID, e.IP, e.UserAgent, e.RequestID, strings.Join(e.Changed, " "), object(e.Metadata),
			}
		},
	}
}

// Leads are leads as they are now.
func Leads() Sheet[query.Lead] {
	return Sheet[query.Lead]{
		Name: "leads",
		Columns: []string{
			"leadId", "contactUID", "name", "phone", "email", "status", "leadTemperature", "opportunityValue",
			"opportunityId", "source", "createdAt", "updatedAt", "customFields",
		},
		Row: func(l query.Lead) []string {
			value, opportunity := "", ""
			if l.OpportunityID != nil {
				value, opportunity = string(l.OpportunityValue), *l.OpportunityID
			}
			return []string{
				l.LeadID, l.ContactUID, l.Name, l.Phone, l.Email, l.Status, l.LeadTemperature, value,
				opportunity, l.Source, moment(l.CreatedAt), moment(l.UpdatedAt), object(l.CustomFields),
			}
		},
	}
}

func moment(t query.Timestamp) string {
	at, _ := t.MarshalJSON() // never fails
	if string(at) == "null" {
		return ""
	}
	return strings.Trim(string(at), `"`)
}

// object is JSON in a cell.
func object[V any](members map[string]V) string {
	if len(members) == 0 {
		return "{}"
	}
	encoded, err := json.Marshal(members, json.Deterministic(true))
	if err != nil { // the members are JSON already
		return ""
	}
	return string(encoded)
}
