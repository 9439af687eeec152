package command_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/worker/forget"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/projection"
)

// act records an activity as the owner, by JWT.
func (p process) recordActivity(ctx context.Context, visitor, body string) (command.ActivityRecorded, error) {
	admission, err := p.directory.Admit(ctx, owner)
	if err != nil {
		return command.ActivityRecorded{}, err
	}
	return p.RecordActivity(ctx, command.RecordActivity{Admission: admission, VisitorID: visitor, Body: members(body)})
}

// actByToken records an activity with a cached admission.
func (p process) recordActivityByToken(ctx context.Context, admission command.Admission) error {
	_, err := p.RecordActivity(ctx, command.RecordActivity{
		Admission: admission, VisitorID: "v", Body: members(`{"type":"click"}`),
	})
	return err
}

// admitToken returns the admission of a caller with a token, from the cache of this process.
func (p process) admitToken(t *testing.T, issued command.TokenIssued) command.Admission {
	t.Helper()
	cached, err := p.directory.ConfirmToken(t.Context(), issued.Value)
	require.NoError(t, err)
	admission, err := p.directory.Admit(t.Context(), command.Caller{Account: "acme", Credential: "token:" + issued.ID})
	require.NoError(t, err)
	return admission.ByToken(issued.Value, cached)
}

// activities returns the events of a visitor's stream.
func (p process) activities(t *testing.T, visitor string) []eventstore.Recorded {
	t.Helper()
	var all []eventstore.Recorded
	for recorded, err := range p.store.Read(t.Context(), claim.NewNames(claimKey()).Visitor("acme", visitor), 0) {
		require.NoError(t, err)
		all = append(all, recorded)
	}
	return all
}

func TestRecordActivity_Stream(t *testing.T) {
	t.Parallel()
	p := start(t, inMemory())
	p.provision(t)
	before := time.Now().Add(-time.Second)
	recorded, err := p.recordActivity(t.Context(), "ann@example.com",
		`{"type":"page_view","url":"https://example.com"}`)
	require.NoError(t, err)
	all := p.activities(t, "ann@example.com")
	require.Len(t, all, 1)
	fact, err := all[0].Fact()
	require.NoError(t, err)
	require.Equal(t, recorded.Activity, fact.Data)
	require.Equal(t, []any{recorded.ID, recorded.Position, recorded.At},
		[]any{fact.ID.String(), all[0].Position, fact.At})
	require.Equal(t, owner.Actor, fact.Metadata.Actor)
	require.Equal(t, "acme", fact.Metadata.Account)
	require.NotContains(t, all[0].Stream, "ann")
	require.False(t, recorded.Activity.At.Before(before.Truncate(time.Millisecond)), "the default time is now")
}

func TestRecordActivity_Concurrent(t *testing.T) {
	t.Parallel()
	on := database(t)
	processes := []process{start(t, on), start(t, on)}
	processes[0].provision(t)
	const each = 8
	for _, err := range concurrently(32, func(i int) error {
		for n := range each {
			if _, err := processes[i%2].recordActivity(t.Context(), "v",
				fmt.Sprintf(`{"type":"page_view","title":"%d %d"}`, i, n)); err != nil {
				return err
			}
		}
		return nil
	}) {
		require.NoError(t, err)
	}
	all := processes[0].activities(t, "v")
	require.Len(t, all, 32*each)
	seen := map[string]bool{}
	for i, recorded := range all {
		require.Equal(t, eventstore.Revision(i), recorded.Revision)
		fact, err := recorded.Fact()
		require.NoError(t, err)
		seen[fact.Data.(event.VisitorActed).Title] = true
	}
	require.Len(t, seen, 32*each, "every activity is recorded once")
}

