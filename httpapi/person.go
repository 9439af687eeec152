package httpapi

import (
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/query"
)

// exportLead answers with everything about one person: the copy that data protection laws let the person ask for. Some
// lists are read from the log, so the views must not be behind it. The lists are written while they are read.
func (ex *exchange) exportLead() (answer, error) {
	id, err := ex.ulidID(lead.ErrNotFound)
	if err != nil {
		return answer{}, err
	}
	if err := ex.waitFor(ex.params()); err != nil { // for no view: the position is before the end of the log
		return answer{}, err
	}
	if err := ex.catchUp(query.LeadView, query.TouchView, query.VisitorActivityView); err != nil {
		return answer{}, err
	}
	person, err := ex.Query.Lead(ex.ctx, ex.caller.Account, id)
	if err != nil {
		return answer{}, missing(err, lead.ErrNotFound)
	}
	return answer{stream: func() error {
		leave, err := ex.load.exports.of(ex.caller.Account).enter()
		if err != nil {
			return err
		}
		defer leave()
		ex.w.Header().Set("Content-Type", mediaJSON+"; charset=utf-8")
		ex.w.Header().Set("Content-Disposition", `attachment; filename="lead-`+id+`.json"`)
		if ex.r.Method == http.MethodHead {
			return nil
		}
		out := &deadlineWriter{w: ex.w, control: http.NewResponseController(ex.w)}
		to := jsontext.NewEncoder(out, jsontext.AllowInvalidUTF8(true))
		return writePerson(to, person, ex.Query.Person(ex.detached(), ex.caller.Account, person))
	}}, nil
}

func writePerson(to *jsontext.Encoder, person query.Lead, parts []query.PersonPart) (err error) {
	write := func(tokens ...jsontext.Token) {
		for _, token := range tokens {
			if err == nil {
				err = to.WriteToken(token)
			}
		}
	}
	value := func(v any) {
		if err == nil {
			err = json.MarshalEncode(to, v, json.Deterministic(true))
		}
	}
	write(jsontext.BeginObject, jsontext.String("success"), jsontext.True)
	write(jsontext.String("data"), jsontext.BeginObject, jsontext.String("lead"))
	value(person)
	for _, part := range parts {
		write(jsontext.String(part.Name), jsontext.BeginArray)
		for item, failed := range part.Items {
			if failed != nil {
				return failed
			}
			if value(item); err != nil {
				return err
			}
		}
		write(jsontext.EndArray)
	}
	write(jsontext.EndObject, jsontext.EndObject)
	return err
}
