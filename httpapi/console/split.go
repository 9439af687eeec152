package console

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/query"
)

// partsShown are the contacts of a lead, the arrivals that they came with, and the joins of other leads into it.
type partsShown struct {
	Several  bool // the lead looks like several persons
	Phones   []contactShown
	Emails   []contactShown
	Arrivals []arrivalPart // newest first
	Cut      bool          // there are more arrivals
	Joined   []string      // ids of leads whose joins can be undone
	May      bool          // the user may split
	Show     string        // query string of the page with arrivals, if they are not shown
}

// contactShown is a phone or email of a lead, masked or not.
type contactShown struct {
	query.Contact
	Kind     string // phone or email
	Arrivals int
	With     string // id of a touch that it came with; empty: it came with none
}

// arrivalPart is an arrival of a lead with its contacts, masked or not.
type arrivalPart struct {
	lead.PartArrival
	Phone, Email string
}

const (
	partArrivals = 100 // of a lead that can be chosen on its page
	partContacts = 100 // likewise, and on the preview of a split
	readParts    = 200 // events of a lead whose arrivals are shown unasked
)

// Contacts are the first of them.
func (p partsShown) Contacts() []contactShown { return first(slices.Concat(p.Emails, p.Phones)) }

// More is how many other contacts there are.
func (p partsShown) More() int { return len(p.Phones) + len(p.Emails) - len(p.Contacts()) }

func first(contacts []contactShown) []contactShown {
	return contacts[:min(len(contacts), partContacts)]
}

// Divisible reports whether there is something to split, or a choice of it.
func (p partsShown) Divisible() bool { return p.May && (len(p.Arrivals) > 1 || len(p.Joined) > 0) }

// parts returns what a lead consists of. Its history is read if it may be several persons and is short, or if the user
// asks for it.
func (v *visit) parts(p *params, timeline query.Timeline, mask masker) (*partsShown, error) {
	settings, err := v.Directory.Account(v.ctx, v.identity.Account)
	if err != nil {
		return nil, err
	}
	of := timeline.Lead
	shown := &partsShown{May: v.identity.May("leads:write"), Several: of.Reached >= settings.State.SeveralPersons()}
	var parts lead.Parts
	if mixed := of.Reached > 1 || len(of.Joined) > 0; mixed && timeline.Latest < readParts ||
		p.text("parts") == "show" {
		if parts, err = v.Commands.LeadParts(v.ctx, v.identity.Account, of.LeadID); err != nil {
			return nil, err
		}
	} else {
		shown.Show = p.with("parts", "show")
	}
	shown.Joined = parts.Joined
	came := contactsOf(parts.Arrivals)
	for _, c := range of.Contacts.Phones {
		shown.Phones = append(shown.Phones, mask.contact("phone", c, came))
	}
	for _, c := range of.Contacts.Emails {
		shown.Emails = append(shown.Emails, mask.contact("email", c, came))
	}
	for _, a := range slices.Backward(parts.Arrivals) {
		if shown.Cut = len(shown.Arrivals) == partArrivals; shown.Cut {
			break
		}
		shown.Arrivals = append(shown.Arrivals, arrivalPart{a, mask.phone(a.Phone), mask.email(a.Email)})
	}
	return shown, nil
}

// contactsOf returns what is known of the contacts that came with arrivals, by the folded contact.
func contactsOf(arrivals []lead.PartArrival) map[string]contactShown {
	came := map[string]contactShown{}
	for _, a := range arrivals {
		for _, value := range []string{contact.FoldPhone(a.Phone), a.Email} {
			one := came[value]
			came[value] = contactShown{Arrivals: one.Arrivals + 1, With: cmp.Or(one.With, a.TouchID)}
		}
	}
	return came
}

func (m masker) contact(kind string, c query.Contact, came map[string]contactShown) contactShown {
	key := c.Value
	if kind == "phone" {
		key = contact.FoldPhone(key)
	}
	shown := came[key]
	shown.Contact, shown.Kind = c, kind
	shown.Value = m.value(kind, c.Value)
	return shown
}

// splitPage is the preview of a split: both leads as they would be.
type splitPage struct {
	Of            string // id of the lead that stays
	Stays, Leaves splitSide
	Undone        bool // a join is undone
	Arrivals      int  // that leave
	Choice        []chosenPart
	Query         string // that has the choice
	Revealed      bool   // by the button
	Masked        bool
}

// chosenPart is a member of the form that confirms a split.
type chosenPart struct{ Name, Value string }

// splitSide is a lead of a split, masked or not.
type splitSide struct {
	leadShown
	Contacts []contactShown // the first of them
	More     int            // others
	Arrivals int
}

