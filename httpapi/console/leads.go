package console

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/attribution"
)

// leadList is the page of leads.
type leadList struct {
	filtered
	parts
	Choices leadChoices
	Leads   []leadShown
}

// leadChoices are what filters can be set to.
type leadChoices struct{ Stages, Sources, Temperatures []string }

func (v *visit) leads() (screen, error) {
	p := v.params()
	settings, err := v.Directory.Account(v.ctx, v.identity.Account)
	if err != nil {
		return screen{}, err
	}
	shown := leadList{
		filtered: p.filtered("q", "phone", "email", "status", "source", "leadTemperature", "createdSince", "createdUntil"),
		Choices:  leadChoices{settings.State.Stages, lead.Sources(), lead.Temperatures()},
	}
	page := p.page()
	filter := leadFilter(p, cmp.Or(settings.State.Region, account.DefaultRegion))
	if shown.Wrong = p.wrong; shown.Wrong != nil {
		return screen{name: "leads", title: "Leads", status: http.StatusBadRequest, data: shown}, nil
	}
	list, err := v.Query.Leads(v.ctx, v.identity.Account, filter, page)
	if err != nil {
		return screen{}, err
	}
	if fields := p.personal(); len(fields) > 0 { // all else is masked
		v.Commands.Search(v.ctx, v.caller, "leads", fields...)
	}
	for _, one := range list.Items {
		shown.Leads = append(shown.Leads, masker{}.lead(one))
	}
	shown.parts = p.parts(page, list.NextCursor)
	return screen{name: "leads", title: "Leads", data: shown, live: page.Cursor == ""}, nil
}

