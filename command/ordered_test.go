package command_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// errKilled is what a process meets that was stopped in the middle of a command.
var errKilled = errors.New("killed")

// world is a log that applies one write after another, what was asked of it and what was answered. Everything on it is
// of the account acme.
type world struct {
	t       *testing.T
	log     eventstore.Store
	secrets *secrets
	gone    *oblivion

	mu      sync.Mutex // of what follows
	asked   int
	arrived []*arrival
	places  map[claim.Kind]bool // that it is about
	started int                 // processes
	known   *command.Handlers   // who of them remembers
}

// newWorld has an account, and leads for arrivals to meet.
func newWorld(t *testing.T) *world {
	w := &world{t: t, log: storetest.Memory(), secrets: &secrets{}, gone: &oblivion{}, places: map[claim.Kind]bool{}}
	p := w.process(nil)
	p.provision(t)
	for _, body := range []string{
		`{"phone":"+919876500001","email":"one@example.com"}`,
		`{"phone":"+919876500002","metadata":{"source":"website"}}`,
		`{"email":"three@example.com"}`,
	} {
		w.capture(p, body, "")
	}
	return w
}

// process starts one, that stops or waits where before says. Every other one remembers the people whom those like it met.
func (w *world) process(before func(storetest.Step) error) process {
	store := &storetest.Ordered{Store: w.log, Before: before}
	directory := command.NewDirectory(store, time.Now)
	handlers := command.NewHandlers(command.Options{
		Store: store, Claims: claim.NewNames(claimKey()), Directory: directory, Secrets: w.secrets, Log: quiet(),
		Forgetting: unstopped(w.gone),
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known == nil {
		w.known = handlers
		w.known.RememberAll()
	}
	if w.started++; w.started%2 == 0 {
		handlers.KnowAs(w.known)
	}
	return process{Handlers: handlers, store: store, directory: directory}
}

// arrival is one capture: what was asked, and the answer.
type arrival struct {
	request, body, key string
	answer             command.LeadCaptured
	err                error
}

// counts reports whether the answer is one that says what became of the arrival.
func (a *arrival) counts() bool {
	var refused *command.LeadRefused
	return a.err == nil || errors.As(a.err, &refused)
}

// failure is the error of an arrival without an outcome.
func (a *arrival) failure() error {
	if a.counts() {
		return nil
	}
	return a.err
}

func (a *arrival) position() eventstore.Position {
	var refused *command.LeadRefused
	if errors.As(a.err, &refused) {
		return refused.Position
	}
	return a.answer.Position
}

func (a *arrival) replayed() bool {
	var refused *command.LeadRefused
	return errors.As(a.err, &refused) && refused.Replayed || a.answer.Replayed
}

// asker is the caller of a request of its own.
func (w *world) asker() command.Caller {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	caller := owner
	caller.RequestID = fmt.Sprint("request-", w.asked)
	return caller
}

func (w *world) capture(p process, body, key string) *arrival {
	return w.arrive(p, body, key, nil)
}

// captureBy pushes one body with an API token.
func (w *world) captureBy(p process, issued command.TokenIssued, body string) *arrival {
	return w.arrive(p, body, "", &issued)
}

func (w *world) arrive(p process, body, key string, by *command.TokenIssued) *arrival {
	caller := w.asker()
	a := &arrival{request: caller.RequestID, body: body, key: key}
	w.mu.Lock()
	w.arrived = append(w.arrived, a)
	w.mu.Unlock()
	var admission command.Admission
	if admission, a.err = p.admit(w.t.Context(), caller, by); a.err == nil {
		a.answer, a.err = p.CaptureLead(w.t.Context(), command.CaptureLead{Admission: admission, Body: members(body), IdempotencyKey: key})
	}
	return a
}

// served requires that a caller whose process lives gets an answer: the outcome, or that what was asked for is done or
// taken already.
func served(t *testing.T, err error) {
	t.Helper()
	for _, fine := range []error{
		command.ErrKeyReused, command.ErrErased, token.ErrLimit, token.ErrNotFound, webhook.ErrLimit, webhook.ErrNotFound,
	} {
		if errors.Is(err, fine) {
			return
		}
	}
	require.NoError(t, err)
}

func (w *world) newToken() command.CreateToken {
	w.about(claim.TokenSlot)
	return command.CreateToken{Caller: w.asker(), Name: "site", ExpiresInDays: 30}
}

func (w *world) about(kind claim.Kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.places[kind] = true
}

func (w *world) tokens(n int) []command.TokenIssued {
	issued := make([]command.TokenIssued, n)
	p := w.process(nil)
	for i := range issued {
		var err error
		issued[i], err = p.CreateToken(w.t.Context(), w.newToken())
		require.NoError(w.t, err)
	}
	return issued
}

func (w *world) newEndpoint() command.RegisterWebhookEndpoint {
	w.about(claim.WebhookSlot)
	return command.RegisterWebhookEndpoint{Caller: w.asker(), Registration: webhook.Registration{URL: "https://hooks.example.com/in"}}
}

func (w *world) endpoints(n int) []command.WebhookRegistered {
	registered := make([]command.WebhookRegistered, n)
	p := w.process(nil)
	for i := range registered {
		var err error
		registered[i], err = p.RegisterWebhookEndpoint(w.t.Context(), w.newEndpoint())
		require.NoError(w.t, err)
	}
	return registered
}

// heal goes over every claim on the log.
func (w *world) heal(p process) (did []string, err error) {
	seen := map[string]bool{}
	for _, r := range w.events() {
		if seen[r.Stream] || !(eventstore.Filter{StreamPrefixes: []string{event.ClaimPrefix}}).Matches(r.Stream, r.Type) {
			continue
		}
		seen[r.Stream] = true
		said, err := p.Heal(w.t.Context(), r.Stream)
		if err != nil {
			return did, err
		}
		if said != "" {
			did = append(did, said)
		}
	}
	return did, nil
}

// events is the whole log.
func (w *world) events() []eventstore.Recorded {
	head, err := w.log.Head(w.t.Context())
	require.NoError(w.t, err)
	var all []eventstore.Recorded
	for item, err := range w.log.Subscribe(w.t.Context(), 0, eventstore.Filter{}) {
		require.NoError(w.t, err)
		if item.Event != nil {
			all = append(all, *item.Event)
		}
		if item.Position == head && item.Event != nil {
			break
		}
	}
	return all
}
