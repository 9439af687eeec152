package intake

import (
	"bytes"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/eventstore/event"
)

// DefaultGraphURL is Meta's Graph API. Without a version in it, Meta answers in the oldest that the token's app may use.
const DefaultGraphURL = "https://graph.facebook.com"

// Change is a new lead that a post of kind meta_lead_ads announces. Its content has to be fetched.
type Change struct {
	LeadgenID string
	Body      []byte // the announcement: a JSON object with ids of the lead, page, form and ad
}

var errChanges = errors.New("is not a post of Meta's webhooks")

// Changes splits a post of kind meta_lead_ads into the leads that it announces. There are none if it is about something else. The
// error's text suits the sender.
func Changes(body []byte) ([]Change, error) {
	var post struct {
		Entry []struct {
			Changes []struct {
				Field string         `json:"field"`
				Value jsontext.Value `json:"value"`
			} `json:"changes"`
		} `json:"entry"`
	}
	if err := json.Unmarshal(bytes.TrimPrefix(body, byteOrderMark), &post); err != nil {
		return nil, errChanges
	}
	var changes []Change
	for _, entry := range post.Entry {
		for _, change := range entry.Changes {
			if change.Field != "leadgen" {
				continue
			}
			id, ok := leadgenID(change.Value)
			if !ok {
				return nil, errChanges
			}
			changes = append(changes, Change{LeadgenID: id, Body: change.Value})
		}
	}
	return changes, nil
}

// leadgenID returns the id of the announced lead, which Meta writes as a number or as a text.
func leadgenID(value jsontext.Value) (string, bool) {
	var announced struct {
		ID jsontext.Value `json:"leadgen_id"`
	}
	if err := json.Unmarshal(value, &announced); err != nil {
		return "", false
	}
	id := strings.Trim(string(announced.ID), `"`)
	return id, id != "" && len(id) <= 40 && strings.Trim(id, "0123456789") == ""
}

// LeadURL returns the address from which the announced lead is fetched. It contains the access token.
func LeadURL(settings event.IntakeSettings, secrets Secrets, announcement []byte) (string, error) {
	id, ok := leadgenID(announcement)
	if !ok {
		return "", errChanges
	}
	base := settings.GraphURL
	if base == "" {
		base = DefaultGraphURL
	}
	return strings.TrimRight(base, "/") + "/" + id + "?access_token=" + url.QueryEscape(secrets.AccessToken), nil
}

var errFetched = errors.New("is not a lead of Meta's Graph API")

// Fetched returns the body that is mapped: the lead that was fetched, and of the announcement what the lead does not have.
func Fetched(announcement, lead []byte) ([]byte, error) {
	fetched, ok := graphLead(lead)
	if !ok {
		return nil, errFetched
	}
	var announced map[string]jsontext.Value
	if err := json.Unmarshal(announcement, &announced); err != nil {
		return nil, errChanges
	}
	for name, value := range announced {
		if _, given := fetched[name]; !given {
			fetched[name] = value
		}
	}
	return json.Marshal(fetched, json.Deterministic(true))
}

// IsLead reports whether a body is a lead of Meta's Graph API, and not an announcement.
func IsLead(body []byte) bool {
	_, ok := graphLead(bytes.TrimPrefix(body, byteOrderMark))
	return ok
}

func graphLead(body []byte) (members map[string]jsontext.Value, ok bool) {
	err := json.Unmarshal(body, &members)
	return members, err == nil && members["field_data"].Kind() == '['
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
