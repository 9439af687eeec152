package command_test

import (
	"context"
	"iter"
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
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// Two processes share a database. A capture makes the first one cache the account and the token, and the second one
// changes them. The first one must then use the current state, not its cache.

func TestAdmission_FeatureDisabledElsewhere(t *testing.T) {
	t.Parallel()
	on := inMemory()
	here, elsewhere := start(t, on), start(t, on)
	here.provision(t)
	here.captured(t, `{"phone":"9876543210"}`)

	elsewhere.configure(t, account.Settings{})
	_, err := here.capture(t.Context(), `{"phone":"9876543211"}`)
	require.ErrorIs(t, err, command.ErrFeatureDisabled)
	_, err = here.capture(t.Context(), `{}`)
	require.ErrorIs(t, err, command.ErrFeatureDisabled, "a command without an append checks the feature, too")

	elsewhere.provision(t)
	here.captured(t, `{"phone":"9876543211"}`) // the feature is enabled again at once
}

// unreadable is a log that cannot be read while it is down.
type unreadable struct {
	eventstore.Store
	down *bool
}

func (u unreadable) Read(
	ctx context.Context, stream string, from eventstore.Revision,
) iter.Seq2[eventstore.Recorded, error] {
	if *u.down {
		return func(yield func(eventstore.Recorded, error) bool) {
			yield(eventstore.Recorded{}, eventstore.ErrUnavailable)
		}
	}
	return u.Store.Read(ctx, stream, from)
}

// Reads look up a revocation of JWTs once a second. While the log is down, they go on with the account as it was last
// read, and writes do not.
func TestAdmitJWT_AgeOfAccount(t *testing.T) {
	t.Parallel()
	on := inMemory()
	elsewhere := start(t, on)
	elsewhere.provision(t)
	now, down := time.Now(), false
	directory := command.NewDirectory(unreadable{on.log, &down}, func() time.Time { return now })
	issued := now.Add(-time.Hour)
	admits := func(age time.Duration) error { return directory.AdmitJWT(t.Context(), "acme", issued, age) }
	require.NoError(t, admits(command.Brief))
	_, _, err := elsewhere.ConfigureAccount(t.Context(), command.ConfigureAccount{
		Caller: owner, AccountID: "acme", Patch: true, JWTNotBefore: issued.Add(time.Minute),
	})
	require.NoError(t, err)

	now = now.Add(999 * time.Millisecond)
	require.NoError(t, admits(command.Brief), "the account was read less than a second ago")
	down = true
	for range 3 {
		now = now.Add(time.Minute)
		require.NoError(t, admits(command.Brief), "the log is down")
		require.ErrorIs(t, admits(command.NoCache), eventstore.ErrUnavailable)
	}
	now, down = now.Add(time.Second), false
	require.ErrorIs(t, admits(command.Brief), command.ErrUnauthorized)
}

func TestAdmission_SettingsChangedElsewhere(t *testing.T) {
	t.Parallel()
	on := inMemory()
	here, elsewhere := start(t, on), start(t, on)
	here.provision(t)
	here.captured(t, `{"phone":"9876543210"}`)

	elsewhere.configure(t, account.Settings{
		Features: []string{account.FeatureAPI}, Stages: []string{"Fresh", "Sold"}, Region: "US",
	})
	// The stage and the region are not in the cache of this process.
	captured := here.captured(t, `{"phone":"(415) 555-2671","status":"sold"}`)
	require.Equal(t, "Sold", captured.Lead.Status)
	require.Equal(t, "+14155552671", captured.Lead.Phone)

	elsewhere.configure(t, account.Settings{
		Features: []string{account.FeatureAPI}, Stages: []string{"First"}, Region: "US",
	})
	captured = here.captured(t, `{"email":"new@example.com"}`)
	require.Equal(t, "First", captured.Lead.Status, "the default is the first stage of the current settings")
	_, err := here.capture(t.Context(), `{"email":"other@example.com","status":"Sold"}`)
	require.ErrorAs(t, err, &field.Errors{})
}

func TestAdmission_RevokedToken(t *testing.T) {
	t.Parallel()
	on := inMemory()
	here, elsewhere := start(t, on), start(t, on)
	here.provision(t)
	issued := elsewhere.issue(t)
	err := here.captureByToken(t.Context(), issued, `{"phone":"9876543210"}`)
	require.NoError(t, err)
	err = here.captureByToken(t.Context(), issued, `{"email":"not an address"}`)
	require.ErrorAs(t, err, &field.Errors{})

	_, err = elsewhere.DeleteToken(t.Context(), command.DeleteToken{Caller: owner, TokenID: issued.ID})
	require.NoError(t, err)
	for name, body := range map[string]string{
		"a new lead":         `{"phone":"9876543299"}`,
		"a refused repeat":   `{"phone":"9876543210"}`,
		"a merge":            `{"phone":"9876543210","metadata":{"source":"website"}}`,
		"an invalid arrival": `{"email":"not an address"}`,
	} {
		err = here.captureByToken(t.Context(), issued, body)
		require.ErrorIs(t, err, command.ErrUnauthorized, name)
	}
}

// The holder of a revoked token learns nothing about the account, whichever of the two an append finds changed.
func TestAdmission_RevokedTokenOfChangedAccount(t *testing.T) {
	t.Parallel()
	on := inMemory()
	here, elsewhere := start(t, on), start(t, on)
	here.provision(t)
	issued := elsewhere.issue(t)
	require.NoError(t, here.captureByToken(t.Context(), issued, `{"phone":"9876543210"}`))

	_, err := elsewhere.DeleteToken(t.Context(), command.DeleteToken{Caller: owner, TokenID: issued.ID})
	require.NoError(t, err)
	elsewhere.configure(t, account.Settings{})
	err = here.captureByToken(t.Context(), issued, `{"phone":"9876543299"}`)
	require.ErrorIs(t, err, command.ErrUnauthorized)
}

// The lines of a batch share the admission of the request.
func TestAdmission_RevokedDuringBatch(t *testing.T) {
	t.Parallel()
	on := inMemory()
	here, elsewhere := start(t, on), start(t, on)
	here.provision(t)
	issued := elsewhere.issue(t)
	admission, err := here.admit(t.Context(), owner, &issued)
	require.NoError(t, err)

	_, err = elsewhere.DeleteToken(t.Context(), command.DeleteToken{Caller: owner, TokenID: issued.ID})
	require.NoError(t, err)
	for _, body := range []string{`{"email":"not an address"}`, `{"email":"asha@example.com"}`} {
		_, err = here.CaptureLead(t.Context(), command.CaptureLead{Admission: admission, Body: members(body)})
		require.ErrorIs(t, err, command.ErrUnauthorized, body)
	}
}

// Reading a batch may take longer than its credential is valid.
func TestAdmission_ExpiresDuringBatch(t *testing.T) {
	t.Parallel()
	p := start(t, inMemory())
	p.provision(t)
	now := time.Now()
	directory := command.NewDirectory(p.store, func() time.Time { return now })
	p = process{command.NewHandlers(command.Options{
		Store: p.store, Claims: claim.NewNames(claimKey()), Directory: directory, Log: quiet(),
		Now: func() time.Time { return now },
	}), p.store, directory, forget.Eraser{}}
	issued := p.issue(t)
	byToken, err := p.admit(t.Context(), owner, &issued)
	require.NoError(t, err)
	byJWT, err := p.admit(t.Context(), owner, nil)
	require.NoError(t, err)
	byJWT = byJWT.ByJWT(now, issued.Token.ExpiresAt)

	line := func(admission command.Admission, body string) error {
		_, err := p.CaptureLead(t.Context(), command.CaptureLead{Admission: admission, Body: members(body)})
		return err
	}
	activity := func(admission command.Admission) error {
		_, err := p.RecordActivity(t.Context(), command.RecordActivity{
			Admission: admission, VisitorID: "v", Body: members(`{"type":"click"}`),
		})
		return err
	}
	now = issued.Token.ExpiresAt.Add(-time.Millisecond)
	require.NoError(t, line(byToken, `{"phone":"9876543210"}`))
	require.NoError(t, line(byJWT, `{"phone":"9876543211"}`))
	now = issued.Token.ExpiresAt
	for name, admission := range map[string]command.Admission{"a token": byToken, "a JWT": byJWT} {
		require.ErrorIs(t, line(admission, `{"phone":"9876543212"}`), command.ErrUnauthorized, name)
		require.ErrorIs(t, line(admission, `{"email":"not an address"}`), command.ErrUnauthorized, name)
		require.ErrorIs(t, activity(admission), command.ErrUnauthorized, name)
	}
}

func TestCapture_RefusalIsAppended(t *testing.T) {
	t.Parallel()
	p := start(t, inMemory())
	p.provision(t)
	first := p.captured(t, `{"phone":"9876543210","name":"Asha"}`)
	_, err := p.capture(t.Context(), `{"phone":"9876543210","name":"Other name"}`)
	var refused *command.LeadRefused
	require.ErrorAs(t, err, &refused)
	require.Equal(t, first.Lead.ID, refused.Fact.LeadID)
	require.Contains(t, refused.Error(), first.Lead.ID)

	events := map[string][]event.Data{}
	for _, e := range storetest.Events(t, p.store, eventstore.Filter{}) {
		fact, err := e.Fact()
		require.NoError(t, err)
		events[e.Type] = append(events[e.Type], fact.Data)
		if e.Type == "lead.refused.v1" {
			require.Empty(t, e.Metadata.IP)
			require.NotContains(t, string(e.Data), "9876543210")
			require.NotContains(t, string(e.Data), "Other name")
		}
	}
	require.Len(t, events["lead.refused.v1"], 1)
	require.Len(t, events["lead.created.v1"], 1)
	require.Empty(t, events["lead.merged.v1"])
}

func TestConfigureAccount_InvalidatesCache(t *testing.T) {
	t.Parallel()
	p := start(t, inMemory())
	p.provision(t)
	p.captured(t, `{"phone":"9876543210"}`)
	rate := 7.0
	p.configure(t, account.Settings{Features: []string{account.FeatureAPI}, RateLimit: &rate})
	cached, err := p.directory.Account(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, &rate, cached.State.RateLimit, "a process caches its own change at once")
}
