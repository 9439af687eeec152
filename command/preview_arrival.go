package command

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/turns"
	"github.com/leadlog/leadlog/eventstore/event"
)

// PreviewArrival is the query for the outcome that a post to an intake would have.
type PreviewArrival struct {
	Account  string
	IntakeID string
	Request  intake.Request
	Mapping  *map[string]string // in place of the intake's; nil: the intake's
}

// ArrivalPreview is the answer: the capture's members, or why there would be none.
type ArrivalPreview struct {
	Mapped   intake.Mapped
	Fetched  []string     // ids of leads that Meta announces: each would be fetched, and mapped then
	Elements int          // how many arrivals the post has, of which this is the first; 0: it is one
	Arrival  lead.Arrival // valid only without Wrong
	Wrong    field.Errors // why it would be quarantined
	Warnings field.Warnings
	// a form's sender would be answered with those errors that a person can correct, and nothing would be kept
	Asked bool
}

// PreviewArrival maps and parses a post like an arrival, and appends nothing. It does not authenticate the sender. The
// errors are intake.ErrNotFound, field.Errors for a wrong mapping, and those of the store and the context.
func (h *Handlers) PreviewArrival(ctx context.Context, cmd PreviewArrival) (preview ArrivalPreview, err error) {
	if !event.ValidID(cmd.IntakeID) {
		return preview, intake.ErrNotFound
	}
	state, _, err := h.intakes.Load(ctx, h.store, event.IntakeStream(cmd.IntakeID))
	if err != nil {
		return preview, err
	}
	if _, err := state.Delete(cmd.Account); err != nil {
		return preview, err
	}
	settings := state.Settings
	if cmd.Mapping != nil {
		settings.Mapping = *cmd.Mapping
	}
	mapping, err := intake.Compile(settings)
	if err != nil {
		return preview, err
	}
	if settings.Kind == intake.MetaLeadAds && !intake.IsLead(cmd.Request.Body) {
		preview.announced(cmd.Request.Body)
		return preview, nil
	}
	account, err := h.directory.Account(ctx, cmd.Account)
	if err != nil {
		return preview, err
	}
	headers := make(map[string][]string, len(cmd.Request.Headers))
	for name, value := range cmd.Request.Headers {
		headers[name] = []string{value}
	}
	cmd.Request.Headers, cmd.Request.Region = intake.VisibleHeaders(settings, headers), account.State.Region
	var wrong field.Errors
	err = h.turns.Do(ctx, cmd.Account, turns.Own, func() (cost turns.Cost) {
		elements, whole, err := mapping.Split(cmd.Request)
		switch {
		case err != nil:
			wrong.Add("each", err.Error())
		case whole:
			preview.Mapped, wrong = mapping.Map(cmd.Request)
		case len(elements) == 0:
			preview.Mapped.Skip = true
		default:
			preview.Elements = len(elements)
			cmd.Request.ContentType, cmd.Request.Item = "application/json", true
			cmd.Request.Body, cmd.Request.Post = elements[0].Body, elements[0].Post
			preview.Mapped, wrong = mapping.Map(cmd.Request)
		}
		return cost
	})
	if err != nil {
		return preview, err
	}
	if preview.Mapped.Test || preview.Mapped.Skip || preview.Mapped.Honeypot { // the fields do not matter then
		return preview, nil
	}
	form := settings.Kind == intake.Form
	defer func() { preview.Asked = form && len(Correctable(preview.Wrong)) > 0 }()
	mapped := MappedBy(preview.Mapped, wrong)
	if preview.Wrong = mapped.Wrong; len(preview.Wrong) > 0 {
		return preview, nil
	}
	rules := lead.RulesOf(account.State, contact.Post)
	body, repaired := lead.Repaired(mapped.Body, rules, form)
	preview.Warnings = slices.Concat(mapped.Warnings, repaired)
	preview.Arrival, err = lead.ParseArrival(body, rules, lead.Client{})
	if err != nil && !errors.As(err, &preview.Wrong) {
		return preview, err
	}
	preview.Arrival.Source = cmp.Or(mapped.Source, preview.Arrival.Source)
	return preview, nil
}

// announced adds the leads that a post of Meta's webhooks announces.
func (p *ArrivalPreview) announced(body []byte) {
	changes, err := intake.Changes(body)
	if err != nil {
		p.Wrong.Add("body", err.Error())
		return
	}
	for _, change := range changes {
		if change.Wrong != nil {
			p.Wrong.Add("body", change.Wrong.Error())
			continue
		}
		p.Fetched = append(p.Fetched, change.ID)
	}
	p.Mapped.Skip = len(changes) == 0
}

// Lead returns the members of the capture's body, normalized; nil if there would be no capture.
func (p ArrivalPreview) Lead() map[string]jsontext.Value {
	if len(p.Wrong) > 0 || len(p.Fetched) > 0 || p.Mapped.Test || p.Mapped.Skip || p.Mapped.Honeypot {
		return nil
	}
	members := map[string]jsontext.Value{}
	text := func(name, value string) {
		if value != "" {
			members[name], _ = jsontext.AppendQuote(nil, value)
		}
	}
	a := p.Arrival
	for name, value := range lead.EachField(a.LeadFields) {
		if name == "opportunityValue" {
			members[name] = jsontext.Value(value) // a number
		} else {
			text(name, value)
		}
	}
	text("visitorId", a.VisitorID)
	text("source", a.Source)
	object := func(name string, of map[string]jsontext.Value) {
		if len(of) > 0 {
			members[name], _ = event.AppendJSON(nil, of)
		}
	}
	object("metadata", a.Metadata)
	object("customFields", a.CustomFields)
	return members
}
