package command_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// append appends a fact of the account acme to a stream.
func (w *world) append(stream string, data event.Data) {
	e := eventstore.Event{
		ID: ulid.Make(), At: time.Now().UTC().Truncate(time.Millisecond), Metadata: event.Metadata{Account: "acme"},
	}
	var err error
	e.Type, e.Data, err = event.Encode(data)
	require.NoError(w.t, err)
	_, err = w.log.Append(w.t.Context(), eventstore.Write{
		Stream: stream, Expect: eventstore.Any, Events: []eventstore.Event{e},
	})
	require.NoError(w.t, err)
}

// settings are the settings of an intake that maps the fields of a capture by name.
var settings = event.IntakeSettings{
	Kind: intake.StandardWebhooks, Source: "website", Enabled: true,
	Mapping: map[string]string{"skip": `"skip" in body`},
}

func (p process) resubmit(ctx context.Context, id, set string) (command.LeadCaptured, error) {
	admission, err := p.directory.Admit(ctx, owner)
	if err != nil {
		return command.LeadCaptured{}, err
	}
	cmd := command.ResubmitArrival{Admission: admission, ArrivalID: id}
	if set != "" {
		cmd.Set = members(set)
	}
	return p.ResubmitArrival(ctx, cmd)
}

// quarantined receives an arrival that must be quarantined.
func (w *world) quarantined(p process, body string) command.ArrivalReceived {
	answer, err := p.ReceiveArrival(w.t.Context(), receiveCommand(body))
	require.NoError(w.t, err)
	require.Equal(w.t, arrival.Quarantined, answer.State)
	return answer
}

func TestResubmitArrival_CapturesOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process()
	kept := w.quarantined(p, `{"phone":"12","name":"Asha"}`)
	received := w.arrival(kept.ID)

	changed := settings
	changed.Source = "chatbot"
	w.append(event.IntakeStream(intakeID), event.IntakeChanged{IntakeSettings: changed})

	_, err := p.resubmit(t.Context(), kept.ID, "")
	require.ErrorAs(t, err, new(*command.Quarantined))
	require.Equal(t, []string{"arrival.received", "arrival.quarantined"}, w.stream(kept.ID), "nothing has changed")
	_, err = p.resubmit(t.Context(), kept.ID, `{"email":"wrong"}`)
	require.ErrorAs(t, err, new(field.Errors))
	require.Len(t, w.arrival(kept.ID).Reasons, 2)

	first, err := p.resubmit(t.Context(), kept.ID, `{"phone":"+919876512345"}`)
	require.NoError(t, err)
	require.Equal(t, "Asha", first.Lead.Name)
	require.Equal(t, "chatbot", first.Lead.Source, "the source of the current settings")
	entry := first.Lead.Sources[0]
	require.Equal(t, received.ReceivedAt, entry.FirstSeenAt)
	require.Equal(t, intakeCaller.Credential, entry.Credential)
	require.Equal(t, intakeCaller.RequestID, entry.RequestID)
	for _, r := range w.events() {
		if r.Stream == event.ArrivalStream(kept.ID) && r.Type == (event.ArrivalResubmitted{}).EventType() {
			require.Equal(t, owner.Actor, r.Metadata.Actor)
		}
	}

	before := len(w.events())
	again, err := p.resubmit(t.Context(), kept.ID, `{"phone":"+919876599999"}`)
	require.NoError(t, err)
	require.Equal(t, first.Lead.ID, again.Lead.ID)
	require.Equal(t, first.Lead.Phone, again.Lead.Phone)
	require.Len(t, w.events(), before)
}

// Mappings of resubmissions, of fetched arrivals and of previews are limited like those of posts.
func TestResubmitArrival_WaitsForTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process()
	kept := w.quarantined(p, `{"phone":"12"}`)
	end, err := p.Turns().Acquire(t.Context(), "acme")
	require.NoError(t, err)
	expired, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = p.resubmit(expired, kept.ID, `{"phone":"+919876512345"}`)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	end()
	_, err = p.resubmit(t.Context(), kept.ID, `{"phone":"+919876512345"}`)
	require.NoError(t, err)
}

