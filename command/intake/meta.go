package intake

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/eventstore/event"
)

// DefaultGraphURL is Meta's Graph API. Without a version in it, Meta answers in the oldest that the token's app may
// use.
const DefaultGraphURL = "https://graph.facebook.com"

// Change is a new lead that a post of kind meta_lead_ads announces. Its content has to be fetched.
type Change struct {
	ID string // of its lead; of a change that cannot be read, the hash of its bytes
	// the announcement: a JSON object with ids of the lead, page, form and ad; one that cannot be read is kept as it
	// came
	Body  []byte
	Wrong error // why it cannot be read; the text suits the sender
}

var (
	errChanges = errors.New("is not a post of Meta's webhooks")
	errChange  = errors.New("is not a change of Meta's webhooks with the leadgen_id of a lead")
)

// Changes splits a post of kind meta_lead_ads into the leads that it announces; a post about another subject has none.
// A change that cannot be read does not affect the others. The error's text suits the sender.
func Changes(body []byte) ([]Change, error) {
	var post struct {
		Entry []jsontext.Value `json:"entry"`
	}
	if err := json.Unmarshal(bytes.TrimPrefix(body, byteOrderMark), &post); err != nil {
		return nil, errChanges
	}
	var changes []Change
	unreadable := func(value jsontext.Value) {
		sum := sha256.Sum256(value)
		changes = append(changes, Change{ID: "sha256-" + hex.EncodeToString(sum[:]), Body: value, Wrong: errChange})
	}
	for _, value := range post.Entry {
		var entry struct {
			Changes []jsontext.Value `json:"changes"`
		}
		if err := json.Unmarshal(value, &entry); err != nil {
			unreadable(value)
			continue
		}
		for _, value := range entry.Changes {
			var change struct {
				Field string         `json:"field"`
				Value jsontext.Value `json:"value"`
			}
			if err := json.Unmarshal(value, &change); err != nil {
				unreadable(value)
				continue
			}
			if change.Field != "leadgen" {
				continue
			}
			if id, ok := leadgenID(change.Value); ok {
				changes = append(changes, Change{ID: id, Body: change.Value})
			} else {
				unreadable(value)
			}
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

// graphBase returns the address of the Graph API, without a slash at its end.
func graphBase(settings event.IntakeSettings) string {
	return strings.TrimRight(cmp.Or(settings.GraphURL, DefaultGraphURL), "/")
}

// LeadURL returns the address from which the announced lead is fetched. It contains the access token.
func LeadURL(settings event.IntakeSettings, secrets Secrets, announcement []byte) (string, error) {
	id, ok := leadgenID(announcement)
	if !ok {
		return "", errChanges
	}
	return graphBase(settings) + "/" + id + "?access_token=" + url.QueryEscape(secrets.AccessToken), nil
}

var errFetched = errors.New("is not a lead of Meta's Graph API")

// Fetched returns the body that is mapped: the members of the fetched lead, and those of the announcement that the lead
// does not have.
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
