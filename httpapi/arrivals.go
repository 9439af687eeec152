package httpapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/worker/resubmit"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/query"
)

// listArrivals lists the arrivals at the account's intakes, and quarantined captures of the API.
func (ex *exchange) listArrivals() (answer, error) {
	p := ex.params()
	filter := query.ArrivalFilter{
		State: p.oneOf("state", arrival.States()...), IntakeID: p.text("intakeId"), Reason: p.text("reason"),
		Since: p.time("since"), Until: p.time("until"),
	}
	return accountList(ex, p, func(page query.Page) (query.List[query.Arrival], error) {
		return ex.Query.Arrivals(ex.ctx, ex.caller.Account, filter, page)
	}, query.ArrivalView)
}

// showArrival answers with an arrival and its raw body. The access is recorded before the answer.
func (ex *exchange) showArrival() (answer, error) {
	id, err := ex.ulidID(arrival.ErrNotFound)
	if err == nil {
		err = ex.waitFor(ex.params()) // for no view: it is answered from the log
	}
	if err != nil {
		return answer{}, err
	}
	shown, err := ex.Query.Arrival(ex.ctx, ex.caller.Account, id)
	if err == nil && shown.Raw != nil {
		err = ex.Commands.Reveal(ex.ctx, command.Reveal{Caller: ex.caller, What: command.RevealArrival, ArrivalID: id})
	}
	return found(shown, missing(err, arrival.ErrNotFound))
}

// resubmitArrival captures an arrival that is kept.
func (ex *exchange) resubmitArrival() (answer, error) {
	id, body, err := ex.idAndFields(arrival.ErrNotFound, "set")
	if err != nil {
		return answer{}, err
	}
	cmd := command.ResubmitArrival{ArrivalID: id}
	if body.has("set") {
		if cmd.Set, err = lead.Members(body.members["set"]); err != nil {
			body.wrong.Add("set", "must be an object of a capture's fields")
		}
	}
	if body.wrong != nil {
		return answer{}, body.wrong
	}
	if cmd.Admission, err = ex.Directory.Admit(ex.ctx, ex.caller); err != nil {
		return answer{}, err
	}
	captured, err := ex.Commands.ResubmitArrival(ex.ctx, cmd)
	if errors.Is(err, arrival.ErrPending) && len(cmd.Set) == 0 {
		return ex.fetchedAgain(cmd, captured.Position)
	}
	if err == nil {
		ex.shows(captured.Lead.ID)
	}
	return answer{position: captured.Position, body: newCapturedEnvelope(&captured, false)}, err
}

// fetchWait is how long a resubmission waits for the sender's API.
const (
	fetchWait = 5 * time.Second
	fetchPoll = 100 * time.Millisecond
)

// fetchedAgain answers with the outcome of fetching an arrival again, or that fetching has not ended.
func (ex *exchange) fetchedAgain(cmd command.ResubmitArrival, from eventstore.Position) (answer, error) {
	pending := answer{
		status: http.StatusAccepted, position: from,
		body: envelope{Success: true, Message: "The arrival is being fetched"},
	}
	waiting := ex.load.waiting.of(ex.caller.Account)
	if !waiting.reserve(1) {
		return pending, nil
	}
	defer waiting.release(1)
	cmd.NoFetch = true
	for begun := time.Now(); time.Since(begun) < fetchWait; {
		if err := eventstore.Sleep(ex.ctx, fetchPoll); err != nil {
			return answer{}, err
		}
		captured, err := ex.Commands.ResubmitArrival(ex.ctx, cmd)
		if !errors.Is(err, arrival.ErrPending) {
			return answer{position: captured.Position, body: newCapturedEnvelope(&captured, false)}, err
		}
	}
	return pending, nil
}

// resubmitArrivals has all quarantined arrivals of an intake captured again, in the background.
func (ex *exchange) resubmitArrivals() (answer, error) {
	body, err := ex.fields("intakeId", "since", "until")
	if err != nil {
		return answer{}, err
	}
	request := resubmit.Request{
		Account: ex.caller.Account, IntakeID: body.text("intakeId"), Since: body.time("since"),
		Until: body.time("until"), Actor: ex.caller.Actor, Credential: ex.caller.Credential,
		RequestID: ex.caller.Correlation,
	}
	if request.IntakeID == "" && body.wrong == nil {
		body.wrong.Add("intakeId", "is required")
	}
	if err := body.with(nil); err != nil {
		return answer{}, err
	}
	if _, err := ex.Directory.Admit(ex.ctx, ex.caller); err != nil {
		return answer{}, err
	}
	if err := ex.Commands.OwnsIntake(ex.ctx, ex.caller.Account, request.IntakeID); err != nil {
		return answer{}, err
	}
	err = ex.Resubmissions.Add(ex.ctx, request)
	return answer{status: http.StatusAccepted, body: envelope{Success: true, Message: "Resubmission started"}}, err
}

// discardArrival discards an arrival and deletes its raw body.
func (ex *exchange) discardArrival() (answer, error) {
	id, err := ex.ulidID(arrival.ErrNotFound)
	if err != nil {
		return answer{}, err
	}
	position, err := ex.Eraser.DiscardArrival(ex.ctx, ex.Commands.Erasure(ex.caller), id)
	return done("Arrival discarded", position, err)
}
