package command_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

func TestCapture_ConcurrentFirstArrivals(t *testing.T) {
	t.Parallel()
	on := database(t)
	processes := []process{start(t, on), start(t, on)}
	processes[0].provision(t)
	for name, body := range map[string]string{
		"same phone":  `{"phone":"9876543210","metadata":{"source":"website"}}`,
		"same email":  `{"email":"asha@example.com","metadata":{"source":"website"}}`,
		"both":        `{"phone":"9876543211","email":"ravi@example.com","metadata":{"source":"chatbot"}}`,
		"from an API": `{"phone":"9876543212"}`,
	} {
		t.Run(name, func(t *testing.T) {
			answers := make([]command.LeadCaptured, 32)
			errs := concurrently(32, func(i int) (err error) {
				answers[i], err = processes[i%2].capture(t.Context(), body)
				return err
			})
			created, leads := 0, map[string]int{}
			for i, err := range errs {
				var refused *command.LeadRefused
				if errors.As(err, &refused) {
					require.Equal(t, lead.CodeDuplicateSource, refused.Fact.Code)
					leads[refused.Fact.LeadID]++
					continue
				}
				require.NoError(t, err)
				leads[answers[i].Lead.ID]++
				if !answers[i].Merged {
					created++
				}
			}
			require.Equal(t, 1, created, "created leads")
			require.Len(t, leads, 1, "leads")
		})
	}
}

func TestCapture_CrossingContacts(t *testing.T) {
	t.Parallel()
	on := database(t)
	processes := []process{start(t, on), start(t, on)}
	processes[0].provision(t)
	for round := range 10 {
		phone, email := fmt.Sprintf("98765432%02d", round), fmt.Sprintf("p%d@example.com", round)
		bodies := []string{
			fmt.Sprintf(`{"phone":%q,"metadata":{"source":"website"}}`, phone),
			fmt.Sprintf(`{"email":%q,"metadata":{"source":"website"}}`, email),
			fmt.Sprintf(`{"phone":%q,"email":%q,"metadata":{"source":"website"}}`, phone, email),
		}
		for _, err := range concurrently(12, func(i int) error {
			_, err := processes[i%2].capture(t.Context(), bodies[i%3])
			return err
		}) {
			require.NoError(t, err)
		}
		byPhone := processes[0].captured(t, bodies[0])
		byEmail := processes[1].captured(t, bodies[1])
		require.True(t, byPhone.Merged)
		require.True(t, byEmail.Merged)
	}
}

// leadGate holds up the second append to a lead until it is open, and counts all of them.
type leadGate struct {
	eventstore.Store
	appends atomic.Int64
	open    chan struct{}
}

func (g *leadGate) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	if slices.ContainsFunc(writes, func(w eventstore.Write) bool {
		return strings.HasPrefix(w.Stream, event.LeadPrefix) && len(w.Events) > 0
	}) && g.appends.Add(1) == 2 {
		<-g.open
	}
	return g.Store.Append(ctx, writes...)
}

// A capture that merges into a lead waits for the update of the lead that is being appended, and decides on the state
// after it.
func TestCapture_WaitsForUpdateOfLead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := &leadGate{open: make(chan struct{})}
		p := startOn(t, inMemory(), func(below eventstore.Store) eventstore.Store {
			gate.Store = below
			return gate
		})
		p.provision(t)
		created := p.captured(t, `{"phone":"9876543210","email":"asha@example.com","metadata":{"source":"website"}}`)
		var decisions sync.WaitGroup
		decisions.Go(func() {
			_, err := p.UpdateLead(t.Context(), command.UpdateLead{
				Caller: owner, LeadID: created.Lead.ID, Body: members(`{"name":"Asha"}`),
			})
			require.NoError(t, err)
		})
		synctest.Wait()
		decisions.Go(func() {
			captured, err := p.capture(t.Context(), `{"phone":"9876543210","metadata":{"source":"chatbot"}}`)
			require.NoError(t, err)
			require.EqualValues(t, 2, captured.Lead.Revision)
		})
		synctest.Wait()
		close(gate.open)
		decisions.Wait()
		require.EqualValues(t, 3, gate.appends.Load(), "no append conflicts")
	})
}

