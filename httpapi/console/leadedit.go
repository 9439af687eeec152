package console

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/query"
)

// leadForm is a form that changes fields of a lead: those that it has, as posted or as the lead has them. A field that
// the user leaves as it was shown is not sent, so that a form does not undo a change that came after it was shown.
type leadForm struct {
	Name, Status, Temperature, Value string
	Custom                           []customField
	Was                              leadWas
	Wrong                            field.Errors
	Stages, Temperatures             []string
}

// leadWas has the fields of a lead as a form showed them.
type leadWas struct{ Name, Status, Temperature, Value string }

// customField is a custom field of a form; without a name it is one to add. Kind is json if it is no text.
type customField struct{ Name, Value, Was, Kind string }

// addedFields is how many custom fields a form can add at once.
const addedFields = 3

// leadForm returns the form of a lead as it is.
func (v *visit) leadForm(of query.Lead) (leadForm, error) {
	settings, err := v.Directory.Account(v.ctx, v.identity.Account)
	if err != nil {
		return leadForm{}, err
	}
	stages := settings.State.Stages
	if !slices.Contains(stages, of.Status) { // the account has removed it
		stages = append([]string{of.Status}, stages...)
	}
	shown := leadForm{
		Name: of.Name, Status: of.Status, Temperature: of.LeadTemperature, Stages: stages,
		Temperatures: lead.Temperatures(), Value: masker{revealed: true}.lead(of).Value(),
	}
	shown.Was = leadWas{of.Name, of.Status, of.LeadTemperature, shown.Value}
	for _, name := range slices.Sorted(maps.Keys(of.CustomFields)) {
		value, kind := plain(of.CustomFields[name]), ""
		if of.CustomFields[name].Kind() != '"' {
			kind = "json"
		}
		shown.Custom = append(shown.Custom, customField{name, value, value, kind})
	}
	return shown, nil
}

// New are the custom fields that can be added.
func (f leadForm) New() []customField { return make([]customField, addedFields) }

// withPosted replaces the values of a form by posted ones.
func (f leadForm) withPosted(form url.Values, wrong field.Errors) leadForm {
	f.Wrong = wrong
	for name, value := range map[string]*string{
		"name": &f.Name, "status": &f.Status, "leadTemperature": &f.Temperature, "opportunityValue": &f.Value,
	} {
		if form.Has(name) {
			*value = form.Get(name)
		}
	}
	if values := form["custom"]; len(values) == len(form["customName"]) && len(values) > 0 {
		f.Custom = nil
		for i, name := range form["customName"] {
			f.Custom = append(f.Custom, customField{
				name, values[i], at(form["customWas"], i), at(form["customKind"], i),
			})
		}
	}
	return f
}

func at(values []string, i int) string {
	if i < len(values) {
		return values[i]
	}
	return ""
}

// changedFields returns the body of a request that makes the changes of a form.
func changedFields(form url.Values) (map[string]jsontext.Value, error) {
	body := map[string]jsontext.Value{}
	var wrong field.Errors
	for _, name := range []string{"name", "status", "leadTemperature", "opportunityValue"} {
		value := strings.TrimSpace(form.Get(name))
		switch {
		case !form.Has(name) || value == form.Get("was-"+name):
		case value == "":
			wrong.Add(name, "cannot be removed, only replaced")
		default:
			body[name] = mustJSON(value)
		}
	}
	custom := map[string]jsontext.Value{}
	for i, name := range form["customName"] {
		name = strings.TrimSpace(name)
		value, was := strings.TrimSpace(at(form["custom"], i)), at(form["customWas"], i)
		switch {
		case value == strings.TrimSpace(was):
		case name == "":
			wrong.Add("customFields", "must each have a name")
		case custom[name] != nil:
			wrong.Add("customFields", "must have different names")
		case value == "":
			custom[name] = jsontext.Value("null")
		case at(form["customKind"], i) == "json" && jsontext.Value(value).IsValid():
			custom[name] = jsontext.Value(value) // a number stays one
		default:
			custom[name] = mustJSON(value)
		}
	}
	if len(custom) > 0 {
		body["customFields"] = mustJSON(custom)
	}
	return body, wrong.Err()
}

