package command_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// post returns a post of several persons: new ones, one that comes twice, one who is known, one refused, one without a
// contact, and a delivery that the post has twice.
func post() (all []command.ReceiveArrival) {
	for i, body := range []string{
		`{"phone":"+919876512345","name":"Asha"}`, `{"phone":"+919876512346"}`,
		`{"phone":"+919876512345","email":"asha@example.com"}`, `{"email":"asha@example.com","name":"Asha Rao"}`,
		`{"phone":"+919876500002"}`, `{"phone":"12"}`, `{"phone":"+919876512347"}`,
	} {
		cmd := receiveCommand(body)
		cmd.DeliveryID = fmt.Sprint("post ", i)
		all = append(all, cmd)
	}
	duplicate := receiveCommand(`{"phone":"+919876500001"}`)
	duplicate.Source = "api"
	again := receiveCommand(`{"phone":"+919876512399"}`)
	again.DeliveryID = "post 0"
	return append(all, duplicate, again)
}

func states(answers []command.ArrivalReceived) (all []string) {
	for _, a := range answers {
		all = append(all, a.State)
	}
	return all
}

func TestReceivePost_OneAppend(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log := &appendRecorder{Store: w.log}
	p := w.processOn(log)
	before := len(w.events())
	answers, err := p.ReceivePost(t.Context(), post())
	require.NoError(t, err)
	want := []string{
		arrival.Captured, arrival.Captured, arrival.Captured, arrival.Captured, arrival.Captured, arrival.Quarantined,
		arrival.Captured, arrival.Refused, "",
	}
	require.Equal(t, want, states(answers))
	require.Equal(t, answers[0].ID, answers[8].ID, "the same delivery")
	require.LessOrEqual(t, len(log.appends), 2, "the second after what the first had wrong")
	all := w.events()
	require.Equal(t, all[len(all)-1].Position, answers[0].Position)
	leads := map[string]int{}
	for _, r := range all[before:] {
		if strings.HasPrefix(r.Stream, event.LeadPrefix) {
			leads[r.Stream]++
		}
	}
	require.Len(t, leads, 4, "one for each person: %v", leads)

	count := len(all)
	again, err := w.process().ReceivePost(t.Context(), post()[:7])
	require.NoError(t, err)
	for i := range again {
		require.Equal(t, answers[i].ID, again[i].ID)
		require.True(t, again[i].Repeated)
	}
	require.Len(t, w.events(), count, "a post that is sent again has no effect")
}

// New persons are decided on without a read, and appended at once.
func TestReceivePost_NewPersonsReadNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log := &appendRecorder{Store: w.log}
	p := w.processOn(log)
	var all []command.ReceiveArrival
	for i := range 100 {
		cmd := receiveCommand(fmt.Sprintf(`{"phone":"+9198765%05d","email":"p%d@example.com"}`, 20000+i, i))
		cmd.DeliveryID = fmt.Sprint(i)
		all = append(all, cmd)
	}
	answers, err := p.ReceivePost(t.Context(), all)
	require.NoError(t, err)
	require.Len(t, answers, 100)
	require.Len(t, log.appends, 1)
}

// failing is a store whose appends fail after so many.
type failing struct {
	eventstore.Store
	mu    sync.Mutex
	after int
}

func (s *failing) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.after--; s.after < 0 {
		return 0, eventstore.ErrUnavailable
	}
	return s.Store.Append(ctx, writes...)
}

func TestReceivePost_AllOrNone(t *testing.T) {
	t.Parallel()
	for after := range 4 {
		w := newWorld(t)
		before := len(w.events())
		_, err := w.processOn(&failing{Store: w.log, after: after}).ReceivePost(t.Context(), post())
		received := 0
		for _, r := range w.events()[before:] {
			if r.Type == (event.ArrivalReceived{}).EventType() {
				received++
			}
		}
		if err != nil {
			require.ErrorIs(t, err, eventstore.ErrUnavailable)
			require.Len(t, w.events(), before, "after %d appends", after)
		} else {
			require.Equal(t, len(post())-1, received)
		}
	}
}

func TestReceivePost_IntakeChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := post()
	for i := range all {
		all[i].Intake.Expect = eventstore.At(3)
	}
	before := len(w.events())
	_, err := w.process().ReceivePost(t.Context(), all)
	require.ErrorIs(t, err, command.ErrIntakeChanged)
	require.Len(t, w.events(), before)
}

func TestReceivePost_TooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var all []command.ReceiveArrival
	for i := range eventstore.MaxAppend/(900<<10) + 1 {
		cmd := receiveCommand(`{}`)
		cmd.DeliveryID = fmt.Sprint(i)
		cmd.Mapped = command.Mapped{Wrong: field.Errors{{Field: "x", Message: strings.Repeat("x", 900<<10)}}}
		all = append(all, cmd)
	}
	before := len(w.events())
	_, err := w.process().ReceivePost(t.Context(), all)
	require.ErrorIs(t, err, command.ErrArrivalTooLarge)
	require.Len(t, w.events(), before)
}

