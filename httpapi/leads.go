package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/query"
)

func (ex *exchange) captureLead() (answer, error) {
	p := ex.params()
	dryRun := p.flag("dryRun")
	ex.dryRun = dryRun
	body, err := ex.members()
	if err == nil {
		err = p.wrong.Err()
	}
	if err != nil {
		return answer{}, ex.confirmRefusal(err)
	}
	key, err := idempotencyKey(ex.r.Header)
	if err != nil {
		return answer{}, ex.confirmRefusal(err)
	}
	outcome, err := ex.Commands.CaptureLead(ex.ctx, command.CaptureLead{
		Admission: ex.admission, Body: body, IdempotencyKey: key, Quarantine: true, DryRun: dryRun, EnterStream: ex.enterStream,
	})
	if replayed(&outcome, err) {
		ex.w.Header().Set(replayedHeader, "true")
	}
	if err != nil {
		return answer{}, err
	}
	ex.shows(outcome.Lead.ID)
	return answer{
		status: captureStatus(&outcome), position: outcome.Position, event: outcome.EventID,
		body: newCapturedEnvelope(&outcome, dryRun),
	}, nil
}

func captureStatus(c *command.LeadCaptured) int {
	if c.Merged {
		return http.StatusOK
	}
	return http.StatusCreated
}

// replayed reports whether an answer, or a refusal, is the earlier one of an idempotency key.
func replayed(c *command.LeadCaptured, err error) bool {
	if refused, is := errors.AsType[*command.LeadRefused](err); is {
		return refused.Replayed
	}
	if kept, is := errors.AsType[*command.Quarantined](err); is {
		return kept.Replayed
	}
	return c.Replayed
}

func (ex *exchange) listLeads() (answer, error) {
	p := ex.params()
	phone, err := ex.phoneFilter(p)
	if err != nil {
		return answer{}, err
	}
	stage, err := ex.stageFilter(p)
	if err != nil {
		return answer{}, err
	}
	contacts, err := ex.sharedFilter(p)
	if err != nil {
		return answer{}, err
	}
	filter := query.LeadFilter{
		Contacts: contacts,
		Status:   stage, Source: p.source(), LeadTemperature: p.oneOf("leadTemperature", lead.Temperatures()...),
		Q: p.text("q"), Phone: phone, Email: emailFilter(p),
		CreatedSince: p.time("createdSince"), CreatedUntil: p.time("createdUntil"),
	}
	filter.Consent, filter.Withdrawn = strings.CutPrefix(p.text("consent"), "-")
	if filter.Withdrawn && filter.Consent == "" {
		p.wrong.Add("consent", "must be a purpose, or - and a purpose")
	}
	if filter.Q != "" {
		if filter.Region, err = ex.region(); err != nil {
			return answer{}, err
		}
	}
	return accountList(ex, p, func(page query.Page) (query.List[query.Lead], error) {
		return ex.Query.Leads(ex.ctx, ex.caller.Account, filter, page)
	}, query.LeadView)
}

// sharedFilter returns how many contacts of a kind make a lead look like several persons, if the list is of such leads;
// otherwise 0.
func (ex *exchange) sharedFilter(p *params) (int, error) {
	if !p.flag("shared") {
		return 0, nil
	}
	settings, err := ex.Directory.Account(ex.ctx, ex.caller.Account)
	return settings.State.SeveralPersons(), err
}

// stageFilter returns a stage in the account's spelling, which its leads have. PostgreSQL alone cannot compare stages
// without regard to case: some letters have two lower-case forms, such as Σ, and some are equal to another, such as ſ
// and s.
func (ex *exchange) stageFilter(p *params) (string, error) {
	raw := p.text("status")
	if raw == "" {
		return "", nil
	}
	settings, err := ex.Directory.Account(ex.ctx, ex.caller.Account) // cached since the caller was admitted
	if stage, known := account.Stage(settings.State.Stages, raw); known {
		return stage, err
	}
	return raw, err
}

// phoneFilter parses a number as a capture of the account does.
func (ex *exchange) phoneFilter(p *params) (string, error) {
	raw := p.phone("phone")
	if raw == "" {
		return "", nil
	}
	region, err := ex.region()
	if err != nil {
		return "", err
	}
	phone, err := contact.ParsePhone(raw, region, contact.Hint{})
	if err != nil {
		p.wrong.Add("phone", err.Error())
	}
	return phone, nil
}

// region returns the account's region, by which its phones are read.
func (ex *exchange) region() (string, error) {
	settings, err := ex.Directory.ConfirmAccount(ex.ctx, ex.caller.Account)
	return cmp.Or(settings.State.Region, account.DefaultRegion), err
}

func emailFilter(p *params) string {
	raw := p.text("email")
	if raw == "" {
		return ""
	}
	email, err := contact.ParseEmail(raw)
	if err != nil {
		p.wrong.Add("email", err.Error())
	}
	return email
}

