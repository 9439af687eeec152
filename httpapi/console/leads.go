package console

import (
	"cmp"
	"slices"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/query"
)

// leadList is the page of leads.
type leadList struct {
	Filter  map[string]string
	Wrong   field.Errors
	Choices leadChoices
	Leads   []leadShown
	Next    string // query string of the part that comes after
	First   string // that of the first part; empty when it is this one
	Query   string // that of all of it, for exports
	Active  bool   // something is filtered
}

// leadChoices are what filters can be set to.
type leadChoices struct{ Stages, Sources, Temperatures []string }

var leadFilters = []string{"q", "phone", "email", "status", "source", "leadTemperature", "createdSince", "createdUntil"}

func (v *visit) leads() (screen, error) {
	p := v.params()
	settings, err := v.Directory.Account(v.ctx, v.identity.Account)
	if err != nil {
		return screen{}, err
	}
	shown := leadList{
		Filter: map[string]string{}, Query: p.without("cursor"),
		Choices: leadChoices{settings.State.Stages, lead.Sources(), []string{"hot", "warm", "cold"}},
	}
	for _, name := range leadFilters {
		shown.Filter[name] = p.text(name)
		shown.Active = shown.Active || shown.Filter[name] != ""
	}
	page := p.page()
	filter := leadFilter(p, cmp.Or(settings.State.Region, account.DefaultRegion))
	if shown.Wrong = p.wrong; shown.Wrong != nil {
		return screen{name: "leads", title: "Leads", status: 400, data: shown}, nil
	}
	list, err := v.Query.Leads(v.ctx, v.identity.Account, filter, page)
	if err != nil {
		return screen{}, err
	}
	for _, one := range list.Items {
		shown.Leads = append(shown.Leads, lens{}.lead(one))
	}
	if page.Cursor != "" {
		shown.First = cmp.Or(p.without("cursor"), "?")
	}
	if list.NextCursor != "" {
		shown.Next = p.with("cursor", list.NextCursor)
	}
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

// fault is what is wrong with a field of a form, or nothing.
func fault(wrong field.Errors, name string) string {
	i := slices.IndexFunc(wrong, func(e field.Error) bool { return e.Field == name })
	if i < 0 {
		return ""
	}
	return wrong[i].Message
}
