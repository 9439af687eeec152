package command_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// activityStore blocks appends of activities until open is closed, and notes how many events each had.
type activityStore struct {
	eventstore.Store
	open chan struct{}
	mu   sync.Mutex
	of   []int
}

func (s *activityStore) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	if last := writes[len(writes)-1]; strings.HasPrefix(last.Stream, event.VisitorPrefix) {
		<-s.open
		s.mu.Lock()
		s.of = append(s.of, len(last.Events))
		s.mu.Unlock()
	}
	return s.Store.Append(ctx, writes...)
}

// blocked runs a test on a process that waits with the first append of activities until open is called, and on another
// process of the same log.
func blocked(t *testing.T, test func(t *testing.T, p, other process, store *activityStore)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		on := inMemory()
		other := start(t, on)
		other.provision(t)
		store := &activityStore{open: make(chan struct{})}
		p := startOn(t, on, func(below eventstore.Store) eventstore.Store {
			store.Store = below
			return store
		})
		test(t, p, other, store)
	})
}

func TestRecordActivity_WaitingAppendedTogether(t *testing.T) {
	blocked(t, func(t *testing.T, p, _ process, store *activityStore) {
		recorded := make([]command.ActivityRecorded, 40)
		var appended [40]atomic.Int64
		var waiting sync.WaitGroup
		for i := range recorded {
			waiting.Go(func() {
				var err error
				recorded[i], err = p.recordActivity(command.CountAppended(t.Context(), &appended[i]), "v",
					fmt.Sprintf(`{"type":"page_view","title":"%d"}`, i))
				require.NoError(t, err)
			})
			synctest.Wait()
		}
		close(store.open)
		waiting.Wait()
		require.Equal(t, []int{1, 32, 7}, store.of)
		for i, stored := range p.activities(t, "v") {
			require.Equal(t, recorded[i].ID, stored.ID.String(), "in the order in which they came")
			require.Equal(t, recorded[i].Activity.Title, fmt.Sprint(i))
			require.LessOrEqual(t, stored.Position, recorded[i].Position, "what is read as of it has the activity")
			require.Greater(t, appended[i].Load(), int64(100), "each caller is charged its own bytes")
			require.Less(t, appended[i].Load(), int64(1000))
		}
	})
}

func TestRecordActivity_SizeOfAppend(t *testing.T) {
	blocked(t, func(t *testing.T, p, _ process, store *activityStore) {
		var waiting sync.WaitGroup
		for range 70 {
			waiting.Go(func() {
				_, err := p.recordActivity(t.Context(), "v",
					`{"type":"custom","properties":{"text":"`+strings.Repeat("x", 20<<10)+`"}}`)
				require.NoError(t, err)
			})
			synctest.Wait()
		}
		close(store.open)
		waiting.Wait()
		require.Equal(t, []int{1, 25, 25, 19}, store.of, "at most 512 KiB each")
	})
}

func TestRecordActivity_OneOfManyRefused(t *testing.T) {
	blocked(t, func(t *testing.T, p, other process, store *activityStore) {
		now := time.Now()
		var errs [3]error
		var waiting sync.WaitGroup
		for i, issued := range []time.Time{now, now.Add(-time.Hour), now} {
			admission, err := p.directory.Admit(t.Context(), owner)
			require.NoError(t, err)
			waiting.Go(func() {
				_, errs[i] = p.RecordActivity(t.Context(), command.RecordActivity{
					Admission: admission.ByJWT(issued, now.Add(time.Hour)), VisitorID: "v",
					Body: members(`{"type":"click"}`),
				})
			})
			synctest.Wait()
		}
		_, _, err := other.ConfigureAccount(t.Context(), command.ConfigureAccount{
			Caller: owner, AccountID: "acme", JWTNotBefore: now.Add(-time.Minute),
			Settings: account.Settings{Features: []string{account.FeatureAPI}},
		})
		require.NoError(t, err)
		close(store.open)
		waiting.Wait()
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], command.ErrUnauthorized)
		require.NoError(t, errs[2])
		require.Len(t, p.activities(t, "v"), 2)
	})
}

func TestRecordActivity_CallerLeaves(t *testing.T) {
	blocked(t, func(t *testing.T, p, _ process, store *activityStore) {
		ctx, leave := context.WithCancel(t.Context())
		var errs [3]error
		var waiting sync.WaitGroup
		for i := range errs {
			waiting.Go(func() {
				by := t.Context()
				if i == 1 {
					by = ctx
				}
				_, errs[i] = p.recordActivity(by, "v", `{"type":"click"}`)
			})
			synctest.Wait()
		}
		leave()
		synctest.Wait()
		close(store.open)
		waiting.Wait()
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], context.Canceled)
		require.NoError(t, errs[2])
		require.Len(t, p.activities(t, "v"), 2, "it was not recorded")
	})
}

// What another caller has taken may be on the log. If it turns out not to be, it is not recorded later.
func TestRecordActivity_CallerLeavesWhenTaken(t *testing.T) {
	blocked(t, func(t *testing.T, p, other process, store *activityStore) {
		ctx, leave := context.WithCancel(t.Context())
		var errs [3]error
		var waiting sync.WaitGroup
		for i, by := range []context.Context{t.Context(), t.Context(), ctx} {
			waiting.Go(func() { _, errs[i] = p.recordActivity(by, "v", fmt.Sprintf(`{"type":"click","title":"%d"}`, i)) })
			synctest.Wait()
		}
		store.open <- struct{}{}
		synctest.Wait() // the second caller appends its activity and the third
		leave()
		synctest.Wait()
		require.ErrorIs(t, errs[2], eventstore.ErrUnavailable)
		_, err := other.recordActivity(t.Context(), "v", `{"type":"click","title":"other"}`)
		require.NoError(t, err)
		close(store.open)
		waiting.Wait()
		require.NoError(t, errs[1])
		_, err = p.recordActivity(t.Context(), "v", `{"type":"click","title":"later"}`)
		require.NoError(t, err)
		var titles []string
		for _, stored := range p.activities(t, "v") {
			fact, err := stored.Fact()
			require.NoError(t, err)
			titles = append(titles, fact.Data.(event.VisitorActed).Title)
		}
		require.Equal(t, []string{"0", "other", "1", "later"}, titles)
	})
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
