package token

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

func TestExpiring_OncePerExpiry(t *testing.T) {
	t.Parallel()
	createdAt := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	live := func(days int) State {
		return Evolve(State{}, event.Fact{
			At: createdAt, Metadata: event.Metadata{Account: "acme"},
			Data: event.TokenCreated{Days: days, ExpiresAt: createdAt.Add(time.Duration(days) * day)},
		})
	}
	due := func(s State, at time.Time) bool {
		_, due := s.Expiring(at)
		return due
	}
	s := live(30)
	require.False(t, due(s, createdAt.Add(23*day-time.Millisecond)))
	require.True(t, due(s, createdAt.Add(23*day)))
	require.True(t, due(s, createdAt.Add(30*day-time.Millisecond)), "late")
	require.False(t, due(s, createdAt.Add(30*day)), "not after the expiry")

	expiring, _ := s.Expiring(createdAt.Add(23 * day))
	require.Equal(t, event.TokenExpiring{ExpiresAt: createdAt.Add(30 * day)}, expiring)
	s = Evolve(s, event.Fact{At: createdAt.Add(23 * day), Data: expiring})
	require.False(t, due(s, createdAt.Add(25*day)))
	s = Evolve(s, event.Fact{At: createdAt.Add(25 * day), Data: event.TokenRotated{ExpiresAt: createdAt.Add(55 * day)}})
	require.False(t, due(s, createdAt.Add(29*day)), "the rotation moved the expiry")
	require.True(t, due(s, createdAt.Add(48*day)))
	require.False(t,
		due(Evolve(s, event.Fact{At: createdAt.Add(48 * day), Data: event.TokenDeleted{}}), createdAt.Add(48*day)))

	require.False(t, due(live(7), createdAt))
	require.True(t, due(live(8), createdAt.Add(day)))
	require.False(t, due(State{}, createdAt))
}
