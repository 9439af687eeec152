package command_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/command/worker/forget"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// errKilled is the error of every call of a process that was killed during a command.
var errKilled = errors.New("killed")

// killableStore is the store of one process. Each call first calls before, and fails with the error of before.
type killableStore struct {
	eventstore.Store
	before func() error
}

func (s killableStore) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	if err := s.before(); err != nil {
		return 0, err
	}
	return s.Store.Append(ctx, writes...)
}

func (s killableStore) Read(
	ctx context.Context, stream string, from eventstore.Revision,
) iter.Seq2[eventstore.Recorded, error] {
	if err := s.before(); err != nil {
		return func(yield func(eventstore.Recorded, error) bool) { yield(eventstore.Recorded{}, err) }
	}
	return s.Store.Read(ctx, stream, from)
}

func (s killableStore) Head(ctx context.Context) (eventstore.Position, error) {
	if err := s.before(); err != nil {
		return 0, err
	}
	return s.Store.Head(ctx)
}

// world is an in-memory log with an account and some leads.
type world struct {
	t        *testing.T
	log      eventstore.Store
	secrets  *secrets
	external *externalData
	results  []captureResult
	now      func() time.Time
}

// captureResult is the result of a capture.
type captureResult struct {
	answer command.LeadCaptured
	err    error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, log: storetest.Memory(), secrets: &secrets{}, external: &externalData{}, now: time.Now}
	p := w.process()
	p.provision(t)
	w.append(event.IntakeStream(intakeID), event.IntakeCreated{IntakeSettings: settings, Slot: 1})
	for _, body := range []string{
		`{"phone":"+919876500001","email":"one@example.com"}`,
		`{"phone":"+919876500002","metadata":{"source":"website"}}`,
		`{"email":"three@example.com"}`,
	} {
		w.results = append(w.results, w.capture(p, body, ""))
	}
	return w
}

func (w *world) process() process { return w.processOn(w.log) }

func (w *world) processOn(store eventstore.Store) process {
	directory := command.NewDirectory(store, w.now)
	return process{store: store, directory: directory, Handlers: command.NewHandlers(command.Options{
		Store: store, Claims: claim.NewNames(claimKey()), Directory: directory, Secrets: w.secrets, Log: quiet(),
		Now: w.now,
	}), eraser: forget.Eraser{Keys: withoutFaults(w.external), Views: withoutFaults(w.external)}}
}

func (w *world) capture(p process, body, key string) (c captureResult) {
	admission, err := p.directory.Admit(w.t.Context(), owner)
	require.NoError(w.t, err)
	c.answer, c.err = p.CaptureLead(w.t.Context(), command.CaptureLead{
		Admission: admission, Body: members(body), IdempotencyKey: key,
	})
	return c
}

// events returns all events of the log.
func (w *world) events() []eventstore.Recorded {
	head, err := w.log.Head(w.t.Context())
	require.NoError(w.t, err)
	var all []eventstore.Recorded
	for page, err := range eventstore.ReadTo(w.t.Context(), w.log, 0, head, eventstore.Filter{}) {
		require.NoError(w.t, err)
		all = append(all, page.Events...)
	}
	return all
}

// claims returns the state of every claim by stream.
func (w *world) claims() map[string]claim.State {
	claims := map[string]claim.State{}
	for _, r := range w.events() {
		if fact, err := r.Fact(); (eventstore.Filter{
			StreamPrefixes: []string{event.ClaimPrefix},
		}).Matches(r.Stream, r.Type) {
			require.NoError(w.t, err)
			claims[r.Stream] = claim.Evolve(claims[r.Stream], fact)
		}
	}
	return claims
}

// appendRecorder records the appends that have events.
type appendRecorder struct {
	eventstore.Store
	appends [][]eventstore.Write
}

func (r *appendRecorder) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	for _, w := range writes {
		if len(w.Events) > 0 {
			r.appends = append(r.appends, writes)
			break
		}
	}
	return r.Store.Append(ctx, writes...)
}

