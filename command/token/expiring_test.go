package token

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

func TestExpiring_OncePerExpiry(t *testing.T) {
	t.Parallel()
	born := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	live := func(days int) State {
		return Evolve(State{}, event.Fact{At: born, Data: event.TokenCreated{Days: days, ExpiresAt: born.Add(time.Duration(days) * day)}})
	}
	due := func(s State, at time.Time) bool {
		_, due := s.Expiring(at)
		return due
	}
	s := live(30)
	require.False(t, due(s, born.Add(23*day-time.Millisecond)))
	require.True(t, due(s, born.Add(23*day)))
	require.True(t, due(s, born.Add(30*day-time.Millisecond)), "late is better than never")
	require.False(t, due(s, born.Add(30*day)), "but not when it is over")

	said, _ := s.Expiring(born.Add(23 * day))
	require.Equal(t, event.TokenExpiring{ExpiresAt: born.Add(30 * day)}, said)
	s = Evolve(s, event.Fact{At: born.Add(23 * day), Data: said})
	require.False(t, due(s, born.Add(25*day)))
	s = Evolve(s, event.Fact{At: born.Add(25 * day), Data: event.TokenRotated{ExpiresAt: born.Add(55 * day)}})
	require.False(t, due(s, born.Add(29*day)), "the end it was said of is none any more")
	require.True(t, due(s, born.Add(48*day)))
	require.False(t, due(Evolve(s, event.Fact{At: born.Add(48 * day), Data: event.TokenDeleted{}}), born.Add(48*day)))

	require.False(t, due(live(7), born))
	require.True(t, due(live(8), born.Add(day)))
	require.False(t, due(State{}, born))
}