// changeLead makes the changes of a form, and returns the form with its errors, if there are any.
func (v *visit) changeLead() (form url.Values, err error) {
	if form, err = v.form(); err != nil {
		return nil, err
	}
	body, err := changedFields(form)
	if err != nil || len(body) == 0 {
		return form, err
	}
	caller := v.caller
	caller.FromPage = false // forms of other sites are rejected
	updated, err := v.Commands.UpdateLead(v.ctx, command.UpdateLead{Caller: caller, LeadID: v.id("id"), Body: body})
	if err == nil {
		v.waitForViews(updated.Position, query.LeadView, query.TouchView)
	}
	return form, err
}

// changeStage changes what a lead's page has in one row: stage, temperature and value.
func (v *visit) changeStage() (screen, error) {
	form, err := v.changeLead()
	if faults, ok := wrong(err); ok {
		mask, err := v.masker()
		if err != nil {
			return screen{}, err
		}
		return v.reveal(v.leadScreen(mask, func(shown leadForm) leadForm { return shown.withPosted(form, faults) }))
	}
	if err != nil {
		return screen{}, err
	}
	return v.toLead(v.id("id"))
}

func (v *visit) toLead(id string) (screen, error) {
	return screen{redirect: v.path("/leads/" + id)}, nil
}

// leadEditPage is where a lead is changed. It shows the lead unmasked.
type leadEditPage struct {
	LeadID   string
	Title    string
	Form     leadForm
	Contacts []contactShown
	Typed    string       // the name that was typed to erase the lead
	Key      string       // what must be typed: the name, or else the phone or email
	Other    string       // what another lead was searched by
	Found    []leadShown  // several leads that were found
	Wrong    field.Errors // of release, join and erase
}

func (v *visit) editLead() (screen, error) { return v.editScreen(func(*leadEditPage) {}) }

// editScreen shows the page with what a form changes of it.
func (v *visit) editScreen(with func(*leadEditPage)) (screen, error) {
	id := v.id("id")
	timeline, err := v.Query.LeadTimeline(v.ctx, v.identity.Account, id, query.TimelinePage{Limit: 1})
	if err != nil {
		return screen{}, missing(err, lead.ErrNotFound)
	}
	of := timeline.Lead
	if of.JoinedInto != "" {
		return v.toLead(id) // where a link leads to the other lead
	}
	shown := leadEditPage{LeadID: id, Title: cmp.Or(of.Name, of.Phone, of.Email), Key: erasureKey(of)}
	if shown.Form, err = v.leadForm(of); err != nil {
		return screen{}, err
	}
	unmasked := masker{revealed: true}
	for _, c := range of.Contacts.Phones {
		shown.Contacts = append(shown.Contacts, unmasked.contact("phone", c, nil))
	}
	for _, c := range of.Contacts.Emails {
		shown.Contacts = append(shown.Contacts, unmasked.contact("email", c, nil))
	}
	with(&shown)
	page := screen{name: "leadedit", title: "Edit lead " + id, data: shown, reveals: []string{id}}
	for _, found := range shown.Found {
		page.reveals = append(page.reveals, found.LeadID)
	}
	if shown.Wrong != nil || shown.Form.Wrong != nil {
		page.status = http.StatusBadRequest
	}
	path := "/api/v1/crm/leads/" + id
	page.calls = v.calls(
		v.patch("leads:write", "Change the stage", path, map[string]string{"status": of.Status}),
		v.post("leads:write", "Release a phone", path+"/contacts/release", map[string]string{"phone": "PHONE"}),
		v.post("leads:write", "Join another lead into this one", path+"/join", map[string]string{"from": "LEAD"}),
	)
	return page, nil
}