// An arrival with a delivery id or a skip that is wrong could be repaired by no field: setting deliveryId or skip made
// a custom field.
func TestResubmitArrival_SetResolvesFieldsOfPost(t *testing.T) {
	t.Parallel()
	for name, expression := range map[string]string{"deliveryId": `body.paid`, "skip": `body.paid > 5`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.process()
			id := w.received(p, func(r *command.ReceiveArrival) {
				*r = receiveCommand(`{"phone":"+919876512345","paid":true}`)
				r.Mapped.Wrong.Add(name, "is wrong")
			})
			changed := settings
			changed.Mapping = map[string]string{name: expression}
			w.append(event.IntakeStream(intakeID), event.IntakeChanged{IntakeSettings: changed})

			_, err := p.resubmit(t.Context(), id, "")
			wrong, _ := errors.AsType[field.Errors](err)
			require.Len(t, wrong, 1)
			require.Equal(t, name, wrong[0].Field)
			captured, err := p.resubmit(t.Context(), id, `{"name":"Asha"}`)
			require.NoError(t, err)
			require.Equal(t, "Asha", captured.Lead.Name)
			require.Len(t, captured.Lead.CustomFields, 1, "paid")
		})
	}
}

func TestResubmitArrival_Concurrent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	processes := []process{w.process(), w.process()}
	kept := w.quarantined(processes[0], `{"phone":"12"}`)
	leads := make([]string, 10)
	var running sync.WaitGroup
	for i := range leads {
		running.Go(func() {
			if captured, err := processes[i%2].resubmit(t.Context(), kept.ID, `{"phone":"+919876512345"}`); err == nil {
				leads[i] = captured.Lead.ID
			}
		})
	}
	running.Wait()
	for _, id := range leads {
		require.Equal(t, leads[0], id)
	}
	require.Equal(t, "arrival.received arrival.quarantined arrival.resubmitted arrival.captured",
		strings.Join(w.stream(kept.ID), " "))
}

func TestResubmitArrival_Refused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process()
	from := func(source string) {
		changed := settings
		changed.Source = source
		w.append(event.IntakeStream(intakeID), event.IntakeChanged{IntakeSettings: changed})
	}
	from("api")
	cmd := receiveCommand(`{"phone":"+919876500001","email":"three@example.com"}`)
	cmd.Source, cmd.Intake.Expect = "api", eventstore.At(1)
	answer, err := p.ReceiveArrival(t.Context(), cmd)
	require.NoError(t, err)
	require.Equal(t, arrival.Refused, answer.State)
	before := len(w.events())
	for range 2 { // nothing has changed
		_, err = p.resubmit(t.Context(), answer.ID, "")
		require.ErrorAs(t, err, new(*command.LeadRefused))
		require.Len(t, w.events(), before)
	}
	from("website")
	before = len(w.events())
	for range 2 {
		_, err = p.resubmit(t.Context(), answer.ID, "")
		require.NoError(t, err)
		require.Len(t, w.events(), before+3)
	}
}

func TestResubmitArrival_FetchesAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process()
	id := w.received(p, func(r *command.ReceiveArrival) {
		r.Pending, r.Raw = true, r.Raw.WithBody([]byte(`{"leadgen_id":444}`))
	})
	received := w.arrival(id).ReceivedAt
	ads := settings
	ads.Kind, ads.Source, ads.Mapping = intake.MetaLeadAds, "facebook_ad", nil
	w.append(event.IntakeStream(intakeID), event.IntakeChanged{IntakeSettings: ads})
	finish := func(wrong field.Errors) {
		_, err := p.FinishArrival(t.Context(), command.FinishArrival{
			Caller: command.Caller{Account: "acme", Actor: "system:fetch"}, ArrivalID: id, Wrong: wrong,
			Fetched: event.ArrivalRaw{
				ContentType: "application/json",
				Body:        `{"id":"444","field_data":[{"name":"email","values":["asha@example.com"]}]}`,
			},
		})
		require.NoError(t, err)
	}
	expired := field.Errors{{Field: "body", Message: "was not fetched: the API answered 400, code 190"}}
	finish(expired)

	_, err := p.resubmit(t.Context(), id, `{"name":"Asha"}`)
	require.ErrorAs(t, err, new(*command.Quarantined), "a name is not a contact")
	for range 2 { // the second has no effect
		_, err = p.resubmit(t.Context(), id, "")
		require.ErrorIs(t, err, arrival.ErrPending)
		require.True(t, command.Decided(err))
		state := w.arrival(id)
		require.Equal(t, arrival.Received, state.State)
		require.Empty(t, state.Reasons)
	}
	finish(expired)
	admission, err := p.directory.Admit(t.Context(), owner)
	require.NoError(t, err)
	_, err = p.ResubmitArrival(t.Context(), command.ResubmitArrival{Admission: admission, ArrivalID: id, NoFetch: true})
	quarantined, is := errors.AsType[*command.Quarantined](err)
	require.True(t, is)
	require.Equal(t, expired, quarantined.Errors)

	_, err = p.resubmit(t.Context(), id, "")
	require.ErrorIs(t, err, arrival.ErrPending)
	finish(nil)
	captured, err := p.resubmit(t.Context(), id, "")
	require.NoError(t, err)
	require.Equal(t, "asha@example.com", captured.Lead.Email)
	require.Equal(t, received, captured.Lead.Sources[0].FirstSeenAt)
	require.Equal(t, intakeCaller.Credential, captured.Lead.Sources[0].Credential)
	require.Equal(t, "received quarantined resubmitted quarantined resubmitted fetched captured",
		strings.ReplaceAll(strings.Join(w.stream(id), " "), "arrival.", ""))
}

