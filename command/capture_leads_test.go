package command_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore"
)

// captureAll captures bodies as one batch.
func (p process) captureAll(
	t require.TestingT, ctx context.Context, caller command.Caller, bodies []string,
) (outcomes []command.BatchOutcome) {
	admission, err := p.directory.Admit(ctx, caller)
	require.NoError(t, err)
	arrivals := func(context.Context) iter.Seq[command.BatchArrival] {
		return func(yield func(command.BatchArrival) bool) {
			for i, body := range bodies {
				read := func(context.Context) (command.CaptureLead, error) {
					return command.CaptureLead{Admission: admission, Body: members(body)}, nil
				}
				if !yield(command.BatchArrival{Line: i, Bytes: len(body), Read: read}) {
					return
				}
			}
		}
	}
	for arrived := range p.CaptureLeads(ctx, arrivals, func() {}) {
		outcomes = append(outcomes, arrived)
	}
	return outcomes
}

// describer returns a function that describes outcomes for comparison: leads are numbered in the order in which they
// occur.
func describer() func(command.LeadCaptured, error) string {
	numbers := map[string]int{"": -1}
	number := func(id string) int {
		if _, seen := numbers[id]; !seen {
			numbers[id] = len(numbers)
		}
		return numbers[id]
	}
	return func(captured command.LeadCaptured, err error) string {
		var refused *command.LeadRefused
		var wrong field.Errors
		switch {
		case errors.As(err, &refused):
			return fmt.Sprint("refused ", refused.Fact.Code, number(refused.Fact.LeadID), number(refused.Fact.Other))
		case errors.As(err, &wrong):
			return wrong.Error()
		case err != nil:
			return "failed: " + err.Error()
		}
		l := captured.Lead
		return fmt.Sprint(number(l.ID), captured.Merged, l.Name, l.Phone, l.Email, l.Source,
			l.Revision, l.OpportunityValue)
	}
}

// unevenStore takes different times for appends, so that later lines of a batch can overtake earlier ones.
type unevenStore struct{ eventstore.Store }

func (s unevenStore) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	time.Sleep(rand.N(200 * time.Microsecond))
	return s.Store.Append(ctx, writes...)
}

func TestCaptureLeads_EqualsSequential(t *testing.T) {
	t.Parallel()
	p := startOn(t, inMemory(), func(below eventstore.Store) eventstore.Store { return unevenStore{below} })
	accounts := 0
	caller := func(t require.TestingT) command.Caller {
		accounts++
		caller := owner
		caller.Account = fmt.Sprint("a", accounts)
		_, _, err := p.ConfigureAccount(context.Background(), command.ConfigureAccount{
			Caller: owner, AccountID: caller.Account,
			Settings: account.Settings{Features: []string{account.FeatureAPI}},
		})
		require.NoError(t, err)
		return caller
	}
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		bodies := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			body := fmt.Sprintf(`{"name":"n%d","metadata":{"source":%q}`, rapid.IntRange(0, 99).Draw(t, "name"),
				rapid.SampledFrom([]string{"website", "website", "chatbot", "api", "google_ad"}).Draw(t, "source"))
			if phone := rapid.IntRange(-2, 5).Draw(t, "phone"); phone >= 0 {
				body += fmt.Sprintf(`,"phone":"987654321%d"`, phone)
			}
			if email := rapid.IntRange(-2, 5).Draw(t, "email"); email >= 0 {
				body += fmt.Sprintf(`,"email":"p%d@example.com"`, email)
			}
			if rapid.IntRange(0, 9).Draw(t, "value") == 0 {
				body += fmt.Sprintf(`,"opportunityValue":%d`, rapid.IntRange(1, 9).Draw(t, "amount"))
			}
			return body + "}"
		}), 1, 60).Draw(t, "bodies")

		sequential, batch := caller(t), caller(t)
		admission, err := p.directory.Admit(ctx, sequential)
		require.NoError(t, err)
		var want, got []string
		describe := describer()
		for _, body := range bodies {
			captured, err := p.CaptureLead(ctx, command.CaptureLead{Admission: admission, Body: members(body)})
			want = append(want, describe(captured, err))
		}
		describe = describer()
		for i, arrived := range p.captureAll(t, ctx, batch, bodies) {
			require.Equal(t, i, arrived.Line)
			got = append(got, describe(arrived.LeadCaptured, arrived.Err))
		}
		require.Equal(t, want, got)
	})
}

