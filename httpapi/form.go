package httpapi

import (
	"errors"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/httpapi/challenge"
)

// formPost is a post to an intake of kind form. The answer must not reveal whether the account knows the person: it has
// no ids, no position and no quota headers, and is sent at fixed intervals.
type formPost struct {
	*exchange
	begun     time.Time
	body      []byte
	challenge *error // the outcome of the challenge, once it was verified
}

// receiveForm answers a post of a page's form, or of a script of the page.
func (ex *exchange) receiveForm() (answer, error) {
	f := &formPost{exchange: ex, begun: time.Now()} // for a duration, so not the configured clock
	if err := ex.byIntake(ex.checkOrigin); err != nil {
		return answer{}, err
	}
	if err := ex.takeArrival(); err != nil {
		return answer{}, err
	}
	var err error
	if f.body, err = ex.arrivalBody(); err != nil {
		return answer{}, err
	}
	if err := ex.byIntake(f.receive); err != nil {
		return answer{}, err
	}
	f.pace()
	return f.successAnswer(), nil
}

// formPace is the interval at which forms are answered. A known person takes longer than a new one, but much less than
// this.
const formPace = 50 * time.Millisecond

// pace waits until the next multiple of formPace since the request began.
func (f *formPost) pace() {
	timer := time.NewTimer(formPace - time.Since(f.begun)%formPace)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.r.Context().Done(): // the client has disconnected
	}
}

// receive appends the arrival and its outcome. Confirmed is false when nothing was appended.
func (f *formPost) receive() (confirmed bool, err error) {
	if _, err := f.checkOrigin(); err != nil {
		return false, err
	}
	raw := f.raw()
	if !intake.FromBrowser(raw.Headers) {
		f.caller.IP, f.caller.UserAgent = "", "" // of the sender's server
	}
	raw, mapped, wrong, err := f.mapped(raw, f.body)
	if err != nil {
		return false, err
	}
	if mapped.Honeypot {
		f.metrics.arrivals.WithLabelValues(intake.Form, "honeypot").Inc()
		return false, nil
	}
	if settings := f.intake.State.Settings; settings.Challenge != "" {
		if err := f.correctable(mapped, wrong); err != nil && f.asks(raw) {
			return false, err
		}
		if err := f.verify(mapped); errors.Is(err, challenge.ErrFailed) {
			return false, bad("challenge", "was not passed; please try again")
		} else if err != nil {
			wrong.Add("challenge", err.Error())
		}
	}
	received, err := f.appendArrival(command.ReceiveArrival{
		DeliveryID: mapped.DeliveryID, Raw: raw, AskPerson: f.asks(raw), Mapped: command.MappedBy(mapped, wrong),
	})
	if err != nil {
		return false, err
	}
	f.lastWrites.note(f.caller.Account, received.Position)
	return true, nil
}

// asks reports whether the sender is told what is wrong with the phone and email, instead of the post being kept.
func (f *formPost) asks(raw event.ArrivalRaw) bool {
	switch f.intake.State.Settings.OnInvalid {
	case intake.InvalidReject:
		return true
	case intake.InvalidKeep:
		return false
	}
	return intake.FromBrowser(raw.Headers)
}

// correctable returns the errors that the person can correct, before the challenge is verified: a provider accepts its
// token only once.
func (f *formPost) correctable(mapped intake.Mapped, wrong field.Errors) error {
	if len(wrong) > 0 {
		return nil
	}
	rules := lead.RulesOf(f.admission.Account.State, contact.Post)
	body, _ := lead.Repaired(mapped.Body, rules, true)
	_, err := lead.ParseArrival(body, rules, lead.Client{})
	invalid, _ := errors.AsType[field.Errors](err)
	return command.Correctable(invalid).Err()
}

// verify verifies the challenge, once for a request, and for repetitions of it: those have one delivery id, and so one
// effect.
func (f *formPost) verify(mapped intake.Mapped) error {
	if f.challenge == nil {
		response := challenge.Response{
			Provider: f.intake.State.Settings.Challenge, Secret: f.intake.Secrets.Challenge, Token: mapped.Challenge,
		}
		if mapped.DeliveryID != "" {
			response.Request = f.intake.ID + "/" + mapped.DeliveryID
		}
		err := f.Challenges.Verify(f.ctx, response)
		f.challenge = &err
	}
	return *f.challenge
}

// successAnswer is the answer to a form.
func (f *formPost) successAnswer() answer {
	redirect := f.intake.State.Settings.Redirect
	switch {
	case f.html && redirect != "":
		return answer{stream: func() error {
			f.w.Header().Set("Location", redirect)
			f.w.WriteHeader(http.StatusSeeOther)
			return nil
		}}
	case f.html:
		return answer{stream: func() error {
			return f.page(http.StatusOK, formPage{Title: "Thank you", Text: "Your message has been received."})
		}}
	}
	return answer{body: envelope{Success: true}}
}

const mediaHTML = "text/html"

// formPage is the page that a form posted without a script shows.
type formPage struct {
	Title  string
	Text   string
	Errors field.Errors
}

var formPageTemplate = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{.Title}}</title>
<h1>{{.Title}}</h1>
{{if not .Errors}}<p>{{.Text}}</p>
{{end}}{{with .Errors}}<ul>
{{range .}}<li>{{.Field}} {{.Message}}</li>
{{end}}</ul>
<p>Please go back and correct the form.</p>
{{end}}</html>
`))

// page writes a page. It may be shown in a frame, as the form may be.
func (ex *exchange) page(status int, p formPage) error {
	var text strings.Builder
	if err := formPageTemplate.Execute(&text, p); err != nil {
		return err
	}
	header := ex.w.Header()
	header.Set("Content-Security-Policy", "default-src 'none'")
	header.Set("Content-Type", mediaHTML+"; charset=utf-8")
	header.Set("Content-Length", strconv.Itoa(text.Len()))
	ex.w.WriteHeader(status)
	_, _ = ex.w.Write([]byte(text.String())) // net/http handles a client that has disconnected
	return nil
}
