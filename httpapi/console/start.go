package console

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/command/turns"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/query"
)

// start is the first steps of an account: a form, a test lead, and its arrival.
type start struct {
	Form    *query.Intake  // the newest that is enabled; nil: none
	Lead    *leadShown     // the first to arrive; nil: none has
	Waiting *query.Arrival // in quarantine; nil: none
	Create  bool           // the user may create a form
	Send    bool           // the user may send a test lead, and there is a form
	Demo    bool           // the user may add demo data
}

// demo is the account's demo data.
type demo struct {
	Leads  int
	Total  int  // leads of complete demo data
	Intake bool // the demo intake exists; false while demo data is being removed
	May    bool // the user may add and remove demo data
}

// Missing reports whether adding demo data has not ended, or some of its leads were erased.
func (d demo) Missing() bool { return d.Leads < d.Total }

// addStart adds the first steps while the account has at most one lead, or the state of the demo data.
func (v *visit) addStart(to *overview, mask masker) error {
	data, err := v.Query.DemoData(v.ctx, v.identity.Account)
	if err != nil {
		return err
	}
	mayDemo := v.identity.May("leads:write") && v.identity.May("intakes:write")
	if data.IntakeID != "" || len(data.Leads) > 0 {
		to.Demo = &demo{Leads: len(data.Leads), Total: len(demoNames), Intake: data.IntakeID != "", May: mayDemo}
		return nil
	}
	leads, err := v.Query.Leads(v.ctx, v.identity.Account, query.LeadFilter{}, query.Page{Limit: 2})
	if err != nil || len(leads.Items) > 1 {
		return err
	}
	steps := &start{Create: v.identity.May("intakes:write"), Demo: mayDemo}
	if steps.Form, err = v.newestForm(); err != nil {
		return err
	}
	if len(leads.Items) == 1 {
		steps.Lead = new(mask.lead(leads.Items[0]))
	}
	waiting, err := v.Query.LatestArrivals(v.ctx, v.identity.Account, query.ArrivalFilter{State: arrival.Quarantined},
		query.Page{Limit: 1})
	if err != nil {
		return err
	}
	if len(waiting.Items) > 0 {
		steps.Waiting = &waiting.Items[0]
	}
	steps.Send = steps.Form != nil && v.identity.May("leads:write")
	to.Start = steps
	return nil
}

func (v *visit) newestForm() (*query.Intake, error) {
	intakes, err := v.Query.Intakes(v.ctx, v.identity.Account, query.Page{Limit: rows})
	if err != nil {
		return nil, err
	}
	for i, one := range intakes.Items {
		if one.Kind == intake.Form && one.Enabled {
			return &intakes.Items[i], nil
		}
	}
	return nil, nil
}

// testPost is the body that the button for a test lead sends.
const testPost = "name=Test+Lead&email=test.lead%40example.com"

// sendTestLead posts a made-up person to the newest form, mapped as its posts are.
func (v *visit) sendTestLead() (screen, error) {
	ctx, cancel := context.WithTimeout(v.ctx, viewTimeout)
	defer cancel()
	_ = v.Query.CatchUp(ctx, query.IntakeView) // the form may have just been created
	form, err := v.newestForm()
	if err != nil {
		return screen{}, err
	}
	if form == nil {
		return screen{redirect: v.path("/")}, nil
	}
	found, err := v.Directory.Intake(v.ctx, form.IntakeID)
	if err != nil {
		return screen{}, err
	}
	const contentType = "application/x-www-form-urlencoded"
	var mapped intake.Mapped
	var wrong field.Errors
	err = v.Commands.Turns().Do(v.ctx, v.identity.Account, turns.Own, func() (cost turns.Cost) {
		mapped, wrong = found.Mapping.Map(intake.Request{ContentType: contentType, Body: []byte(testPost)})
		return cost
	})
	if err != nil {
		return screen{}, err
	}
	_, err = v.arrive(form.IntakeID, command.ReceiveArrival{
		Raw:    event.ArrivalRaw{ContentType: contentType}.WithBody([]byte(testPost)),
		Mapped: command.MappedBy(mapped, wrong),
	})
	if err != nil {
		return screen{}, err
	}
	return v.toStart(query.LeadView, query.ArrivalView)
}

// arrive appends an arrival at an intake, as if its sender had posted it.
func (v *visit) arrive(intakeID string, cmd command.ReceiveArrival) (received command.ArrivalReceived, err error) {
	cmd.IntakeID, cmd.Caller = intakeID, v.caller
	cmd.Caller.Actor, cmd.Caller.Credential, cmd.Caller.IP, cmd.Caller.UserAgent = "system:intake",
		"intake:"+intakeID, "", ""
	of, err := v.Directory.Intake(v.ctx, intakeID)
	for range 2 { // the cached intake may have changed
		if err != nil {
			return received, err
		}
		cmd.Intake = of.Check()
		if received, err = v.Commands.ReceiveArrival(v.ctx, cmd); !errors.Is(err, command.ErrIntakeChanged) {
			return received, err
		}
		of, err = v.Directory.ConfirmIntake(v.ctx, intakeID)
	}
	return received, command.ErrIntakeChanged
}

// mustJSON encodes a value that this package made.
func mustJSON(value any) jsontext.Value {
	encoded, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		panic(err)
	}
	return encoded
}
