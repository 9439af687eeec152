package token_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore/event"
)

func TestPresented_Refusal(t *testing.T) {
	t.Parallel()
	expires := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	before, after := expires.Add(-time.Millisecond), expires
	first, second, unknown := [32]byte{1}, [32]byte{2}, [32]byte{3}
	created := event.TokenCreated{Hash: first[:], ExpiresAt: expires}
	rotated := event.TokenRotated{Hash: second[:], ExpiresAt: expires}
	for name, c := range map[string]struct {
		stream []event.Data
		hash   [32]byte
		now    time.Time
		want   token.Reason
	}{
		"valid":                          {[]event.Data{created}, first, before, ""},
		"valid after a rotation":         {[]event.Data{created, rotated}, second, before, ""},
		"expired":                        {[]event.Data{created}, first, after, token.ReasonExpired},
		"rotated":                        {[]event.Data{created, rotated}, first, before, token.ReasonRotated},
		"rotated, and the token expired": {[]event.Data{created, rotated}, first, after, token.ReasonRotated},
		"deleted": {
			[]event.Data{created, event.TokenDeleted{}}, first, before, token.ReasonDeleted,
		},
		"deleted, then past the expiry": {
			[]event.Data{created, event.TokenDeleted{}}, first, after, token.ReasonDeleted,
		},
		"rotated, then deleted": {
			[]event.Data{created, rotated, event.TokenDeleted{}}, first, before, token.ReasonRotated,
		},
		"never a value of this token": {[]event.Data{created, rotated, event.TokenDeleted{}}, unknown, after, ""},
		"no such token":               {nil, first, after, ""},
		"zero hash, no such token":    {nil, [32]byte{}, after, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var presented token.Presented
			var state token.State
			for _, data := range c.stream {
				presented = token.EvolveFor(c.hash)(presented, event.Fact{Data: data})
				state = token.Evolve(state, event.Fact{Data: data})
			}
			require.Equal(t, c.want, presented.Refusal(c.now))
			require.Equal(t, state, presented.State)
		})
	}
}
