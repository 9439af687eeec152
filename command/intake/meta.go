package intake

import (
	"bytes"
	"cmp"
	"crypto/hmac"
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

// Fields of a lead that a mapping can read. The Graph API returns only those that are asked for.
const (
	answerFields = "id,created_time,field_data"
	leadFields   = answerFields + ",custom_disclaimer_responses,form_id,platform,is_organic," +
		"ad_id,ad_name,adset_id,adset_name,campaign_id,campaign_name"
)

// LeadQuery is a way of asking for a lead. The zero LeadQuery asks for all that a mapping can read, and proves that the
// app asks, which apps can require.
type LeadQuery struct {
	OnlyAnswers  bool // for a token that may not read the fields of ads
	WithoutProof bool // for a token of another app
}

// URL returns the address from which the announced lead is fetched. It contains the access token.
func (q LeadQuery) URL(settings event.IntakeSettings, secrets Secrets, announcement []byte) (string, error) {
	id, ok := leadgenID(announcement)
	if !ok {
		return "", errChanges
	}
	query := url.Values{"access_token": {secrets.AccessToken}, "fields": {leadFields}}
	if q.OnlyAnswers {
		query.Set("fields", answerFields)
	}
	if key := secrets.Signing(); key != "" && !q.WithoutProof {
		mac := hmac.New(sha256.New, []byte(key))
		_, _ = mac.Write([]byte(secrets.AccessToken)) // a hash returns no error
		query.Set("appsecret_proof", hex.EncodeToString(mac.Sum(nil)))
	}
	return graphBase(settings) + "/" + id + "?" + query.Encode(), nil
}

// After returns how to ask again at once after an error, so that what a mapping can do without costs no lead. Ok is
// false if the error is about something else.
func (q LeadQuery) After(e GraphError) (next LeadQuery, ok bool) {
	next = q
	switch {
	case e.aboutProof():
		next.WithoutProof = true
	case e.aboutFields():
		next.OnlyAnswers = true
	}
	return next, next != q
}

// GraphError is an error of the Graph API. Its message may quote the request, so it is not shown.
type GraphError struct {
	Code      int    `json:"code"`
	Subcode   int    `json:"error_subcode"`
	Transient bool   `json:"is_transient"`
	Message   string `json:"message"`
}

// GraphErrorOf returns the error in an answer; the zero GraphError if it has none.
func GraphErrorOf(body []byte) GraphError {
	var answer struct {
		Error GraphError `json:"error"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return GraphError{}
	}
	return answer.Error
}

// Passes reports whether the error is a limit of calls or a failure of the moment, by whatever status it was answered:
// by its code, as Meta's guides to errors and to rate limits list them.
func (e GraphError) Passes() bool {
	switch e.Code {
	case 1, 2, 4, 17, 32, 341, 613:
		return true
	}
	return e.Transient || 80000 <= e.Code && e.Code < 80100
}

// codeParameter is the code of an unknown object, of an unknown field and of a wrong proof.
const codeParameter = 100

// Missing reports whether the error says that the lead does not exist, as the API also answers of one that was
// announced a moment ago.
func (e GraphError) Missing() bool {
	const aliases, missing = 803, 33
	return e.Code == aliases || e.Code == codeParameter && (e.Subcode == 0 || e.Subcode == missing) &&
		!e.aboutProof() && !e.aboutFields()
}

func (e GraphError) aboutProof() bool {
	return e.Code == codeParameter && strings.Contains(e.Message, "appsecret_proof")
}

// aboutFields reports whether the error may be about a field that was asked for: it does not exist, or the token lacks
// the permission to read it.
func (e GraphError) aboutFields() bool {
	return e.Code == codeParameter && strings.Contains(e.Message, "nonexistent field") ||
		e.Code == 3 || e.Code == 10 || 200 <= e.Code && e.Code < 300
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
