package httpapi

import (
	"bytes"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/lead"
)

// listConsents answers with the consents of a lead.
func (x *exchange) listConsents() (answer, error) {
	p := x.params()
	current, unclear := p.flag("current")
	if unclear != nil {
		return answer{}, unclear
	}
	id, err := x.ulidID(lead.ErrNotFound)
	if err == nil {
		err = x.waitFor(p) // for no view: consents are read from the log
	}
	if err != nil {
		return answer{}, err
	}
	leave, err := x.enterStream()
	if err != nil {
		return answer{}, err
	}
	defer leave()
	found, err := x.Query.Consents(x.ctx, x.caller.Account, id, current)
	return answer{body: listEnvelope{Success: true, Data: found}}, missing(err, lead.ErrNotFound)
}

// recordConsents records one consent or a list of them, and answers with what is current. A caller who may not read
// leads gets what was sent.
func (x *exchange) recordConsents() (answer, error) {
	id, err := x.ulidID(lead.ErrNotFound)
	if err != nil {
		return answer{}, err
	}
	given, err := x.objects("consent")
	if err != nil {
		return answer{}, err
	}
	cmd := command.RecordConsents{Caller: x.caller, LeadID: id, Consents: given}
	recorded, position, err := x.Commands.RecordConsents(x.ctx, cmd)
	if err != nil {
		return answer{}, err
	}
	created := answer{status: http.StatusCreated, position: position, body: envelope{Success: true, Data: recorded}}
	if !x.caller.ReadsLeads || x.caller.FromPage {
		return created, nil
	}
	x.shows(id)
	current, err := x.Query.Consents(x.ctx, x.caller.Account, id, true)
	created.body = envelope{Success: true, Data: current}
	return created, missing(err, lead.ErrNotFound)
}

// objects reads a body that is an object or a list, strictly. Name is that of the body in errors.
func (x *exchange) objects(name string) (jsontext.Value, error) {
	if encoded(x.r.Header) {
		return nil, errCoding
	}
	if !acceptable(x.r.Header, mediaJSON) {
		return nil, errMediaType
	}
	raw, err := x.readBodyUpTo(maxBody, errTooLarge)
	if err != nil {
		return nil, err
	}
	x.bodyRead()
	raw = bytes.TrimPrefix(raw, byteOrderMark)
	members, err := lead.ParseObject(append(append([]byte(`{"`+name+`":`), raw...), '}'))
	return members[name], err
}