// What Meta's tool for testing sends can be told only when it was fetched.
func TestFinishArrival_DiscardsTest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process()
	id := w.received(p, func(r *command.ReceiveArrival) {
		r.Pending, r.Raw = true, r.Raw.WithBody([]byte(`{"leadgen_id":444}`))
	})
	ads := settings
	ads.Kind, ads.Source, ads.Mapping = intake.MetaLeadAds, "facebook_ad", nil
	w.append(event.IntakeStream(intakeID), event.IntakeChanged{IntakeSettings: ads})
	_, err := p.FinishArrival(t.Context(), command.FinishArrival{
		Caller: command.Caller{Account: "acme", Actor: "system:fetch"}, ArrivalID: id,
		Fetched: event.ArrivalRaw{ContentType: "application/json", Body: `{"id":"444","field_data":[
			{"name":"email","values":["asha@example.com"]},
			{"name":"full_name","values":["<test lead: dummy data for full_name>"]}]}`},
	})
	require.NoError(t, err)
	require.Equal(t, arrival.Discarded, w.arrival(id).State)
}

func TestResubmitArrival_NotCaptured(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(w *world, p process) string
		want error
	}{
		"unknown": {func(*world, process) string { return intakeID }, arrival.ErrNotFound},
		"no id":   {func(*world, process) string { return "x" }, arrival.ErrNotFound},
		"pending": {func(w *world, p process) string {
			return w.received(p, func(r *command.ReceiveArrival) { r.Pending = true })
		}, arrival.ErrPending},
		"test": {func(w *world, p process) string {
			return w.received(p, func(r *command.ReceiveArrival) { r.Mapped.Test = true })
		}, arrival.ErrDiscarded},
		"now skip": {func(w *world, p process) string {
			return w.quarantined(p, `{"skip":true}`).ID
		}, arrival.ErrDiscarded},
		"other's": {func(w *world, p process) string {
			return w.received(p, func(r *command.ReceiveArrival) { r.Caller.Account = "other"; r.Pending = true })
		}, arrival.ErrNotFound},
		"not fetched, no feature": {func(w *world, p process) string {
			id := w.received(p, func(r *command.ReceiveArrival) { r.Pending = true })
			ads := settings
			ads.Kind, ads.Mapping = intake.MetaLeadAds, nil
			w.append(event.IntakeStream(intakeID), event.IntakeChanged{IntakeSettings: ads})
			_, err := p.FinishArrival(w.t.Context(), command.FinishArrival{
				Caller: command.Caller{Account: "acme", Actor: "system:fetch"}, ArrivalID: id,
				Wrong: field.Errors{{Field: "body", Message: "was refused"}},
			})
			require.NoError(w.t, err)
			p.configure(w.t, account.Settings{Features: []string{}})
			return id
		}, command.ErrFeatureDisabled},
		"discarded": {func(w *world, p process) string { return w.discarded(p) }, arrival.ErrDiscarded},
		"no feature": {func(w *world, p process) string {
			id := w.quarantined(p, `{}`).ID
			p.configure(w.t, account.Settings{Features: []string{}})
			return id
		}, command.ErrFeatureDisabled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.process()
			id := c.make(w, p)
			_, err := p.resubmit(t.Context(), id, "")
			require.ErrorIs(t, err, c.want)
		})
	}
}

