package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/query"
)

// leadList is the page of leads.
type leadList struct {
	filtered
	parts
	Choices leadChoices
	Leads   []leadShown
	Several int             // phones, or emails, that make a lead look like several persons
	Reach   query.Timestamp // the oldest searched lead, if a search continues among older ones

	Page     string // its query string
	Whole    bool   // a search finds whole values only
	Masked   bool
	Revealed bool // by the button
}

// leadChoices are the values that filters offer.
type leadChoices struct{ Stages, Sources, Temperatures []string }

func (v *visit) leads(mask masker) (screen, error) {
	p := v.params()
	settings, err := v.Directory.Account(v.ctx, v.identity.Account)
	if err != nil {
		return screen{}, err
	}
	shown := leadList{
		filtered: p.filtered("q", "phone", "email", "status", "source", "leadTemperature", "createdSince",
			"createdUntil", "shared"),
		Several: settings.State.SeveralPersons(),
		Choices: leadChoices{settings.State.Stages, lead.Sources(), lead.Temperatures()},
	}
	shown.show("source", words)
	shown.show("shared", func(value string) string {
		if strings.EqualFold(value, "true") {
			return "several"
		}
		return "any"
	})
	page := p.page()
	filter := leadFilter(p, settings.State)
	shown.Page, shown.Whole, shown.Masked, shown.Revealed = p.with("", ""), filter.Whole, !mask.revealed,
		mask.revealed && !v.reads()
	if shown.Wrong = p.wrong; shown.Wrong != nil {
		return screen{name: "leads", title: "Leads", status: http.StatusBadRequest, data: shown, reveals: []string{}}, nil
	}
	list, err := v.Query.Leads(v.ctx, v.identity.Account, filter, page)
	if err != nil {
		return screen{}, err
	}
	if fields := p.personal(); len(fields) > 0 { // other fields are masked
		v.Commands.Search(v.ctx, v.caller, "leads", fields...)
	}
	reveals := []string{}
	for _, one := range list.Items {
		shown.Leads = append(shown.Leads, mask.lead(one))
		reveals = append(reveals, mask.reveals(one.LeadID)...)
	}
	shown.parts, shown.Reach = p.parts(page, list.NextCursor), list.Reach
	return screen{
		name: "leads", title: "Leads", data: shown, live: v.reads() && page.Cursor == "", calls: v.leadCalls(filter),
		reveals: reveals,
	}, nil
}

// leadCalls return the leads of a filter.
func (v *visit) leadCalls(f query.LeadFilter) []call {
	since, until, shared := stamp(f.CreatedSince), stamp(f.CreatedUntil), ""
	if f.Contacts > 0 {
		shared = "true"
	}
	list := v.get("leads:read", "These leads", "/api/v1/crm/leads", "q", f.Q, "status", f.Status, "source", f.Source,
		"leadTemperature", f.LeadTemperature, "phone", f.Phone, "email", f.Email, "shared", shared, "createdSince",
		since, "createdUntil", until)
	var file call
	// it has no other filters
	if (query.LeadFilter{
		CreatedSince: f.CreatedSince, CreatedUntil: f.CreatedUntil, Region: f.Region, Whole: f.Whole,
	}) == f {
		file = v.program("leads:read", "As a CSV file", "export leads", "--since", since,
			"--until", until).withNote(recorded)
	}
	return v.calls(
		list.withNote("The answer is not masked, and q may be a part of a value. Searches by name, phone or email "+
			"are recorded in the audit log."), file,
	)
}

// leadFilter reads a phone and an email as a capture of the account would. A status may be a former stage of the
// account. While leads are masked, a search finds whole values alone: parts would reveal a value letter by letter.
func leadFilter(p *params, settings account.State) query.LeadFilter {
	region := cmp.Or(settings.Region, account.DefaultRegion)
	f := query.LeadFilter{
		Q: p.text("q"), Whole: !settings.UnmaskedInConsole, Status: p.text("status"), Source: p.source(),
		LeadTemperature: p.oneOf("leadTemperature", lead.Temperatures()...),
		CreatedSince:    p.day("createdSince"), CreatedUntil: p.until("createdUntil"), Region: region,
	}
	if stage, known := account.Stage(settings.Stages, f.Status); known {
		f.Status = stage
	}
	if p.oneOf("shared", "true", "false") == "true" {
		f.Contacts = settings.SeveralPersons()
	}
	var err error
	if phone := p.text("phone"); phone != "" {
		if f.Phone, err = contact.ParsePhone(phone, region, contact.Hint{}); err != nil {
			p.wrong.Add("phone", err.Error())
		}
	}
	if email := p.text("email"); email != "" {
		if f.Email, err = contact.ParseEmail(email); err != nil {
			p.wrong.Add("email", err.Error())
		}
	}
	return f
}

// personal returns the parameters by which persons are searched.
func (p *params) personal() (names []string) {
	for _, name := range command.PersonalFilters() {
		if p.text(name) != "" {
			names = append(names, name)
		}
	}
	return names
}

// fault is the error of a field of a form; empty: none.
func fault(wrong field.Errors, name string) string {
	i := slices.IndexFunc(wrong, func(e field.Error) bool { return e.Field == name })
	if i < 0 {
		return ""
	}
	return wrong[i].Message
}

// masker shows personal data masked, or unmasked on a page that is recorded as a reveal. A masked value distinguishes
// two people in a list, but is not enough to contact one.
type masker struct{ revealed bool }

// reveals returns the ids of the leads that are shown unmasked.
func (m masker) reveals(ids ...string) []string {
	if !m.revealed {
		return []string{}
	}
	return ids
}

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
	}
	switch {
	case !m.revealed && !slices.Contains(impersonal, field):
		return dots
	case field == "customFields" || field == "metadata":
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

// impersonal are the members of events, and fields of leads, without personal data. All others are masked, so a new one
// is masked until it is listed here.
var impersonal = []string{
	"contactUID", "nameDerived", "status", "leadTemperature", "opportunityId", "opportunityValue", "source",
	"newSource", "changed", "emailHeldBy", "removedFields", "claims", "code", "leadId", "other", "from", "into",
	"joined",
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
	text, err := json.Marshal(members, json.Deterministic(true), jsontext.WithIndent("  "),
		jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return dots
	}
	return string(text)
}

// address returns the URL of a page that a visitor saw, masked except for the site, because the path and the query may
// name a person.
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

// title masks the title of a page that a visitor saw.
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

// Value is the lead's opportunity value, or empty.
func (l leadShown) Value() string {
	if l.OpportunityID == nil {
		return ""
	}
	return string(l.OpportunityValue)
}