func (m masker) splitSide(of lead.State) splitSide {
	one := query.NewLead(of)
	one.Metadata = of.Metadata
	side := splitSide{leadShown: m.lead(one)}
	contacts := query.NewContacts(of)
	var all []contactShown
	for _, c := range contacts.Emails {
		all = append(all, m.contact("email", c, nil))
	}
	for _, c := range contacts.Phones {
		all = append(all, m.contact("phone", c, nil))
	}
	side.Contacts = first(all)
	side.More = len(all) - len(side.Contacts)
	for _, source := range of.Sources {
		side.Arrivals += source.Arrivals
	}
	return side
}

// showSplit shows both leads as a split would make them.
func (v *visit) showSplit(mask masker) (screen, error) {
	values := QueryParams(v.r)
	body, err := v.splitBody(values)
	if err != nil {
		return screen{}, err
	}
	id, caller := v.id("id"), v.caller
	caller.FromPage = false // forms of other sites are rejected
	split, err := v.Commands.SplitLead(v.ctx, command.SplitLead{Caller: caller, LeadID: id, Body: body, DryRun: true})
	if err != nil {
		return screen{}, err
	}
	shown := splitPage{
		Of: id, Stays: mask.splitSide(split.Stays), Leaves: mask.splitSide(split.Leaves), Undone: split.Undone,
		Arrivals: split.Arrivals,
		Revealed: mask.revealed && !v.reads(), Masked: !mask.revealed,
	}
	chosen := url.Values{}
	for _, name := range splitChoices {
		for _, value := range values[name] {
			chosen.Add(name, value)
			shown.Choice = append(shown.Choice, chosenPart{name, value})
		}
	}
	shown.Query = "?" + chosen.Encode()
	title := "Split lead " + id
	if split.Undone {
		title = "Undo a join into lead " + id
	}
	return screen{name: "split", title: title, data: shown, calls: v.splitCalls(id, body), reveals: mask.reveals(id)}, nil
}

// splitCalls split the lead. They have no phone or email.
func (v *visit) splitCalls(id string, body map[string]jsontext.Value) []call {
	shown := maps.Clone(body)
	for _, kind := range []string{"phone", "email"} {
		if shown[kind] != nil {
			shown[kind] = mustJSON(strings.ToUpper(kind))
		}
	}
	at := "/api/v1/crm/leads/" + id
	return v.calls(
		v.post("leads:write", "This split", at+"/split", shown).withNote("The answer has both leads, unmasked."),
		v.get("leads:read", "The lead, with its phones and emails", at).withNote(unmasked))
}

func (v *visit) splitLead() (screen, error) {
	form, err := v.form()
	if err != nil {
		return screen{}, err
	}
	body, err := v.splitBody(form)
	if err != nil {
		return screen{}, err
	}
	id := v.id("id")
	split, err := v.Commands.SplitLead(v.ctx, command.SplitLead{Caller: v.caller, LeadID: id, Body: body})
	if err != nil {
		return screen{}, err
	}
	v.waitForViews(split.Position, query.LeadView, query.TouchView)
	return screen{redirect: v.path("/leads/" + id)}, nil
}

// splitChoices are the parameters that choose what leaves a lead. A phone or email is chosen by a touch that it came
// with, because an address of a page must not have it.
var splitChoices = []string{"touches", "phone", "email", "lead"}

// splitBody returns the body of a request to split a lead. The errors are field.Errors and those of Handlers.LeadParts.
func (v *visit) splitBody(chosen url.Values) (map[string]jsontext.Value, error) {
	body := map[string]jsontext.Value{}
	for _, name := range splitChoices {
		values := slices.DeleteFunc(slices.Clone(chosen[name]), func(value string) bool { return value == "" })
		switch {
		case len(values) == 0:
		case !isText(values...):
			return nil, notTextError(name)
		case name == "touches":
			body[name] = mustJSON(values)
		case name == "lead":
			body[name] = mustJSON(values[0])
		default:
			value, err := v.contactOf(name, values[0])
			if err != nil {
				return nil, err
			}
			body[name] = mustJSON(value)
		}
	}
	if len(body) == 0 {
		return nil, field.Errors{{Field: "touches", Message: "must be chosen: no arrival was"}}
	}
	return body, nil
}

// contactOf returns the phone or email that came with a touch of the lead.
func (v *visit) contactOf(kind, touchID string) (string, error) {
	parts, err := v.Commands.LeadParts(v.ctx, v.identity.Account, v.id("id"))
	if err != nil {
		return "", err
	}
	for _, a := range parts.Arrivals {
		value := a.Email
		if kind == "phone" {
			value = a.Phone
		}
		if a.TouchID == touchID && value != "" {
			return value, nil
		}
	}
	return "", field.Errors{{Field: kind, Message: "must be of an arrival that this lead has"}}
}
