package command_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

const intakeID = "01JQKXZ8V4W9H6M3T2R5N7P0AG"

var intakeCaller = command.Caller{
	Account: "acme", Actor: "system:intake", Credential: "intake:" + intakeID, RequestID: "r-2",
}

// receiveCommand is a request to the intake of every world, whose source is website.
func receiveCommand(body string) command.ReceiveArrival {
	return command.ReceiveArrival{
		Caller: intakeCaller, IntakeID: intakeID,
		Intake: eventstore.Check(event.IntakeStream(intakeID), eventstore.At(0)), Source: "website",
		Raw: event.ArrivalRaw{
			ContentType: "application/json",
		}.WithBody([]byte(body)), Mapped: command.Mapped{Body: members(body)},
	}
}

// stream returns the event types of an arrival.
func (w *world) stream(id string) (types []string) {
	for _, r := range w.events() {
		if r.Stream == event.ArrivalStream(id) {
			types = append(types, event.PublicName(r.Type))
		}
	}
	return types
}

// arrival returns the state of an arrival.
func (w *world) arrival(id string) arrival.Arrival {
	state, _, err := eventstore.Load(w.t.Context(), w.log, event.ArrivalStream(id), arrival.Evolve)
	require.NoError(w.t, err)
	return state
}

func TestReceiveArrival_Outcomes(t *testing.T) {
	t.Parallel()
	wrong := field.Errors{{Field: "phone", Message: "must be a string"}}
	for name, c := range map[string]struct {
		body   string
		change func(*command.ReceiveArrival)
		state  string
		events string
		others string // types of the events on other streams
	}{
		"new lead": {
			`{"phone":"+919876512345"}`, nil, arrival.Captured, "received captured", "claim.taken lead.created",
		},
		"known lead": {`{"phone":"+919876500002"}`, nil, arrival.Captured, "received captured", "lead.merged"},
		"duplicate": {`{"phone":"+919876500001"}`, func(r *command.ReceiveArrival) { r.Source = "api" },
			arrival.Refused, "received refused",
			"lead.refused"},
		"duplicate by the mapping's source": {`{"phone":"+919876500001"}`,
			func(r *command.ReceiveArrival) { r.Mapped.Source = "api" }, arrival.Refused, "received refused", "lead.refused"},
		"wrong fields": {`{"phone":"12"}`, nil, arrival.Quarantined, "received quarantined", ""},
		"not mapped": {
			`{}`, func(r *command.ReceiveArrival) { r.Mapped.Wrong = wrong }, arrival.Quarantined,
			"received quarantined", "",
		},
		"test": {
			`{"phone":"+919876512345"}`, func(r *command.ReceiveArrival) { r.Mapped.Test = true }, arrival.Discarded,
			"received discarded", "",
		},
		"skip": {
			`{"phone":"+919876512345"}`, func(r *command.ReceiveArrival) { r.Mapped.Skip = true }, arrival.Discarded,
			"received discarded", "",
		},
		"pending": {`{}`, func(r *command.ReceiveArrival) { r.Pending = true }, arrival.Received, "received", ""},
	} {
		for _, delivery := range []string{"", "d-1"} {
			t.Run(name+" "+delivery, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				log := &appendRecorder{Store: w.log}
				p := w.processOn(log)
				before := len(w.events())
				cmd := receiveCommand(c.body)
				cmd.DeliveryID = delivery
				if c.change != nil {
					c.change(&cmd)
				}
				answer, err := p.ReceiveArrival(t.Context(), cmd)
				require.NoError(t, err)
				require.Equal(t, c.state, answer.State)
				if c.others != "lead.merged" && c.others != "lead.refused" { // these first try to create a lead
					require.Len(t, log.appends, 1)
				}
				events := "arrival." + strings.ReplaceAll(c.events, " ", " arrival.")
				require.Equal(t, events, strings.Join(w.stream(answer.ID), " "))
				after := w.events()
				require.Equal(t, after[len(after)-1].Position, answer.Position)
				var others []string
				for _, r := range after[before:] {
					if r.Stream != event.ArrivalStream(answer.ID) && r.Type != (event.ClaimBound{}).EventType() {
						others = append(others, event.PublicName(r.Type))
					}
				}
				require.Equal(t, c.others, strings.Join(others, " "))

				again, err := p.ReceiveArrival(t.Context(), cmd)
				require.NoError(t, err)
				require.Equal(t, delivery != "", again.Repeated)
				require.Equal(t, delivery != "", again.ID == answer.ID)
				require.Equal(t, delivery != "", len(w.events()) == len(after))
			})
		}
	}
}

// Ten digits that are an Indian mobile are one in a call, whatever country is beside them. From an intake or a file the
// country counts.
func TestCapture_PhoneCountryBySource(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process()
	const body = `{"phone":"9123456789","country":"DE"}`
	admission, err := p.directory.Admit(t.Context(), owner)
	require.NoError(t, err)
	require.Equal(t, "+919123456789", w.capture(p, body, "").answer.Lead.Phone)
	var imported command.LeadCaptured
	for _, source := range []string{"csv_import", ""} { // of a table, and of JSON lines
		imported, err = p.CaptureLead(t.Context(), command.CaptureLead{
			Admission: admission, Body: members(body), Source: source, Import: true,
		})
		require.NoError(t, err)
		require.Equal(t, "+499123456789", imported.Lead.Phone)
	}
	posted, err := p.ReceiveArrival(t.Context(), receiveCommand(body))
	require.NoError(t, err)
	require.Equal(t, imported.Lead.ID, w.arrival(posted.ID).LeadID)
}