// erasureKey is what a user types to erase a lead.
func erasureKey(of query.Lead) string { return cmp.Or(of.Name, of.Phone, of.Email) }

func (v *visit) saveLead() (screen, error) {
	form, err := v.changeLead()
	if faults, ok := wrong(err); ok {
		return v.editScreen(func(shown *leadEditPage) { shown.Form = shown.Form.withPosted(form, faults) })
	}
	if err != nil {
		return screen{}, err
	}
	return v.toLead(v.id("id"))
}

// releaseContact releases a phone or email, which the form names by its kind and value.
func (v *visit) releaseContact() (screen, error) {
	form, err := v.form()
	if err != nil {
		return screen{}, err
	}
	kind, value, _ := strings.Cut(form.Get("contact"), " ")
	if kind != "phone" && kind != "email" {
		return v.editFault("contact", "must be chosen")
	}
	caller := v.caller
	caller.FromPage = false
	released, err := v.Commands.ReleaseContact(v.ctx, command.ReleaseContact{
		Caller: caller, LeadID: v.id("id"), Body: map[string]jsontext.Value{kind: mustJSON(value)},
	})
	faults, isWrong := wrong(err)
	switch {
	case isWrong:
		return v.editFault("contact", faults[0].Message)
	case errors.Is(err, lead.ErrLastContact):
		return v.editFault("contact", "is the lead’s last one. Erase the lead instead")
	case err != nil:
		return screen{}, err
	}
	v.waitForViews(released.Position, query.LeadView)
	return v.toLead(v.id("id"))
}

func (v *visit) editFault(name, message string) (screen, error) {
	return v.editScreen(func(shown *leadEditPage) { shown.Wrong.Add(name, message) })
}

// eraseLead erases the lead whose name was typed.
func (v *visit) eraseLead() (screen, error) {
	form, err := v.form()
	if err != nil {
		return screen{}, err
	}
	id := v.id("id")
	of, err := v.Query.LeadTimeline(v.ctx, v.identity.Account, id, query.TimelinePage{Limit: 1})
	if err != nil {
		return screen{}, missing(err, lead.ErrNotFound)
	}
	typed := strings.Join(strings.Fields(form.Get("typed")), " ")
	if !strings.EqualFold(typed, strings.Join(strings.Fields(erasureKey(of.Lead)), " ")) {
		return v.editScreen(func(shown *leadEditPage) {
			shown.Typed = form.Get("typed")
			shown.Wrong.Add("typed", "must be exactly "+shown.Key)
		})
	}
	erased, err := v.Eraser.EraseLead(v.ctx, v.Commands.Erasure(v.caller), id)
	if err != nil {
		return screen{}, err
	}
	v.waitForViews(erased.Position, query.LeadView)
	return screen{redirect: v.path("/leads")}, nil
}

// joinPage is the preview of a join.
type joinPage struct {
	Into, From leadShown
}

// Side has a lead as the preview of a split shows it.
func (p joinPage) Side(of leadShown) splitSide {
	side := splitSide{leadShown: of}
	for _, contacts := range [][]query.Contact{of.Contacts.Phones, of.Contacts.Emails} {
		for _, c := range contacts {
			kind := "phone"
			if strings.Contains(c.Value, "@") {
				kind = "email"
			}
			side.Contacts = append(side.Contacts, contactShown{Contact: c, Kind: kind})
		}
	}
	side.More = len(side.Contacts) - len(first(side.Contacts))
	side.Contacts = first(side.Contacts)
	return side
}