// Two processes receive the same post at once, and a third captures one of its persons meanwhile.
func TestReceivePost_Concurrent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := post()[:7]
	before := len(w.events())
	var group sync.WaitGroup
	answers := make([][]command.ArrivalReceived, 3)
	errs := make([]error, 4)
	for i := range answers {
		p := w.process()
		group.Go(func() { answers[i], errs[i] = p.ReceivePost(t.Context(), all) })
	}
	other := w.process()
	group.Go(func() { _, errs[3] = other.ReceiveArrival(t.Context(), receiveCommand(`{"phone":"+919876512346"}`)) })
	group.Wait()
	require.NoError(t, errors.Join(errs...))
	for i := range all {
		require.Equal(t, answers[0][i].ID, answers[1][i].ID)
		require.Equal(t, answers[0][i].ID, answers[2][i].ID)
	}
	created := 0
	for _, r := range w.events()[before:] {
		if r.Type == (event.LeadCreated{}).EventType() {
			created++
		}
	}
	require.Equal(t, 3, created)
}

func TestReceiveArrival_RedeliveredQuarantined(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process()
	deliver := func(body string, change func(*command.ReceiveArrival)) command.ArrivalReceived {
		cmd := receiveCommand(body)
		cmd.DeliveryID, cmd.Raw = "d-1", event.ArrivalRaw{ContentType: "application/json", Body: body}
		if change != nil {
			change(&cmd)
		}
		answer, err := p.ReceiveArrival(t.Context(), cmd)
		require.NoError(t, err)
		return answer
	}
	first := deliver(`{"name":"Asha"}`, nil)
	require.Equal(t, arrival.Quarantined, first.State)
	history := func() string { return strings.ReplaceAll(strings.Join(w.stream(first.ID), " "), "arrival.", "") }
	same := deliver(`{"name":"Asha"}`, nil)
	require.True(t, same.Repeated)
	require.Equal(t, "received quarantined", history(), "the same again changes nothing")

	other := deliver(`{"name":"Asha Rao"}`, nil)
	require.Equal(t, first.ID, other.ID)
	require.Equal(t, "received quarantined redelivered", history(), "another body for the same reason")
	deliver(`{"phone":"12"}`, nil)
	require.Equal(t, "received quarantined redelivered redelivered quarantined", history())
	captured := deliver(`{"phone":"+919876512345"}`, nil)
	require.Equal(t, arrival.Captured, captured.State)
	require.False(t, captured.Repeated)
	require.Equal(t, "received quarantined redelivered redelivered quarantined redelivered captured", history())

	loaded, _, err := eventstore.Load(t.Context(), w.log, event.ArrivalStream(first.ID), arrival.Evolve)
	require.NoError(t, err)
	require.Equal(t, `{"phone":"+919876512345"}`, loaded.Raw.Body)
	count := len(w.events())
	last := deliver(`{"phone":"+919876512388"}`, nil)
	require.True(t, last.Repeated, "one that was captured is a repetition")
	require.Len(t, w.events(), count)
}

func TestReceiveArrival_RedeliveredIsFetchedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process()
	announced := receiveCommand(`{}`)
	announced.DeliveryID, announced.Pending = "lead-1", true
	first, err := p.ReceiveArrival(t.Context(), announced)
	require.NoError(t, err)
	_, err = p.FinishArrival(t.Context(), command.FinishArrival{
		Caller: announced.Caller, ArrivalID: first.ID, Wrong: field.Errors{{Field: "body", Message: "was not fetched"}},
	})
	require.NoError(t, err)
	again, err := p.ReceiveArrival(t.Context(), announced)
	require.NoError(t, err)
	require.Equal(t, arrival.Received, again.State)
	require.Equal(t, first.ID, again.ID)
	require.Equal(t, []string{"arrival.received", "arrival.quarantined", "arrival.resubmitted"}, w.stream(first.ID))
	third, err := p.ReceiveArrival(t.Context(), announced)
	require.NoError(t, err)
	require.True(t, third.Repeated, "it is being fetched")
}

func TestReceiveArrival_RedeliveredAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad := receiveCommand(`{"phone":"12"}`)
	bad.DeliveryID = "d-1"
	_, err := w.process().ReceiveArrival(t.Context(), bad)
	require.NoError(t, err)
	good := receiveCommand(`{"phone":"+919876512345"}`)
	good.DeliveryID = "d-1"
	var group sync.WaitGroup
	for range 4 {
		p := w.process()
		group.Go(func() { _, _ = p.ReceiveArrival(t.Context(), good) })
	}
	group.Wait()
	created := 0
	for _, r := range w.events() {
		if r.Type == (event.LeadCreated{}).EventType() {
			var data event.LeadCreated
			require.NoError(t, json.Unmarshal(r.Data, &data))
			if data.Phone == "+919876512345" {
				created++
			}
		}
	}
	require.Equal(t, 1, created)
}