func TestReceiveArrival_LeadNamesArrival(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process()
	answer, err := p.ReceiveArrival(t.Context(),
		receiveCommand(`{"phone":"+919876512345","metadata":{"source":"chatbot"}}`))
	require.NoError(t, err)
	events := w.events()
	last, err := events[len(events)-1].Fact()
	require.NoError(t, err)
	created := last.Data.(event.LeadCreated)
	require.Equal(t, "website", created.Source)
	require.Equal(t, intakeID, created.IntakeID)
	require.Equal(t, answer.ID, created.ArrivalID)
	require.Equal(t, intakeCaller.Credential, last.Metadata.Credential)
	state := w.arrival(answer.ID)
	require.Equal(t, created.ReceivedAt, state.ReceivedAt)
	require.Equal(t, state.ReceivedAt.AddDate(0, 0, event.DefaultQuarantineDays), state.ExpiresAt)
	require.Equal(t, event.LeadID(last.Stream), state.LeadID)
	require.Equal(t, last.ID.String(), state.EventID)
}

func TestReceiveArrival_ConcurrentDeliveries(t *testing.T) {
	t.Parallel()
	on := database(t)
	processes := []process{start(t, on), start(t, on)}
	processes[0].provision(t)
	(&world{t: t, log: processes[0].store}).append(event.IntakeStream(intakeID), event.IntakeCreated{
		IntakeSettings: settings, Slot: 1,
	})
	const each = 8
	answers := make([]command.ArrivalReceived, each*len(processes))
	var running sync.WaitGroup
	for i := range answers {
		running.Go(func() {
			cmd := receiveCommand(fmt.Sprintf(`{"phone":"+9198765123%02d"}`, i))
			cmd.DeliveryID = "d-1"
			answer, err := processes[i%len(processes)].ReceiveArrival(t.Context(), cmd)
			if err == nil {
				answers[i] = answer
			}
		})
	}
	running.Wait()
	first := 0
	for _, answer := range answers {
		require.Equal(t, answers[0].ID, answer.ID)
		if !answer.Repeated {
			first++
		}
	}
	require.Equal(t, 1, first)
}

func TestReceiveArrival_AskPersonReturnsErrors(t *testing.T) {
	t.Parallel()
	for body, fields := range map[string][]string{
		`{}`:                                  {"phone"},
		`{"email":"no address"}`:              {"email"},
		`{"phone":"12","email":"no address"}`: {"phone", "email"},
		`{"phone":"12","customFields":"x"}`:   {"phone"},
	} {
		w := newWorld(t)
		before := len(w.events())
		cmd := receiveCommand(body)
		cmd.AskPerson = true
		_, err := w.process().ReceiveArrival(t.Context(), cmd)
		wrong, is := err.(field.Errors)
		require.True(t, is, "%v", err)
		var named []string
		for _, e := range wrong {
			named = append(named, e.Field)
		}
		require.ElementsMatch(t, fields, named, body)
		require.Len(t, w.events(), before)
	}
	w := newWorld(t)
	cmd := receiveCommand(`{"phone":"+919876512345","customFields":"x"}`)
	cmd.AskPerson = true
	answer, err := w.process().ReceiveArrival(t.Context(), cmd)
	require.NoError(t, err)
	require.Equal(t, arrival.Captured, answer.State, "nothing but a contact costs the person")
}

func TestReceiveArrival_FeatureDisabled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process()
	p.configure(t, account.Settings{Features: []string{}})
	answer, err := w.process().ReceiveArrival(t.Context(), receiveCommand(`{"phone":"+919876512345"}`))
	require.NoError(t, err)
	require.Equal(t, arrival.Quarantined, answer.State)
}

func TestReceiveArrival_IntakeChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, body := range []string{`{"phone":"+919876512345"}`, `{"phone":"+919876500002"}`, `{"phone":"12"}`} {
		cmd := receiveCommand(body)
		cmd.Intake.Expect = eventstore.At(3)
		before := len(w.events())
		_, err := w.process().ReceiveArrival(t.Context(), cmd)
		require.ErrorIs(t, err, command.ErrIntakeChanged)
		require.Len(t, w.events(), before)
	}
}

func TestReceiveArrival_OutcomeTooLarge(t *testing.T) {
	t.Parallel()
	cmd := receiveCommand(`{}`)
	cmd.Mapped = command.Mapped{Wrong: field.Errors{{Field: "x", Message: strings.Repeat("x", eventstore.MaxAppend)}}}
	_, err := newWorld(t).process().ReceiveArrival(t.Context(), cmd)
	require.ErrorIs(t, err, command.ErrArrivalTooLarge)
}

// Reasons are visible in lists of arrivals, so they must not have the names of custom fields, which senders choose.
func TestReceiveArrival_ReasonsHaveNoValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cmd := receiveCommand(`{"phone":"+919876512345"}`)
	cmd.Mapped.Body = members(
		`{"phone":"9876 secret","email":"secret@","customFields":{"secret@example.com":"` + strings.Repeat("x", 3000) +
			`"}}`,
	)
	answer, err := w.process().ReceiveArrival(t.Context(), cmd)
	require.NoError(t, err)
	for _, r := range w.events() {
		if r.Stream == event.ArrivalStream(answer.ID) && r.Type == (event.ArrivalQuarantined{}).EventType() {
			require.NotContains(t, string(r.Data), "secret")
			require.Equal(t, 3, strings.Count(string(r.Data), `"field"`))
			return
		}
	}
	require.True(t, slices.Contains(w.stream(answer.ID), "arrival.quarantined"))
}
