// Package visitor parses and validates activities of visitors of a web site, and decides which of them are forgotten.
// It is pure.
//
// No decision depends on an activity, so any number of them may be recorded at once. The id that a page gave to its
// visitor links an activity to the leads with the same id, in any order. It never identifies a person.
package visitor

import (
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Limits of an activity. Characters are Unicode code points after NFC. Properties are bounded as a lead's metadata is.
const (
	MaxID    = lead.MaxVisitorID
	MaxURL   = 2048 // characters, also of the referrer
	MaxTitle = 500
	// Ahead is how far a caller's clock may be ahead: that of a device set to a wrong time zone is.
	Ahead = 24 * time.Hour
)

// kinds are the values of type.
var kinds = []string{"page_view", "form_view", "click", "custom"}

// Schemes that an address may have. A browser in an app names the app as its referrer.
var (
	pageSchemes     = []string{"https", "http"}
	referrerSchemes = []string{"https", "http", "android-app"}
)

// ParseActivity reads the members of a request body into a fact. Its time is zero if the body has none. The error is
// field.Errors with everything that is wrong.
func ParseActivity(visitorID string, body map[string]jsontext.Value, now time.Time) (event.VisitorActed, error) {
	r := reader{body: body}
	if !validID(visitorID) {
		r.wrong.Add("visitorId", "must be text of 1 to 200 characters")
	}
	acted := event.VisitorActed{
		VisitorID:  visitorID,
		Kind:       r.kind(),
		URL:        r.address("url", pageSchemes, "must be an absolute http or https URL"),
		Title:      r.title(),
		Referrer:   r.address("referrer", referrerSchemes, "must be an absolute http, https or android-app URL"),
		At:         r.at(now),
		Properties: r.properties(),
	}
	acted.Touch, acted.Campaign = campaign(acted.URL)
	return acted, r.wrong.Err()
}

// campaign reports whether a page's address has a utm parameter, and returns the parameters that may be stored in plain
// text.
func campaign(address string) (touch bool, plain event.Campaign) {
	const prefix = "utm_"
	if !strings.Contains(address, prefix) {
		return false, plain
	}
	query := lead.PageQuery(address)
	for name, value := range query {
		touch = touch || strings.HasPrefix(name, prefix) && !lead.Blank(value)
	}
	return touch, lead.Campaign(func(name string) string { return query[name] }, "")
}

// validID reports whether a lead could have the id too.
func validID(id string) bool {
	return utf8.ValidString(id) && !strings.ContainsRune(id, 0) && !lead.Blank(id) && lead.Length(id) <= MaxID
}

// reader reads the fields of a body and collects their errors.
type reader struct {
	body  map[string]jsontext.Value
	wrong field.Errors
}

// text reads a string and trims it. A null counts as absent.
func (r *reader) text(key string) string {
	value := r.body[key]
	switch value.Kind() {
	case jsontext.KindInvalid, jsontext.KindNull:
		return ""
	case jsontext.KindString:
		text, err := jsontext.AppendUnquote(nil, value)
		if err == nil {
			return strings.TrimSpace(string(text))
		}
	}
	r.wrong.Add(key, "must be a string")
	return ""
}

// hasError reports whether a field has an error.
func (r *reader) hasError(key string) bool {
	return slices.ContainsFunc(r.wrong, func(e field.Error) bool { return e.Field == key })
}

func (r *reader) kind() string {
	given := r.text("type")
	for _, kind := range kinds {
		if strings.EqualFold(given, kind) {
			return kind
		}
	}
	if !r.hasError("type") {
		r.wrong.Add("type", "must be one of "+strings.Join(kinds, ", "))
	}
	return ""
}

// address reads a URL. One with a password is refused, because it would put the password on the log.
func (r *reader) address(key string, schemes []string, message string) string {
	given := r.text(key)
	if given == "" {
		return ""
	}
	if lead.Length(given) > MaxURL {
		r.wrong.Add(key, "must be at most 2048 characters")
		return ""
	}
	parsed, err := url.Parse(given)
	switch {
	case err != nil, lead.HasControl(given), parsed.Hostname() == "", !slices.Contains(schemes, parsed.Scheme):
		r.wrong.Add(key, message)
	case parsed.User != nil:
		r.wrong.Add(key, "must not contain a user name or password")
	}
	return given
}

func (r *reader) title() string {
	title := contact.OneLine(r.text("title"))
	if lead.Length(title) > MaxTitle {
		r.wrong.Add("title", "must be at most 500 characters")
	}
	return title
}

func (r *reader) at(now time.Time) time.Time {
	given := r.text("at")
	if given == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, given)
	if err != nil || at.Before(time.Unix(0, 0)) {
		r.wrong.Add("at", "must be a time such as 2006-01-02T15:04:05Z, from 1970 on")
	} else if at.After(now.Add(Ahead)) {
		r.wrong.Add("at", "must not be more than a day ahead")
	}
	return at.UTC().Truncate(time.Millisecond)
}

// properties reads the properties of an activity, without nulls.
func (r *reader) properties() map[string]jsontext.Value {
	const key = "properties"
	value := r.body[key]
	if kind := value.Kind(); kind == jsontext.KindInvalid || kind == jsontext.KindNull {
		return nil
	}
	members, err := lead.Members(value)
	if err != nil {
		r.wrong.Add(key, "must be an object")
		return nil
	}
	if len(members) > lead.MaxMetadataKeys {
		r.wrong.Add(key, "must have at most 64 keys")
	}
	if len(value) > lead.MaxMetadataBytes {
		r.wrong.Add(key, "must be at most 32 KiB")
	}
	for name, member := range members {
		if member.Kind() == jsontext.KindNull {
			delete(members, name)
		}
	}
	if len(members) == 0 {
		return nil
	}
	return members
}
