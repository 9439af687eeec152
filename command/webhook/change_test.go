package webhook

import (
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

// evolveAfter folds facts that occur some time after the creation.
func evolveAfter(s State, after time.Duration, facts ...event.Data) State {
	for _, data := range facts {
		s = Evolve(s, fact(createdAt.Add(after), data))
	}
	return s
}

// updated returns the fact of a change of the live endpoint's settings.
func updated(change func(*event.WebhookSettings), names ...string) []event.Data {
	settings := live().WebhookSettings
	change(&settings)
	return []event.Data{event.WebhookUpdated{WebhookSettings: settings, Changed: names}}
}

func TestChange_OnlyDifferences(t *testing.T) {
	t.Parallel()
	moved := "https://example.com/moved"
	disabled := evolveAfter(live(), time.Hour, event.WebhookDisabled{Reason: Gone})
	mergedOnly := evolveAfter(live(), time.Hour, event.WebhookUpdated{
		WebhookSettings: event.WebhookSettings{URL: "https://example.com/", Events: []string{"lead.merged"}},
	})
	for name, c := range map[string]struct {
		state  State
		change Change
		want   []event.Data
	}{
		"url": {live(), Change{URL: &moved}, []event.Data{event.WebhookUpdated{
			WebhookSettings: event.WebhookSettings{URL: moved, Events: []string{"*"}, Description: "CRM"},
			Changed:         []string{"url"},
		}}},
		"url, events kept": {mergedOnly, Change{URL: &moved}, []event.Data{event.WebhookUpdated{
			WebhookSettings: event.WebhookSettings{URL: moved, Events: []string{"lead.merged"}},
			Changed:         []string{"url"},
		}}},
		"all events": {mergedOnly, Change{Events: []string{}}, []event.Data{event.WebhookUpdated{
			WebhookSettings: event.WebhookSettings{URL: "https://example.com/", Events: []string{"*"}},
			Changed:         []string{"events"},
		}}},
		"events, in order": {
			live(), Change{Events: []string{"token.deleted", "lead.merged"}},
			[]event.Data{event.WebhookUpdated{
				WebhookSettings: event.WebhookSettings{
					URL: "https://example.com/", Events: []string{"lead.merged", "token.deleted"}, Description: "CRM",
				}, Changed: []string{"events"},
			}},
		},
		"description removed": {live(), Change{Description: new("")}, []event.Data{event.WebhookUpdated{
			WebhookSettings: event.WebhookSettings{URL: "https://example.com/", Events: []string{"*"}},
			Changed:         []string{"description"},
		}}},
		"all events, as before": {live(), Change{Events: []string{}}, nil},
		"current values": {
			live(), Change{URL: new("https://example.com/"), Description: new(" CRM "), Enabled: new(true)}, nil,
		},
		"filter": {
			live(), Change{
				Filter: new(" type == 'lead.created' "),
			}, updated(func(s *event.WebhookSettings) { s.Filter = "type == 'lead.created'" }, "filter"),
		},
		"order": {
			live(), Change{Ordering: new(ByLead)},
			updated(func(s *event.WebhookSettings) { s.Ordering = ByLead }, "ordering"),
		},
		"limit": {
			live(), Change{RateLimit: new(2.5)},
			updated(func(s *event.WebhookSettings) { s.RateLimit = 2.5 }, "rateLimit"),
		},
		"headers": {live(), Change{Headers: map[string]string{"x-api-key": "k", "authorization": "Bearer t"}},
			updated(func(s *event.WebhookSettings) {
				s.HeaderNames = []string{"Authorization", "X-Api-Key"}
			}, "headers")},
		"defaults, as before": {
			live(), Change{
				Ordering: new(Unordered), RateLimit: new(0.0), Filter: new(""), Headers: map[string]string{},
			}, nil,
		},
		"off": {
			live(), Change{Enabled: new(false)}, []event.Data{event.WebhookDisabled{Reason: ByOwner}},
		},
		"off, as before": {disabled, Change{Enabled: new(false)}, nil},
		"on, with another URL": {disabled, Change{URL: &moved, Enabled: new(true)}, []event.Data{
			event.WebhookUpdated{
				WebhookSettings: event.WebhookSettings{URL: moved, Events: []string{"*"}, Description: "CRM"},
				Changed:         []string{"url"},
			}, event.WebhookEnabled{},
		}},
	} {
		decided, _, err := c.state.Update("acme", c.change, false)
		require.NoError(t, err, name)
		require.Equal(t, c.want, decided, name)
	}
}

func TestChange_Headers(t *testing.T) {
	t.Parallel()
	with := evolveAfter(live(), time.Hour, event.WebhookUpdated{
		WebhookSettings: event.WebhookSettings{
			URL: "https://example.com/", Events: []string{"*"}, HeaderNames: []string{"X-Key"},
		},
	})
	decided, headers, err := with.Update("acme", Change{Headers: map[string]string{"x-KEY": " other "}}, false)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"X-Key": "other"}, headers)
	require.Equal(t, []string{"headers"}, decided[0].(event.WebhookUpdated).Changed,
		"the stored value is unknown, so it counts as changed")
	decided, headers, err = with.Update("acme", Change{Headers: map[string]string{}}, false)
	require.NoError(t, err)
	require.NotNil(t, headers)
	require.Empty(t, headers)
	require.Empty(t, decided[0].(event.WebhookUpdated).HeaderNames)
	_, headers, err = with.Update("acme", Change{Description: new("ERP")}, false)
	require.NoError(t, err)
	require.Nil(t, headers, "omitted headers are kept")
}

