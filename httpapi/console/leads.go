package console

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/leadlog/leadlog/command/account"
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

// fault is what is wrong with a field of a form, or nothing.
func fault(wrong field.Errors, name string) string {
	i := slices.IndexFunc(wrong, func(e field.Error) bool { return e.Field == name })
	if i < 0 {
		return ""
	}
	return wrong[i].Message
}