func (ex *exchange) showLead() (answer, error) {
	p := ex.params()
	asOf := p.time("asOf")
	if asOf.IsZero() {
		return one(ex, p, lead.ErrNotFound, ex.Query.Lead, query.LeadView)
	}
	id, err := ex.ulidID(lead.ErrNotFound)
	if err == nil {
		err = ex.waitFor(p) // for no view: asOf is answered from the log
	}
	if err != nil {
		return answer{}, err
	}
	leave, err := ex.enterStream()
	if err != nil {
		return answer{}, err
	}
	defer leave()
	shown, err := ex.Query.LeadAsOf(ex.ctx, ex.caller.Account, id, asOf)
	return found(shown, missing(err, lead.ErrNotFound))
}

func (ex *exchange) listLeadSources() (answer, error) {
	return listOf(ex, ex.params(), lead.ErrNotFound, ex.Query.LeadSources, query.LeadView, query.TouchView)
}

func (ex *exchange) listLeadEvents() (answer, error) {
	return listOf(ex, ex.params(), lead.ErrNotFound, ex.Query.LeadEvents)
}

// Headers of idempotent captures.
const (
	idempotencyHeader = "Idempotency-Key"
	replayedHeader    = "Idempotent-Replayed"
	maxIdempotencyKey = 255 // characters
)

// idempotencyKey returns the idempotency key of a request, empty when it has none. The error is field.Errors.
func idempotencyKey(header http.Header) (string, error) {
	keys := header.Values(idempotencyHeader)
	if len(keys) == 0 {
		return "", nil
	}
	if len(keys) > 1 || !visible(keys[0]) || len(keys[0]) > maxIdempotencyKey {
		return "", bad(idempotencyHeader, "must be one key of 1 to 255 visible ASCII characters")
	}
	return keys[0], nil
}

// updateLead changes a lead, releaseContact frees a phone or email of it, and joinLeads joins another lead into it.
func (ex *exchange) updateLead() (answer, error)     { return changed(ex, ex.Commands.UpdateLead) }
func (ex *exchange) releaseContact() (answer, error) { return changed(ex, ex.Commands.ReleaseContact) }
func (ex *exchange) joinLeads() (answer, error)      { return changed(ex, ex.Commands.JoinLeads) }

// splitLead takes arrivals of another person from a lead, or undoes a join. It answers with both leads.
func (ex *exchange) splitLead() (answer, error) {
	id, err := ex.ulidID(lead.ErrNotFound)
	if err != nil {
		return answer{}, err
	}
	body, err := ex.members()
	if err != nil {
		return answer{}, err
	}
	leave, err := ex.enterStream()
	if err != nil {
		return answer{}, err
	}
	defer leave()
	split, err := ex.Commands.SplitLead(ex.ctx, command.SplitLead{Caller: ex.caller, LeadID: id, Body: body})
	if err != nil {
		return answer{}, err
	}
	ex.shows(split.Leaves.ID)
	return answer{status: http.StatusCreated, position: split.Position, body: splitEnvelope{
		Success: true, Data: query.NewLead(split.Leaves), From: query.NewLead(split.Stays),
	}}, nil
}

// splitEnvelope is the body of the answer to a split.
type splitEnvelope struct {
	Success bool       `json:"success"`
	Data    query.Lead `json:"data"` // the lead that leaves
	From    query.Lead `json:"from"` // the lead that stays
}

// changing is a command that changes a lead according to a body.
type changing interface {
	command.UpdateLead | command.ReleaseContact | command.JoinLeads
}

// changed calls a command for the lead in the path, and answers with the lead after it.
func changed[C changing](ex *exchange, change func(context.Context, C) (command.LeadUpdated, error)) (answer, error) {
	id, err := ex.ulidID(lead.ErrNotFound)
	if err != nil {
		return answer{}, err
	}
	body, err := ex.members()
	if err != nil {
		return answer{}, err
	}
	updated, err := change(ex.ctx, C(command.UpdateLead{Caller: ex.caller, LeadID: id, Body: body}))
	if err == nil {
		ex.shows(updated.Lead.ID)
	}
	return answer{position: updated.Position, body: envelope{Success: true, Data: query.NewLead(updated.Lead)}}, err
}

// eraseLead erases a lead and its personal data.
func (ex *exchange) eraseLead() (answer, error) {
	id, err := ex.ulidID(lead.ErrNotFound)
	if err != nil {
		return answer{}, err
	}
	erased, err := ex.Eraser.EraseLead(ex.ctx, ex.Commands.Erasure(ex.caller), id)
	if err == nil && erased.Again {
		err = lead.ErrNotFound
	}
	return done("Lead erased", erased.Position, err)
}