func TestChange_CollectsErrors(t *testing.T) {
	t.Parallel()
	_, _, err := live().Update("acme", Change{
		URL: new("http://10.0.0.1"), Events: []string{"x"}, Description: new(string(make([]byte, 501))),
	}, false)
	require.Equal(t, []string{"url", "events", "description"}, fields(t, err))
	_, _, err = live().Update("acme", Change{URL: new("")}, false)
	require.Equal(t, []string{"url"}, fields(t, err), "an endpoint has a URL")
	_, _, err = live().Update("globex", Change{URL: new("nonsense")}, false)
	require.ErrorIs(t, err, ErrNotFound, "the owner is checked before the change")
}

func TestEnable_ResetsFailures(t *testing.T) {
	t.Parallel()
	s := evolveAfter(live(), time.Hour, event.WebhookDisabled{Reason: Failing})
	require.Equal(t, Failing, s.DisabledReason)
	require.Equal(t, createdAt.Add(time.Hour), s.DisabledAt)
	require.True(t, s.Live(), "a disabled endpoint is not deleted")
	s = evolveAfter(s, 2*time.Hour, event.WebhookEnabled{})
	require.Empty(t, s.DisabledReason)
	require.Zero(t, s.DisabledAt)
	require.Equal(t, createdAt.Add(2*time.Hour), s.Since)
	require.Equal(t, createdAt, s.CreatedAt)
}

func TestDisable_IgnoresStaleFailures(t *testing.T) {
	t.Parallel()
	const url = "https://example.com/"
	moved := evolveAfter(live(), time.Hour, event.WebhookUpdated{
		WebhookSettings: event.WebhookSettings{URL: "https://example.com/moved", Events: []string{"*"}},
	})
	enabled := evolveAfter(live(), time.Hour, event.WebhookDisabled{Reason: ByOwner}, event.WebhookEnabled{})
	for name, c := range map[string]struct {
		state State
		url   string
		from  time.Duration
		want  bool
	}{
		"current settings":           {live(), url, time.Minute, true},
		"at its creation":            {live(), url, 0, true},
		"at another URL":             {moved, url, 2 * time.Hour, false},
		"at its URL, since it moved": {moved, "https://example.com/moved", 2 * time.Hour, true},
		"before it moved":            {moved, "https://example.com/moved", time.Minute, false},
		"before it was enabled":      {enabled, url, time.Minute, false},
		"since it was enabled":       {enabled, url, 2 * time.Hour, true},
		"disabled before": {
			evolveAfter(live(), 0, event.WebhookDisabled{Reason: Gone}), url, time.Minute, false,
		},
		"deleted":       {evolveAfter(live(), 0, event.WebhookDeleted{}), url, time.Minute, false},
		"never created": {State{}, "", time.Minute, false},
	} {
		disabled, ok := c.state.Disable(Gone, c.url, createdAt.Add(c.from))
		require.Equal(t, c.want, ok, name)
		require.Equal(t, Gone, disabled.Reason, name)
	}
}

func TestReplay_OneAtATime(t *testing.T) {
	t.Parallel()
	replay := func(s State) error {
		_, err := s.Replay("acme", createdAt, time.Time{}, createdAt.Add(time.Hour))
		return err
	}
	first := evolveAfter(live(), 0, event.WebhookReplayed{Generation: 1})
	require.ErrorIs(t, replay(first), ErrReplayRunning)
	_, err := first.Replay("acme", time.Time{}, time.Time{}, createdAt)
	require.Equal(t, []string{"since"}, fields(t, err), "validation comes before the check of a running replay")
	_, err = first.Test("acme")
	require.NoError(t, err)
	_, ok := first.EndReplay(2, "")
	require.False(t, ok)
	ended, ok := first.EndReplay(1, "broken")
	require.True(t, ok)
	require.Equal(t, event.WebhookReplayEnded{Generation: 1, Error: "broken"}, ended)
	done := evolveAfter(first, 0, ended)
	require.NoError(t, replay(done))
	_, ok = done.EndReplay(1, "")
	require.False(t, ok, "the replay has ended")
	second := evolveAfter(done, 0, event.WebhookReplayed{Generation: 2})
	require.ErrorIs(t, replay(evolveAfter(second, 0, ended)), ErrReplayRunning,
		"the end of an earlier replay does not count")
	require.NoError(t, replay(evolveAfter(second, 0, event.WebhookDisabled{Reason: ByOwner}, event.WebhookEnabled{})))
}