func (w *world) received(p process, change func(*command.ReceiveArrival)) string {
	cmd := receiveCommand(`{"phone":"+919876512345"}`)
	change(&cmd)
	answer, err := p.ReceiveArrival(w.t.Context(), cmd)
	require.NoError(w.t, err)
	return answer.ID
}

func (w *world) discarded(p process) string {
	id := w.quarantined(p, `{}`).ID
	_, err := p.eraser.DiscardArrival(w.t.Context(), p.Erasure(owner), id)
	require.NoError(w.t, err)
	return id
}

func TestFinishArrival_Outcomes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fetched string
		wrong   field.Errors
		state   string
		events  string
	}{
		"captured": {`{"phone":"+919876512345"}`, nil, arrival.Captured, "received fetched captured"},
		"wrong":    {`{"phone":"12"}`, nil, arrival.Quarantined, "received fetched quarantined"},
		"not fetched": {
			"", field.Errors{{Field: "body", Message: "was refused"}}, arrival.Quarantined, "received quarantined",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.process()
			id := w.received(p, func(r *command.ReceiveArrival) { r.Pending = true })
			finish := command.FinishArrival{
				Caller: command.Caller{Account: "acme", Actor: "system:fetch"}, ArrivalID: id, Wrong: c.wrong,
				Fetched: event.ArrivalRaw{ContentType: "application/json"}.WithBody([]byte(c.fetched)),
			}
			answer, err := p.FinishArrival(t.Context(), finish)
			require.NoError(t, err)
			require.Equal(t, c.state, answer.State)
			require.Equal(t, "arrival."+strings.ReplaceAll(c.events, " ", " arrival."), strings.Join(w.stream(id), " "))
			again, err := p.FinishArrival(t.Context(), finish)
			require.NoError(t, err)
			require.True(t, again.Repeated)
			require.Equal(t, c.state, again.State)
			require.Len(t, w.stream(id), strings.Count(c.events, " ")+1)
		})
	}
}

func TestCapture_QuarantineByAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process()
	bad := func(c *command.CaptureLead) error {
		admission, err := p.directory.Admit(t.Context(), owner)
		require.NoError(t, err)
		c.Admission, c.Body = admission, members(`{"phone":"12","name":"Asha"}`)
		_, err = p.CaptureLead(t.Context(), *c)
		return err
	}
	before := len(w.events())
	_, kept := errors.AsType[*command.Quarantined](bad(&command.CaptureLead{Quarantine: true}))
	require.False(t, kept, "quarantine is disabled in the account")
	require.Len(t, w.events(), before)

	p.configure(t, account.Settings{
		Features: []string{account.FeatureAPI}, Quarantine: new(true), QuarantineDays: new(7),
	})
	_, kept = errors.AsType[*command.Quarantined](bad(&command.CaptureLead{}))
	require.False(t, kept)
	_, kept = errors.AsType[*command.Quarantined](bad(&command.CaptureLead{Quarantine: true, DryRun: true}))
	require.False(t, kept)
	quarantined, kept := errors.AsType[*command.Quarantined](bad(&command.CaptureLead{
		Quarantine: true, IdempotencyKey: "k-1",
	}))
	require.True(t, kept)
	state := w.arrival(quarantined.ArrivalID)
	require.Equal(t, arrival.Quarantined, state.State)
	require.Equal(t, state.ReceivedAt.AddDate(0, 0, 7), state.ExpiresAt)
	require.Empty(t, state.TokenID)
	require.JSONEq(t, `{"phone":"12","name":"Asha"}`, state.Raw.Body)

	captured, err := p.resubmit(t.Context(), quarantined.ArrivalID, `{"phone":"+919876512345"}`)
	require.NoError(t, err)
	require.Equal(t, owner.Credential, captured.Lead.Sources[0].Credential)
	require.Equal(t, owner.IP, captured.Lead.Sources[0].IP)
	require.Equal(t, state.ReceivedAt, captured.Lead.Sources[0].FirstSeenAt)
}