func TestCommands_OneAppend(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log := &appendRecorder{Store: w.log}
	p := w.processOn(log)
	ctx := t.Context()
	one, two := w.results[0].answer.Lead.ID, w.results[1].answer.Lead.ID
	var issued command.TokenIssued
	var registered command.WebhookRegistered
	for _, c := range []struct {
		name   string
		events int
		do     func() error
	}{
		{"a capture of a new person", 4, func() error {
			return w.capture(p, `{"phone":"+919876500077","email":"seven@example.com"}`, "key").err
		}},
		{"a merge", 2, func() error {
			return w.capture(p, `{"phone":"+919876500077","metadata":{"source":"website"}}`, "another").err
		}},
		{"a token", 2, func() (err error) {
			issued, err = p.CreateToken(ctx, command.CreateToken{Caller: owner, Name: "site", ExpiresInDays: 30})
			return err
		}},
		{"a deleted token", 2, func() error {
			_, err := p.DeleteToken(ctx, command.DeleteToken{Caller: owner, TokenID: issued.ID})
			return err
		}},
		{"an endpoint", 2, func() (err error) {
			registered, err = p.RegisterWebhookEndpoint(ctx, command.RegisterWebhookEndpoint{
				Caller: owner, Registration: webhook.Registration{URL: "https://hooks.example.com/in"},
			})
			return err
		}},
		{"a deleted endpoint", 2, func() error {
			_, err := p.DeleteWebhookEndpoint(ctx, command.DeleteWebhookEndpoint{
				Caller: owner, WebhookID: registered.ID,
			})
			return err
		}},
		{"a join", 3, func() error {
			_, err := p.JoinLeads(ctx, command.JoinLeads{
				Caller: owner, LeadID: one, Body: members(`{"from":"` + two + `"}`),
			})
			return err
		}},
		{"a release", 2, func() error {
			_, err := p.ReleaseContact(ctx, command.ReleaseContact{
				Caller: owner, LeadID: one, Body: members(`{"phone":"+919876500002"}`),
			})
			return err
		}},
		{"an erasure", 3, func() error {
			_, err := p.eraseLead(ctx, one)
			return err
		}},
	} {
		log.appends = nil
		require.NoError(t, c.do(), c.name)
		require.Len(t, log.appends, 1, c.name)
		events := 0
		for _, write := range log.appends[0] {
			events += len(write.Events)
		}
		require.Equal(t, c.events, events, c.name)
	}
	for stream, c := range w.claims() {
		require.NotContains(t, []string{one, two, issued.ID, registered.ID}, c.Holder, stream)
	}
}

// Reports as of a time select touches by their ids. So an event's id begins with its time, whatever the clock does
// while a command runs, and a touch without a date of its own has the time of its event.
func TestCommands_OneTimeForEachEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := len(w.events())
	now := time.Now().Truncate(time.Millisecond)
	p := w.process()
	p.Handlers = command.NewHandlers(command.Options{
		Store: w.log, Claims: claim.NewNames(claimKey()), Directory: p.directory, Secrets: w.secrets, Log: quiet(),
		Now: func() time.Time { now = now.Add(time.Millisecond); return now },
	})
	require.NoError(t, w.capture(p, `{"phone":"+919876500001","metadata":{"source":"website"}}`, "key").err)
	now = now.Add(-time.Hour) // the clock is set back
	require.NoError(t, w.capture(p, `{"phone":"+919876500001","metadata":{"source":"website"}}`, "").err)
	_, err := p.recordActivity(t.Context(), "v", `{"type":"click","url":"https://example.com/?utm_source=x"}`)
	require.NoError(t, err)
	_, err = p.ReceiveArrival(t.Context(), receiveCommand(`{"phone":"+919876512345"}`))
	require.NoError(t, err)
	events := w.events()[before:]
	require.Len(t, events, 8)
	for _, r := range events {
		require.Equal(t, r.At.UnixMilli(), int64(r.ID.Time()), r.Type)
		fact, err := r.Fact()
		require.NoError(t, err)
		switch data := fact.Data.(type) {
		case event.VisitorActed:
			require.Equal(t, r.At, data.At)
		case event.LeadCreated:
			require.Equal(t, r.At, data.SeenAt(r.At))
		}
	}
}