func TestRotate_OverlapsOneDay(t *testing.T) {
	t.Parallel()
	rotated, err := live().Rotate("acme", createdAt)
	require.NoError(t, err)
	require.Equal(t, createdAt.Add(24*time.Hour), rotated.PreviousUntil)
	_, err = live().Rotate("globex", createdAt)
	require.ErrorIs(t, err, ErrNotFound)
}

func TestRetry_DisabledEndpoint(t *testing.T) {
	t.Parallel()
	since := createdAt.Add(-time.Hour)
	for name, c := range map[string]struct {
		state   State
		account string
		want    error
	}{
		"enabled":       {live(), "acme", nil},
		"disabled":      {evolveAfter(live(), 0, event.WebhookDisabled{Reason: ByOwner}), "acme", ErrDisabled},
		"another's":     {live(), "globex", ErrNotFound},
		"deleted":       {evolveAfter(live(), 0, event.WebhookDeleted{}), "acme", ErrNotFound},
		"never created": {State{}, "", ErrNotFound},
	} {
		_, test := c.state.Test(c.account)
		_, retry := c.state.Retry(c.account, "01KAJ8Q6ZJ0000000000000001")
		_, replay := c.state.Replay(c.account, since, time.Time{}, createdAt)
		for _, err := range []error{test, retry, replay} {
			require.ErrorIs(t, err, c.want, name)
		}
	}
}

func TestReplay_Span(t *testing.T) {
	t.Parallel()
	now := createdAt.Add(24 * time.Hour)
	at := func(hours int) time.Time { return createdAt.Add(time.Duration(hours) * time.Hour) }
	for name, c := range map[string]struct {
		since, until time.Time
		want         time.Time // until
		wrong        []string
	}{
		"a span":              {at(1), at(2), at(2), nil},
		"up to now":           {at(1), time.Time{}, now.Add(time.Millisecond), nil},
		"beyond now":          {at(1), at(100), now.Add(time.Millisecond), nil},
		"before its creation": {at(-9), at(-8), at(-8), nil},
		"no since":            {time.Time{}, at(2), time.Time{}, []string{"since"}},
		"since in the future": {at(25), at(26), time.Time{}, []string{"since"}},
		"empty span":          {at(2), at(2), time.Time{}, []string{"until"}},
		"until before since":  {at(2), at(1), time.Time{}, []string{"until"}},
	} {
		replayed, err := live().Replay("acme", c.since, c.until, now)
		if c.wrong != nil {
			require.Equal(t, c.wrong, fields(t, err), name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, event.WebhookReplayed{Since: c.since, Until: c.want, Generation: 1}, replayed, name)
	}
	second, err := evolveAfter(live(), 0, event.WebhookReplayed{Generation: 1},
		event.WebhookReplayEnded{Generation: 1}).Replay("acme", at(1), at(2), now)
	require.NoError(t, err)
	require.Equal(t, 2, second.Generation)
}

func TestDeliveryID_Derived(t *testing.T) {
	t.Parallel()
	one, other := ulid.MustParse("01KAJ8Q6ZJ0000000000000001"), ulid.MustParse("01KAJ8Q6ZK0000000000000002")
	id := DeliveryID(one, one, 0, "w", 0)
	require.Equal(t, "01KAJ8Q6ZJ50HR9TZHAEMK31JQ", id, "a rebuild must derive the ids that receivers have stored")
	require.Equal(t, one.Timestamp(), ulid.MustParse(id).Timestamp())
	require.NotEqual(t, id, DeliveryID(one, one, 0, "v", 0))
	require.NotEqual(t, id, DeliveryID(one, one, 1, "w", 0))
	require.NotEqual(t, id, DeliveryID(one, other, 0, "w", 0))
	replayed := DeliveryID(other, one, 0, "w", 1)
	require.NotEqual(t, id[10:], replayed[10:])
	require.Equal(t, other.Timestamp(), ulid.MustParse(replayed).Timestamp(),
		"the time of a replayed delivery is the time of the request")
}
