package webhook

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

var createdAt = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

func fact(at time.Time, data event.Data) event.Fact {
	return event.Fact{
		Stream: event.WebhookStream("01KAHQ5V8M3N6R9T2W4Y7Z0B1C"), At: at, Data: data,
		Metadata: event.Metadata{Account: "acme"},
	}
}

func live() State {
	return Evolve(State{}, fact(createdAt, event.WebhookRegistered{
		WebhookSettings: event.WebhookSettings{URL: "https://example.com/", Events: []string{"*"}, Description: "CRM"},
		Slot:            7,
	}))
}

func TestEvolve_Registered(t *testing.T) {
	t.Parallel()
	require.Equal(t, State{
		Account: "acme", Slot: 7,
		WebhookSettings: event.WebhookSettings{URL: "https://example.com/", Events: []string{"*"}, Description: "CRM"},
		CreatedAt:       createdAt, UpdatedAt: createdAt, Since: createdAt, SentLeads: true,
	}, live())
}

func TestDelete_FreesSlot(t *testing.T) {
	t.Parallel()
	s := live()
	data, err := s.Delete("acme")
	require.NoError(t, err)
	after := Evolve(s, fact(createdAt.Add(time.Hour), data))
	require.False(t, after.Live())
	require.Equal(t, createdAt.Add(time.Hour), after.UpdatedAt)
	require.True(t, s.Live(), "the input is unchanged")
}

func TestEndpoint_NotFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		state   State
		account string
	}{
		{"no such endpoint", State{}, "acme"},
		{"no such endpoint, and no account", State{}, ""},
		{"another account's", live(), "globex"},
		{"deleted", Evolve(live(), fact(createdAt, event.WebhookDeleted{})), "acme"},
	} {
		_, err := c.state.Delete(c.account)
		require.ErrorIs(t, err, ErrNotFound, c.name)
	}
}

func TestSubscribes_Patterns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		events      []string
		name        string
		want, leads bool
	}{
		{[]string{"*"}, "intake.silent", true, true},
		{[]string{"lead.merged"}, "lead.merged", true, true},
		{[]string{"lead.merged"}, "lead.created", false, true},
		{[]string{"token.*", "lead.*"}, "lead.created", true, true},
		{[]string{"token.*"}, "token.expiring", true, false},
		{[]string{"token.*", "intake.silent"}, "lead.created", false, false},
	} {
		require.Equal(t, c.want, Subscribes(c.events, c.name), "%v %s", c.events, c.name)
		require.Equal(t, c.leads, SubscribesToLeads(c.events), "%v", c.events)
	}
}
