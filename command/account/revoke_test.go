package account

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

func TestRevokeJWTs_SurvivesConfigure(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 10, 0, 0, 500e6, time.UTC)
	var s State
	require.True(t, s.AdmitsJWT(time.Time{}))
	s = Evolve(s, event.Fact{At: at, Data: event.AccountConfigured{Name: "A", Stages: []string{"new"}}})
	require.True(t, s.AdmitsJWT(time.Time{}), "without a revocation a JWT needs no iat claim")

	revoked, err := s.RevokeJWTs(at.Add(999*time.Microsecond), at.Add(time.Millisecond))
	require.NoError(t, err)
	require.Equal(t, &event.JWTsRevoked{NotBefore: at}, revoked, "whole milliseconds")
	s = Evolve(s, event.Fact{At: at.Add(time.Hour), Data: *revoked})
	s = Evolve(s, event.Fact{At: at.Add(time.Hour), Data: event.AccountConfigured{Name: "B", Stages: []string{"new"}}})
	require.Equal(t, "B", s.Name)
	require.Equal(t, at, s.CreatedAt)
	for issued, admitted := range map[time.Time]bool{
		{}: false, at.Truncate(time.Second): false, at.Add(-time.Millisecond): false, at: true, at.Add(time.Hour): true,
	} {
		require.Equal(t, admitted, s.AdmitsJWT(issued), "%s", issued)
	}

	for _, same := range []time.Time{{}, at, at.In(time.FixedZone("", 3600))} {
		again, err := s.RevokeJWTs(same, at)
		require.NoError(t, err)
		require.Nil(t, again)
	}
	earlier, err := s.RevokeJWTs(at.Add(-time.Hour), at)
	require.NoError(t, err)
	require.NotNil(t, earlier)
	for _, bad := range []time.Time{at.Add(time.Minute), time.Time{}.Add(-time.Hour)} {
		_, err = s.RevokeJWTs(bad, at)
		var wrong field.Errors
		require.ErrorAs(t, err, &wrong, "%s", bad)
		require.Equal(t, "jwtNotBefore", wrong[0].Field)
	}
}