// leadFilter reads a phone and an email as a capture of the account would.
func leadFilter(p *params, region string) query.LeadFilter {
	f := query.LeadFilter{
		Q: p.text("q"), Status: p.text("status"), Source: p.text("source"), LeadTemperature: p.text("leadTemperature"),
		CreatedSince: p.day("createdSince"), CreatedUntil: p.until("createdUntil"), Region: region,
	}
	var err error
	if phone := p.text("phone"); phone != "" {
		if f.Phone, err = lead.ParsePhone(phone, region); err != nil {
			p.wrong.Add("phone", err.Error())
		}
	}
	if email := p.text("email"); email != "" {
		if f.Email, err = lead.ParseEmail(email); err != nil {
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

// fault is what is wrong with a field of a form, or nothing.
func fault(wrong field.Errors, name string) string {
	i := slices.IndexFunc(wrong, func(e field.Error) bool { return e.Field == name })
	if i < 0 {
		return ""
	}
	return wrong[i].Message
}

// leadPage is one lead, as it is or was, and what happened to it.
type leadPage struct {
	Lead     leadShown
	Revision eventstore.Revision // that the lead is shown as of
	Latest   eventstore.Revision
	Steps    []stepShown
	Newer    string // query strings of other parts of the timeline, if there are
	Older    string
	Sources  []query.SourceEntry
	Touches  []touchShown // the first of them
	Cut      bool         // there are more touches
	Model    attribution.Model
	Models   []string
	Won      *query.LeadConversion // nil: it is not won
	Activity []activityShown
	Later    string // query string of the activity that follows
	Query    string // of this page
	Revealed bool
}

// Past reports whether the lead is shown as it was earlier.
func (l leadPage) Past() bool { return l.Revision != l.Latest }

// stepShown is an event of the timeline as a page shows it, masked or not.
type stepShown struct {
	query.Step
	Changes []changeShown
	AsOf    string // query string of the lead as of it
	Here    bool
	Open    string // query string that shows or hides the stored event
	Raw     string
}

type changeShown struct{ Field, Old, New string }

// touchShown is a touch with its part of the conversion, if it has one.
type touchShown struct {
	query.Touch
	Credit *query.Credit
}

type activityShown struct {
	query.Activity
	URL, Title, Referrer string
}

// timelineSteps is how many events of a timeline are on a page.
const timelineSteps = 50

func (v *visit) lead() (screen, error) { return v.showLead(masker{}) }

func (v *visit) showLead(mask masker) (screen, error) {
	p, id := v.params(), v.id("id")
	moment := query.Moment{Limit: timelineSteps, AsOf: p.revision("revision")}
	if before := p.revision("before"); before != nil {
		moment.Before = *before
	}
	timeline, err := v.Query.LeadTimeline(v.ctx, v.identity.Account, id, moment)
	if err != nil {
		return screen{}, missing(err, lead.ErrNotFound)
	}
	shown := leadPage{
		Lead: mask.lead(timeline.Lead), Revision: timeline.Revision, Latest: timeline.Latest, Revealed: mask.revealed,
		Query: p.with("", ""),
	}
	for _, step := range timeline.Steps {
		shown.Steps = append(shown.Steps, mask.step(step, p, timeline.Revision))
	}
	if n := len(timeline.Steps); n > 0 && timeline.Steps[n-1].Revision > 0 {
		shown.Older = p.with("before", formatInt(int64(timeline.Steps[n-1].Revision)))
	}
	if moment.Before != 0 {
		shown.Newer = cmp.Or(p.with("before", ""), "?")
	}
	if err := v.addOrigins(&shown, mask, p, id); err != nil {
		return screen{}, err
	}
	return screen{name: "lead", title: "Lead " + id, data: shown, live: !mask.revealed && !shown.Past()}, nil
}

// addOrigins adds where the lead came from, and what it did before and since as a visitor.
func (v *visit) addOrigins(shown *leadPage, mask masker, p *params, id string) error {
	sources, err := v.Query.LeadSources(v.ctx, v.identity.Account, id, query.Page{Limit: rows})
	if err != nil && !errors.Is(err, query.ErrNotFound) { // a view that has not seen the lead yet shows nothing of it
		return err
	}
	shown.Sources = sources.Items
	touches := query.TouchFilter{LeadID: id, Visits: true, Masked: !mask.revealed}
	if touches.AsOf, err = v.Query.PositionAsOf(v.ctx, query.AsOf{}); err != nil {
		return err
	}
	list, err := v.Query.Touches(v.ctx, v.identity.Account, touches, query.Page{Limit: rows})
	if err != nil {
		return err
	}
	shown.Cut, shown.Model, shown.Models = list.NextCursor != "", p.model(), attribution.Models()
	sharing := query.AttributionFilter{AsOf: touches.AsOf, Rules: attribution.Rules{
		Model: shown.Model, Window: attribution.DefaultWindow, HalfLife: attribution.DefaultHalfLife,
	}}
	if shown.Won, err = v.Query.LeadConversion(v.ctx, v.identity.Account, id, sharing); err != nil {
		return err
	}
	for _, t := range list.Items {
		one := touchShown{Touch: t}
		if shown.Won != nil {
			if credit, has := shown.Won.Credits[t.Position]; has {
				one.Credit = &credit
			}
		}
		shown.Touches = append(shown.Touches, one)
	}
	activity, err := v.Query.LeadActivity(v.ctx, v.identity.Account, id, query.Page{Limit: rows, Cursor: p.text("activity")})
	if err != nil && !errors.Is(err, query.ErrNotFound) {
		return err
	}
	for _, a := range activity.Items {
		one := activityShown{a, mask.address(a.URL), mask.title(a.Title), mask.address(a.Referrer)}
		shown.Activity = append(shown.Activity, one)
	}
	if activity.NextCursor != "" {
		shown.Later = p.with("activity", activity.NextCursor)
	}
	return nil
}

func (m masker) step(step query.Step, p *params, at eventstore.Revision) stepShown {
	revision := formatInt(int64(step.Revision))
	shown := stepShown{
		Step: step, Here: step.Revision == at, AsOf: p.with("revision", revision), Open: p.with("raw", revision),
	}
	shown.Released.Old = m.value(step.Released.Field, step.Released.Old)
	for _, c := range step.Changes {
		name := c.Field
		if c.Key != "" {
			name = c.Key
		}
		shown.Changes = append(shown.Changes, changeShown{name, m.value(c.Field, c.Old), m.value(c.Field, c.New)})
	}
	if p.text("raw") == revision {
		shown.Raw, shown.Open = m.raw(step.Data), p.with("raw", "")
	}
	return shown
}

// revision reads a place in a stream; nil when none is given, or what is given is none.
func (p *params) revision(name string) *eventstore.Revision {
	n, err := strconv.ParseInt(p.text(name), 10, 64)
	if err != nil || n < 0 {
		return nil
	}
	return new(eventstore.Revision(n))
}

// missing gives what is not found the name of what was looked for.
func missing(err, as error) error {
	if errors.Is(err, query.ErrNotFound) {
		return as
	}
	return err
}

// unmaskedLead shows a lead unmasked.
func (v *visit) unmaskedLead() (screen, error) { return v.showLead(masker{revealed: true}) }

// masker shows personal data masked, or unmasked on a page that is recorded as a reveal. A masked value distinguishes two people in
// a list, but is not enough to contact one.
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

// Value is what the lead's opportunity is worth, or empty.
func (l leadShown) Value() string {
	if l.OpportunityID == nil {
		return ""
	}
	return string(l.OpportunityValue)
}
