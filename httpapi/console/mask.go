package console

import (
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/query"
)

// masker shows personal data masked, or unmasked if the user asked for that and this was recorded. A masked value is enough to tell
// two people in a list apart, but not to call one.
type masker struct{ revealed bool }

const dots = "•••"

func (m masker) name(name string) string {
	if m.revealed {
		return name
	}
	words := strings.Fields(name)
	for i, word := range words {
		first, _ := utf8.DecodeRuneInString(word)
		words[i] = string(first) + dots
	}
	return strings.Join(words, " ")
}

func (m masker) phone(phone string) string {
	if m.revealed || phone == "" {
		return phone
	}
	return phone[:min(3, len(phone))] + dots + phone[max(0, len(phone)-2):]
}

func (m masker) email(email string) string {
	if m.revealed || email == "" {
		return email
	}
	first, _ := utf8.DecodeRuneInString(email)
	ending := email[strings.LastIndexByte(email, '.')+1:]
	return string(first) + dots + "@" + dots + "." + ending
}

// value is that of a field of a lead, or of a member of one.
func (m masker) value(field, value string) string {
	if value == "" {
		return ""
	}
	switch field {
	case "name":
		return m.name(value)
	case "phone":
		return m.phone(value)
	case "email":
		return m.email(value)
	case "customFields", "metadata":
		if !m.revealed {
			return dots
		}
		return plain(jsontext.Value(value))
	}
	return value
}

// plain is the text of a JSON string; any other value stays JSON.
func plain(value jsontext.Value) string {
	var text string
	if value.Kind() == '"' && json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

// impersonal are the members of events without personal data. All others are masked, so a new member is masked until it is listed
// here.
var impersonal = []string{
	"contactUID", "nameDerived", "status", "leadTemperature", "opportunityId", "opportunityValue", "source", "newSource",
	"changed", "emailHeldBy", "removedFields", "claims", "code", "leadId", "other", "from", "into", "joined",
}

// raw returns the data of an event as it is on the log, indented.
func (m masker) raw(data jsontext.Value) string {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(data, &members); err != nil {
		return dots
	}
	for name := range members {
		if !m.revealed && !slices.Contains(impersonal, name) {
			members[name] = jsontext.Value(`"` + dots + `"`)
		}
	}
	text, err := json.Marshal(members, json.Deterministic(true), jsontext.WithIndent("  "), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return dots
	}
	return string(text)
}

// address returns the URL of a page that a visitor saw, masked except for the site, because the path and the query may name a
// person.
func (m masker) address(of string) string {
	if m.revealed || of == "" {
		return of
	}
	parsed, err := url.Parse(of)
	if err != nil || parsed.Host == "" {
		return dots
	}
	site := parsed.Scheme + "://" + parsed.Host
	if rest := strings.TrimPrefix(of, site); rest == "" || rest == "/" {
		return of
	}
	return site + "/" + dots
}

// title is that of a page that somebody saw.
func (m masker) title(title string) string {
	if m.revealed || title == "" {
		return title
	}
	return dots
}

// leadShown is a lead as a page shows it, masked or not.
type leadShown struct {
	query.Lead
	Fields   []member // custom ones
	Metadata []member
}

type member struct{ Name, Value string }

func (m masker) lead(lead query.Lead) leadShown {
	shown := leadShown{Lead: lead, Fields: m.members(lead.CustomFields), Metadata: m.members(lead.Metadata)}
	shown.Name, shown.Phone, shown.Email = m.name(lead.Name), m.phone(lead.Phone), m.email(lead.Email)
	return shown
}

func (m masker) members(of map[string]jsontext.Value) (list []member) {
	for name, value := range of {
		list = append(list, member{name, m.value("metadata", string(value))})
	}
	slices.SortFunc(list, func(a, b member) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// object is a JSON object's members.
func (m masker) object(data jsontext.Value) []member {
	var of map[string]jsontext.Value
	if json.Unmarshal(data, &of) != nil {
		return nil
	}
	return m.members(of)
}

// Value is what the lead's opportunity is worth, or empty.
func (l leadShown) Value() string {
	if l.OpportunityID == nil {
		return ""
	}
	return string(l.OpportunityValue)
}
