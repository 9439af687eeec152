package command_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/eventstore/event"
)

// captureWith captures a body with an idempotency key. It is kept if its fields are wrong.
func (p process) captureWith(t *testing.T, key, body string) (command.LeadCaptured, error) {
	t.Helper()
	admission, err := p.directory.Admit(t.Context(), owner)
	require.NoError(t, err)
	return p.CaptureLead(t.Context(), command.CaptureLead{
		Admission: admission, Body: members(body), IdempotencyKey: key, Quarantine: true,
	})
}

// requireQuarantined requires that the request was quarantined, and returns the arrival.
func requireQuarantined(t *testing.T, err error) *command.Quarantined {
	t.Helper()
	kept, is := errors.AsType[*command.Quarantined](err)
	require.True(t, is, err)
	require.NotEmpty(t, kept.ArrivalID)
	return kept
}

func quarantining(stages ...string) account.Settings {
	return account.Settings{Features: []string{account.FeatureAPI}, Quarantine: new(true), Stages: stages}
}

func TestIdempotency_QuarantinedBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process()
	p.configure(t, quarantining("new"))
	wrong, unknown := `{"phone":"12"}`, `{"phone":"9876512345","status":"sold"}`
	// an arrival's reasons do not name this field
	other := `{"phone":"13","asha rao":"` + strings.Repeat("x", 2001) + `"}`
	_, err := p.captureWith(t, "key", wrong)
	first := requireQuarantined(t, err)
	require.False(t, first.Replayed)
	again := func(p process, body string, want *command.Quarantined) {
		t.Helper()
		_, err := p.captureWith(t, "key", body)
		repeated := *want
		repeated.Replayed = true
		require.Equal(t, &repeated, requireQuarantined(t, err))
	}
	again(p, wrong, first)
	again(w.process(), wrong, first)

	_, err = p.captureWith(t, "key", other)
	second := requireQuarantined(t, err)
	require.Len(t, second.Errors, 2)
	require.NotEqual(t, first.ArrivalID, second.ArrivalID, "the key is free for another body")
	_, err = p.captureWith(t, "key", unknown)
	third := requireQuarantined(t, err)
	again(p, wrong, first)
	again(p, other, second)

	p.configure(t, quarantining("new", "sold"))
	again(w.process(), unknown, third) // it is valid now, and still one arrival

	captured, err := p.captureWith(t, "key", `{"phone":"9876512345"}`)
	require.NoError(t, err)
	require.False(t, captured.Merged)
	_, err = p.captureWith(t, "key", wrong)
	require.ErrorIs(t, err, command.ErrKeyReused)
	repeated, err := p.captureWith(t, "key", `{"phone":"9876512345"}`)
	require.NoError(t, err)
	require.True(t, repeated.Replayed)
}

// Another process sends the same request before each call of the first one in turn.
func TestIdempotency_QuarantinedOnce(t *testing.T) {
	t.Parallel()
	for at, reached := 0, true; reached; at++ {
		w := newWorld(t)
		other := w.process()
		other.configure(t, quarantining())
		var theirs error
		passed := 0
		p := w.processOn(killableStore{w.log, func() error {
			if passed++; passed == at+1 {
				_, theirs = other.captureWith(t, "key", `{"phone":"12"}`)
			}
			return nil
		}})
		_, ours := p.captureWith(t, "key", `{"phone":"12"}`)
		if reached = passed > at; !reached {
			break
		}
		require.Equal(t, requireQuarantined(t, theirs).ArrivalID, requireQuarantined(t, ours).ArrivalID, "step %d", at)
	}
}

// A key remembers a limited number of bodies, so that its claim stays short.
func TestIdempotency_ManyBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process()
	p.configure(t, quarantining())
	for i := range 70 {
		_, err := p.captureWith(t, "key", fmt.Sprintf(`{"phone":"%d"}`, i))
		requireQuarantined(t, err)
	}
	bound := 0
	for _, r := range w.events() {
		if r.Type == (event.ClaimBound{}).EventType() {
			bound++
		}
	}
	require.Equal(t, 64, bound)
	for _, replayed := range []bool{false, true} {
		captured, err := p.captureWith(t, "key", `{"phone":"9876512345"}`)
		require.NoError(t, err)
		require.Equal(t, replayed, captured.Replayed)
	}
}