// The join and the erasure of the largest possible lead each fit into one append of at most 1 MiB after sealing.
func TestLargestLead_FitsOneAppend(t *testing.T) {
	t.Parallel()
	// phones and emails; a lead with the maximum is erased without a join
	for _, contacts := range []int{400, lead.MaxContacts} {
		t.Run(fmt.Sprint(contacts), func(t *testing.T) {
			t.Parallel()
			fitsOneAppend(t, contacts)
		})
	}
}

func fitsOneAppend(t *testing.T, contacts int) {
	t.Helper()
	w := newWorld(t)
	names, fields := claim.NewNames(claimKey()), map[string]jsontext.Value{}
	for i := range lead.MaxCustomFields {
		fields[fmt.Sprintf("field%02d", i)] = jsontext.Value(`"` + strings.Repeat("x", 2000) + `"`)
	}
	id := ulid.Make().String()
	add := func(stream string, data ...event.Data) {
		var events []eventstore.Event
		for _, d := range data {
			eventType, encoded, err := event.Encode(d)
			require.NoError(t, err)
			events = append(events, eventstore.Event{
				ID: ulid.Make(), Type: eventType, At: time.Now().UTC().Truncate(time.Millisecond), Data: encoded,
				Metadata: event.Metadata{Account: "acme"},
			})
		}
		storetest.Append(t, w.log, eventstore.Write{Stream: stream, Expect: eventstore.Any, Events: events})
	}
	number := func(i int) string { return fmt.Sprintf("+91700000%04d", i) }
	address := func(i int) string {
		return fmt.Sprintf("a.person.with.a.long.name.%04d@a-long-name-of-a-company.example.com", i)
	}
	add(event.LeadStream(id), event.LeadCreated{
		LeadFields: event.LeadFields{
			Phone: number(0), Email: address(0), Name: "A", Status: "new", CustomFields: fields,
		}, Source: "website",
	})
	for i := 1; i < contacts; i++ {
		add(event.LeadStream(id), event.LeadMerged{
			LeadFields: event.LeadFields{Phone: number(i), Email: address(i)}, Source: "website",
			VisitorID: fmt.Sprint("visitor-", i),
		})
	}
	for i := range contacts {
		add(names.Stream("acme", claim.Phone, number(i)), event.ClaimTaken{Kind: "phone", Holder: id})
		add(names.Stream("acme", claim.Email, address(i)), event.ClaimTaken{Kind: "email", Holder: id})
	}
	log := &appendRecorder{Store: w.log}
	p := w.processOn(log)
	fits := func() {
		t.Helper()
		require.Len(t, log.appends, 1)
		sealed := slices.Clone(log.appends[0])
		for i := range sealed {
			sealed[i].Events = slices.Clone(sealed[i].Events)
			for j := range sealed[i].Events {
				e := &sealed[i].Events[j]
				if strings.HasPrefix(sealed[i].Stream, event.LeadPrefix) { // base64 has four bytes for three
					e.Data = append(slices.Clone(e.Data), make([]byte, len(e.Data)/3+100)...)
				}
			}
		}
		size, err := eventstore.Size(sealed)
		require.NoError(t, err)
		require.LessOrEqual(t, size, eventstore.MaxAnywhere)
		log.appends = nil
	}
	joined := func() (erased string) {
		if contacts == lead.MaxContacts {
			return id
		}
		erased = w.results[0].answer.Lead.ID
		_, err := p.JoinLeads(t.Context(), command.JoinLeads{
			Caller: owner, LeadID: erased, Body: members(`{"from":"` + id + `"}`),
		})
		require.NoError(t, err)
		fits()
		return erased
	}
	_, err := p.eraseLead(t.Context(), joined())
	require.NoError(t, err)
	fits()
	for stream, c := range w.claims() {
		require.NotEqual(t, id, c.Holder, stream)
	}
}