func TestRecordActivity_Authorization(t *testing.T) {
	t.Parallel()
	on := inMemory()
	one, other := start(t, on), start(t, on)
	one.provision(t)
	issued := one.issue(t)
	admission := other.admitToken(t, issued)
	require.NoError(t, other.recordActivityByToken(t.Context(), admission))

	one.configure(t, account.Settings{Features: []string{account.FeatureAPI}, Name: "renamed"})
	require.NoError(t, other.recordActivityByToken(t.Context(), admission), "an unrelated change")

	_, err := one.RotateToken(t.Context(), command.RotateToken{Caller: owner, TokenID: issued.ID})
	require.NoError(t, err)
	require.ErrorIs(t, other.recordActivityByToken(t.Context(), admission), command.ErrUnauthorized)
	_, err = other.RecordActivity(t.Context(), command.RecordActivity{
		Admission: admission, VisitorID: "v", Body: members(`{}`),
	})
	require.ErrorIs(t, err, command.ErrUnauthorized, "a revoked token gets no validation errors")

	admitted, err := other.directory.Admit(t.Context(), owner)
	require.NoError(t, err)
	one.configure(t, account.Settings{})
	_, err = other.RecordActivity(t.Context(), command.RecordActivity{
		Admission: admitted, VisitorID: "v", Body: members(`{"type":"click"}`),
	})
	require.ErrorIs(t, err, command.ErrFeatureDisabled)
	require.Len(t, one.activities(t, "v"), 2)
}

func TestRecordActivity_Invalid(t *testing.T) {
	t.Parallel()
	p := start(t, inMemory())
	p.provision(t)
	_, err := p.recordActivity(t.Context(), "v", `{"type":"nope","url":"x"}`)
	var wrong field.Errors
	require.ErrorAs(t, err, &wrong)
	require.Len(t, wrong, 2)
	require.Empty(t, p.activities(t, "v"))
}

// One process destroys the key of a visitor while another one, which has cached the key, records activity.
func TestRecordActivity_AfterForgetting(t *testing.T) {
	t.Parallel()
	on := keyDatabase(t)
	p, other := start(t, on), start(t, on)
	p.provision(t)
	for range 2 { // from the second on the key is cached
		_, err := other.recordActivity(t.Context(), "v", `{"type":"click"}`)
		require.NoError(t, err)
	}
	require.NoError(t, p.store.(*sealed.Store).Destroy(t.Context(), claim.NewNames(claimKey()).Visitor("acme", "v")))
	recorded, err := other.recordActivity(t.Context(), "v", `{"type":"page_view","title":"Prices"}`)
	require.NoError(t, err)
	all := p.activities(t, "v")
	require.Len(t, all, 3, "every activity is recorded once")
	require.Equal(t, recorded.ID, all[2].ID.String())
	require.False(t, all[2].Erased)
}

// hookedKeyStore calls then after each Destroy.
type hookedKeyStore struct {
	*sealed.Store
	forget.Views
	then func()
}

func (k hookedKeyStore) Destroy(ctx context.Context, streams ...string) error {
	err := k.Store.Destroy(ctx, streams...)
	k.then()
	return err
}

func (hookedKeyStore) Await(context.Context, eventstore.Position) error { return nil }

func (hookedKeyStore) Linked(
	_ context.Context, _ string, streams []string, _ eventstore.Position,
) (map[string]bool, error) {
	linked := map[string]bool{}
	for _, stream := range streams {
		linked[stream] = false
	}
	return linked, nil
}

func (hookedKeyStore) Arrivals(context.Context, string, []string) ([]string, error) { return nil, nil }

func (hookedKeyStore) DeleteFromCopies(context.Context, projection.Forgotten) error { return nil }

func TestRecordActivity_DuringForgetting(t *testing.T) {
	t.Parallel()
	on := keyDatabase(t)
	p, other := start(t, on), start(t, on)
	p.provision(t)
	_, err := other.recordActivity(t.Context(), "v", `{"type":"click"}`)
	require.NoError(t, err)
	captured := p.captured(t, `{"phone":"9876543210","visitorId":"v"}`)
	remaining := 3
	e := newEraser(p.store, hookedKeyStore{Store: p.store.(*sealed.Store), then: func() {
		if remaining--; remaining >= 0 {
			_, err := other.recordActivity(t.Context(), "v", `{"type":"click"}`)
			require.NoError(t, err)
		}
	}})
	_, err = e.eraseLead(t.Context(), owner, captured.Lead.ID)
	require.NoError(t, err)
	all := start(t, on).activities(t, "v")
	require.Equal(t, event.VisitorForgotten{}.EventType(), all[len(all)-1].Type)
	for _, r := range all[:len(all)-1] {
		require.True(t, r.Erased, "revision %d", r.Revision)
	}
}