// previewJoin finds the other lead of a join by its id, or by its whole name, phone or email, and shows both.
func (v *visit) previewJoin() (screen, error) {
	form, err := v.form()
	if err != nil {
		return screen{}, err
	}
	id, other := v.id("id"), strings.TrimSpace(form.Get("other"))
	found, err := v.otherLeads(id, other)
	if err != nil {
		return screen{}, err
	}
	unmasked := masker{revealed: true}
	if len(found) != 1 {
		return v.editScreen(func(shown *leadEditPage) {
			shown.Other = other
			if len(found) == 0 {
				shown.Wrong.Add("other", "must be the ID, or the whole name, phone or email, of another lead")
			}
			for _, one := range found {
				shown.Found = append(shown.Found, unmasked.lead(one))
			}
		})
	}
	into, err := v.Query.LeadTimeline(v.ctx, v.identity.Account, id, query.TimelinePage{Limit: 1})
	if err != nil {
		return screen{}, missing(err, lead.ErrNotFound)
	}
	from, err := v.Query.LeadTimeline(v.ctx, v.identity.Account, found[0].LeadID, query.TimelinePage{Limit: 1})
	if err != nil {
		return screen{}, missing(err, lead.ErrNotFound)
	}
	return screen{
		name: "join", title: "Join leads", data: joinPage{Into: unmasked.lead(into.Lead), From: unmasked.lead(from.Lead)},
		reveals: []string{id, found[0].LeadID},
	}, nil
}

// otherLeads finds leads besides one, by their id, or by their whole name, phone or email.
func (v *visit) otherLeads(than, by string) ([]query.Lead, error) {
	if by == "" || strings.EqualFold(by, than) {
		return nil, nil
	}
	one, err := v.Query.Lead(v.ctx, v.identity.Account, strings.ToUpper(by))
	if err == nil && one.JoinedInto == "" {
		return []query.Lead{one}, nil
	}
	if err != nil && !errors.Is(err, query.ErrNotFound) {
		return nil, err
	}
	settings, err := v.Directory.Account(v.ctx, v.identity.Account)
	if err != nil {
		return nil, err
	}
	filter := query.LeadFilter{Q: by, Whole: true, Region: settings.State.Region}
	if phone, err := contact.ParsePhone(by, settings.State.Region, contact.Hint{}); err == nil {
		filter = query.LeadFilter{Phone: phone, Region: settings.State.Region}
	} else if email, err := contact.ParseEmail(by); err == nil {
		filter = query.LeadFilter{Email: email}
	}
	v.Commands.Search(v.ctx, v.caller, "leads", "q")
	list, err := v.Query.Leads(v.ctx, v.identity.Account, filter, query.Page{Limit: foundLeads})
	return slices.DeleteFunc(list.Items, func(l query.Lead) bool { return l.LeadID == than }), err
}

// foundLeads is the most leads that a search for the other lead of a join shows.
const foundLeads = 20

func (v *visit) joinLeads() (screen, error) {
	form, err := v.form()
	if err != nil {
		return screen{}, err
	}
	caller := v.caller
	caller.FromPage = false
	joined, err := v.Commands.JoinLeads(v.ctx, command.JoinLeads{
		Caller: caller, LeadID: v.id("id"), Body: map[string]jsontext.Value{"from": mustJSON(form.Get("from"))},
	})
	if err != nil {
		return screen{}, err
	}
	v.waitForViews(joined.Position, query.LeadView, query.TouchView)
	return v.toLead(v.id("id"))
}

// receipt sends the proof that an event of a lead is on the log.
func (v *visit) receipt() (screen, error) {
	eventID := v.id("event")
	is := func(e eventstore.Recorded) bool { return e.ID.String() == eventID }
	stored, err := v.LogTree.LeadEvent(v.ctx, v.identity.Account, v.id("id"), is)
	if err != nil {
		return screen{}, noEvent(err)
	}
	proof, err := v.LogTree.Receipt(v.ctx, stored.Position)
	return screen{send: func() error {
		v.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		v.w.Header().Set("Content-Disposition", `attachment; filename="receipt-`+eventID+`.txt"`)
		_, err := v.w.Write(proof)
		return err
	}}, err
}