func TestCreateToken_ConcurrentLimit(t *testing.T) {
	t.Parallel()
	on := database(t)
	processes := []process{start(t, on), start(t, on)}
	issued := make([]command.TokenIssued, 24)
	errs := concurrently(24, func(i int) (err error) {
		create := command.CreateToken{Caller: owner, Name: fmt.Sprint("token ", i), ExpiresInDays: 30}
		issued[i], err = processes[i%2].CreateToken(t.Context(), create)
		return err
	})
	var made []command.TokenIssued
	for i, err := range errs {
		if err == nil {
			made = append(made, issued[i])
			continue
		}
		require.ErrorIs(t, err, token.ErrLimit)
	}
	require.Len(t, made, token.MaxPerAccount)

	_, err := processes[0].DeleteToken(t.Context(), command.DeleteToken{Caller: owner, TokenID: made[2].ID})
	require.NoError(t, err)
	errs = concurrently(8, func(i int) error {
		_, err := processes[i%2].CreateToken(t.Context(), command.CreateToken{
			Caller: owner, Name: "again", ExpiresInDays: 1,
		})
		return err
	})
	succeeded := 0
	for _, err := range errs {
		if err == nil {
			succeeded++
		}
	}
	require.Equal(t, 1, succeeded, "a deleted token frees one slot")
}

func TestRegisterWebhook_ConcurrentLimit(t *testing.T) {
	t.Parallel()
	on := database(t)
	processes := []process{start(t, on), start(t, on)}
	var made atomic.Int64
	register := func(i int) error {
		_, err := processes[i%2].RegisterWebhookEndpoint(t.Context(), command.RegisterWebhookEndpoint{
			Caller: owner, Registration: webhook.Registration{URL: "https://hooks.example.com/in"},
		})
		if err == nil {
			made.Add(1)
		}
		return err
	}
	for _, err := range concurrently(60, register) {
		if err != nil {
			require.ErrorIs(t, err, webhook.ErrLimit)
		}
	}
	require.EqualValues(t, webhook.MaxPerAccount, made.Load())
}

func TestCapture_AfterRevocation(t *testing.T) {
	t.Parallel()
	on := database(t)
	one, other := start(t, on), start(t, on)
	one.provision(t)
	byToken := func(t *testing.T) (id string, capture captureBy) {
		issued := one.issue(t)
		return issued.ID, func(p process, body string) error { return p.captureByToken(t.Context(), issued, body) }
	}
	for name, prepare := range map[string]func(t *testing.T) (capture captureBy, revoke func() error){
		"deletion": func(t *testing.T) (captureBy, func() error) {
			id, capture := byToken(t)
			return capture, func() error {
				_, err := one.DeleteToken(t.Context(), command.DeleteToken{Caller: owner, TokenID: id})
				return err
			}
		},
		"rotation": func(t *testing.T) (captureBy, func() error) {
			id, capture := byToken(t)
			return capture, func() error {
				_, err := one.RotateToken(t.Context(), command.RotateToken{Caller: owner, TokenID: id})
				return err
			}
		},
		"not-before": func(t *testing.T) (captureBy, func() error) {
			issued := time.Now().Add(-time.Hour)
			capture := func(p process, body string) error {
				admission, err := p.directory.Admit(t.Context(), owner)
				if err == nil {
					admission = admission.ByJWT(issued, issued.Add(24*time.Hour))
					_, err = p.CaptureLead(t.Context(), command.CaptureLead{Admission: admission, Body: members(body)})
				}
				return err
			}
			return capture, func() error {
				_, _, err := one.ConfigureAccount(t.Context(), command.ConfigureAccount{
					Caller: owner, AccountID: "acme", Patch: true, JWTNotBefore: issued.Add(time.Second),
				})
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			capture, revoke := prepare(t)
			var revoked atomic.Bool
			var passed, late, number atomic.Int64
			done := make(chan []error)
			go func() {
				done <- concurrently(16, func(i int) error {
					for {
						after := revoked.Load()
						err := capture([]process{one, other}[i%2],
							fmt.Sprintf(`{"email":"%s-%d@example.com"}`, name, number.Add(1)))
						switch {
						case err != nil:
							return err
						case after && late.Add(1) > 100:
							return errors.New("a revoked credential is still accepted")
						case after:
						default:
							passed.Add(1)
						}
					}
				})
			}()
			require.Eventually(t, func() bool { return passed.Load() > 200 }, time.Minute, time.Millisecond)
			require.NoError(t, revoke())
			revoked.Store(true)
			for _, err := range <-done {
				require.ErrorIs(t, err, command.ErrUnauthorized)
			}
			require.Zero(t, late.Load(), "captures that began after the revocation returned")
		})
	}
}

// captureBy captures a body in a process by some credential.
type captureBy func(p process, body string) error