func TestCaptureLeads_ConsumerStops(t *testing.T) {
	t.Parallel()
	p := start(t, inMemory())
	p.provision(t)
	admission, err := p.directory.Admit(t.Context(), owner)
	require.NoError(t, err)
	offered := 0
	endless := func(ctx context.Context) iter.Seq[command.BatchArrival] {
		return func(yield func(command.BatchArrival) bool) {
			for ctx.Err() == nil {
				offered++
				body := fmt.Sprintf(`{"email":"p%d@example.com"}`, offered)
				read := func(context.Context) (command.CaptureLead, error) {
					return command.CaptureLead{Admission: admission, Body: members(body)}, nil
				}
				if !yield(command.BatchArrival{Line: offered, Read: read}) {
					return
				}
			}
		}
	}
	received := 0
	for arrived := range p.CaptureLeads(t.Context(), endless, func() {}) {
		require.NoError(t, arrived.Err)
		if received++; received == 300 {
			break
		}
	}
	require.GreaterOrEqual(t, offered, 300)
	require.LessOrEqual(t, offered, 300+520, "reading ahead is limited by the window")
	for n := 1; n <= 300; n++ {
		_, err := p.capture(t.Context(), fmt.Sprintf(`{"email":"p%d@example.com"}`, n))
		var refused *command.LeadRefused
		require.ErrorAs(t, err, &refused, "the batch has captured this lead")
	}
}

// blockingStore blocks appends until open is closed, and counts concurrent appends.
type blockingStore struct {
	eventstore.Store
	inside, maxInside atomic.Int64
	open              chan struct{}
}

func (s *blockingStore) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	n := s.inside.Add(1)
	defer s.inside.Add(-1)
	for maxInside := s.maxInside.Load(); n > maxInside &&
		!s.maxInside.CompareAndSwap(maxInside, n); maxInside = s.maxInside.Load() {
	}
	select {
	case <-s.open:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	return s.Store.Append(ctx, writes...)
}

// A store rejects appends beyond its queue. Batches must not fill it, or single captures would be rejected.
func TestCaptureLeads_TotalLimit(t *testing.T) {
	t.Parallel()
	on := inMemory()
	start(t, on).provision(t)
	store := &blockingStore{open: make(chan struct{})}
	p := startOn(t, on, func(below eventstore.Store) eventstore.Store {
		store.Store = below
		return store
	})

	const sources, each, limit = 6, 400, 2048
	var sending sync.WaitGroup
	var outcomes [sources][]command.BatchOutcome
	for source := range sources {
		bodies := make([]string, each)
		for i := range bodies {
			bodies[i] = fmt.Sprintf(`{"email":"p%d.%d@example.com"}`, source, i)
		}
		sending.Go(func() { outcomes[source] = p.captureAll(t, t.Context(), owner, bodies) })
	}
	require.Eventually(t, func() bool { return store.inside.Load() == limit }, time.Minute, time.Millisecond)
	close(store.open)
	sending.Wait()
	require.EqualValues(t, limit, store.maxInside.Load())
	for _, arrived := range outcomes {
		require.Len(t, arrived, each)
		for i, result := range arrived {
			require.NoError(t, result.Err)
			require.Equal(t, i, result.Line)
		}
	}
}

func TestCaptureLeads_Panic(t *testing.T) {
	t.Parallel()
	p := start(t, inMemory())
	p.provision(t)
	admission, err := p.directory.Admit(t.Context(), owner)
	require.NoError(t, err)
	arrivals := func(context.Context) iter.Seq[command.BatchArrival] {
		return func(yield func(command.BatchArrival) bool) {
			for line, read := range []func(context.Context) (command.CaptureLead, error){
				func(context.Context) (command.CaptureLead, error) { panic("a secret") },
				func(context.Context) (command.CaptureLead, error) {
					return command.CaptureLead{Admission: command.Admission{}}, nil // without an account
				},
				func(context.Context) (command.CaptureLead, error) {
					return command.CaptureLead{Admission: admission, Body: members(`{"phone":"9876543210"}`)}, nil
				},
			} {
				if !yield(command.BatchArrival{Line: line, Read: read}) {
					return
				}
			}
		}
	}
	var errs []error
	for arrived := range p.CaptureLeads(t.Context(), arrivals, func() {}) {
		require.Equal(t, len(errs), arrived.Line)
		errs = append(errs, arrived.Err)
	}
	require.Len(t, errs, 3)
	require.EqualError(t, errs[0], "panic: string", "the error has the type of the panic and not its value")
	require.ErrorContains(t, errs[1], "nil pointer")
	require.NoError(t, errs[2])
}
