package httpapi

import (
	"bytes"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/lead"
)

// listConsents answers with the consents of a lead.
func (ex *exchange) listConsents() (answer, error) {
	p := ex.params()
	current := p.flag("current")
	id, err := ex.ulidID(lead.ErrNotFound)
	if err == nil {
		err = ex.waitFor(p) // for no view: consents are read from the log
	}
	if err != nil {
		return answer{}, err
	}
	leave, err := ex.enterStream()
	if err != nil {
		return answer{}, err
	}
	defer leave()
	found, err := ex.Query.Consents(ex.ctx, ex.caller.Account, id, current)
	return answer{body: listEnvelope{Success: true, Data: found}}, missing(err, lead.ErrNotFound)
}

// recordConsents records one consent or a list of them, and answers with what is current. A caller who may not read
// leads gets what was sent.
func (ex *exchange) recordConsents() (answer, error) {
	id, err := ex.ulidID(lead.ErrNotFound)
	if err != nil {
		return answer{}, err
	}
	given, err := ex.objects("consent")
	if err != nil {
		return answer{}, err
	}
	cmd := command.RecordConsents{Caller: ex.caller, LeadID: id, Consents: given}
	recorded, position, err := ex.Commands.RecordConsents(ex.ctx, cmd)
	if err != nil {
		return answer{}, err
	}
	created := answer{status: http.StatusCreated, position: position, body: envelope{Success: true, Data: recorded}}
	if !ex.caller.ReadsLeads || ex.caller.FromPage {
		return created, nil
	}
	ex.shows(id)
	current, err := ex.Query.Consents(ex.ctx, ex.caller.Account, id, true)
	created.body = envelope{Success: true, Data: current}
	return created, missing(err, lead.ErrNotFound)
}

// objects reads a body that is an object or a list, strictly. Name is that of the body in errors.
func (ex *exchange) objects(name string) (jsontext.Value, error) {
	if encoded(ex.r.Header) {
		return nil, errCoding
	}
	if !acceptable(ex.r.Header, mediaJSON) {
		return nil, errMediaType
	}
	raw, err := ex.readBodyUpTo(maxBody, errTooLarge)
	if err != nil {
		return nil, err
	}
	ex.bodyRead()
	raw = bytes.TrimPrefix(raw, byteOrderMark)
	members, err := lead.ParseObject(append(append([]byte(`{"`+name+`":`), raw...), '}'))
	return members[name], err
}
