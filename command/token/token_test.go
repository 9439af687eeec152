package token

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/eventstore/event"
)

var createdAt = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

func fact(at time.Time, data event.Data) event.Fact {
	return event.Fact{
		Stream: event.TokenStream(someID), At: at, Data: data,
		Metadata: event.Metadata{Account: "acme", Actor: "user:ann"},
	}
}

// live returns a token of acme in slot 2 that is valid for 30 days.
func live(value Value) State {
	return Evolve(State{}, fact(createdAt, Create("CRM", 30, 2, value, createdAt)))
}

func TestToken_ZeroState(t *testing.T) {
	t.Parallel()
	require.False(t, State{}.Live())
	require.False(t, State{}.Admits([32]byte{}, createdAt))
}

func TestCreate_KeepsHash(t *testing.T) {
	t.Parallel()
	value := newValue(t)
	created := Create("CRM", 30, 2, value, createdAt)
	hash := value.Hash()
	require.Equal(t, event.TokenCreated{
		Name: "CRM", Prefix: value.Prefix(), Hash: hash[:], Days: 30, Slot: 2,
		ExpiresAt: time.Date(2026, 3, 31, 10, 0, 0, 0, time.UTC),
	}, created)
	_, encoded, err := event.Encode(created)
	require.NoError(t, err)
	require.NotContains(t, string(encoded), value.Reveal())

	s := live(value)
	require.Equal(t, State{
		Account: "acme", Name: "CRM", Prefix: value.Prefix(), Hash: hash[:], Days: 30, Slot: 2,
		ExpiresAt: created.ExpiresAt, UpdatedAt: createdAt,
	}, s)
}

func TestCreate_Expiry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		days int
		want time.Time
	}{
		{1, time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)},
		{31, time.Date(2026, 4, 1, 10, 0, 0, 0, time.UTC)},
		{365, time.Date(2027, 3, 1, 10, 0, 0, 0, time.UTC)},
	} {
		require.Equal(t, c.want, Create("CRM", c.days, 1, newValue(t), createdAt).ExpiresAt, "%d days", c.days)
	}
}

func TestAdmits_Cases(t *testing.T) {
	t.Parallel()
	value, other := newValue(t), newValue(t)
	s := live(value)
	rotated := Evolve(s, fact(createdAt, must(s.Rotate("acme", other, createdAt))))
	deleted := Evolve(s, fact(createdAt, event.TokenDeleted{}))
	expired := s.ExpiresAt

	for _, c := range []struct {
		name  string
		state State
		value Value
		now   time.Time
		want  bool
	}{
		{"its value", s, value, createdAt, true},
		{"its value just before it expires", s, value, expired.Add(-time.Nanosecond), true},
		{"its value at the instant it expires", s, value, expired, false},
		{"its value afterwards", s, value, expired.Add(time.Hour), false},
		{"another value of the same id", s, other, createdAt, false},
		{"the old value after a rotation", rotated, value, createdAt, false},
		{"the new value after a rotation", rotated, other, createdAt, true},
		{"its value after the deletion", deleted, value, createdAt, false},
		{"a value of a token that was not created", State{}, value, createdAt, false},
	} {
		require.Equal(t, c.want, c.state.Admits(c.value.Hash(), c.now), c.name)
	}
}

func TestAdmits_DeletedToken(t *testing.T) {
	t.Parallel()
	value := newValue(t)
	s := live(value)
	s.Deleted = true
	require.False(t, s.Admits(value.Hash(), createdAt))
}

func TestRotate_RenewsLifetime(t *testing.T) {
	t.Parallel()
	s := live(newValue(t))
	fresh, later := newValue(t), createdAt.Add(20*24*time.Hour)
	data, err := s.Rotate("acme", fresh, later)
	require.NoError(t, err)
	hash := fresh.Hash()
	require.Equal(t, event.TokenRotated{
		Prefix: fresh.Prefix(), Hash: hash[:],
		ExpiresAt: later.Add(30 * 24 * time.Hour), PreviousExpiresAt: createdAt.Add(30 * 24 * time.Hour),
	}, data)

	after := Evolve(s, fact(later, data))
	require.Equal(t, "CRM", after.Name, "the name is kept")
	require.Equal(t, 2, after.Slot, "the slot is kept")
	require.Equal(t, 30, after.Days, "the lifetime is kept")
	require.Equal(t, data.ExpiresAt, after.ExpiresAt)
	require.Equal(t, later, after.UpdatedAt)
	require.True(t, after.Live())
}

func TestRotate_ExpiredToken(t *testing.T) {
	t.Parallel()
	s := live(newValue(t))
	fresh, long := newValue(t), s.ExpiresAt.Add(1000*time.Hour)
	require.True(t, s.Live())
	after := Evolve(s, fact(long, must(s.Rotate("acme", fresh, long))))
	require.True(t, after.Admits(fresh.Hash(), long))
}

func TestDelete_ClearsHash(t *testing.T) {
	t.Parallel()
	s := live(newValue(t))
	data, err := s.Delete("acme")
	require.NoError(t, err)
	after := Evolve(s, fact(createdAt.Add(time.Hour), data))
	require.False(t, after.Live())
	require.Nil(t, after.Hash)
	require.Equal(t, "CRM", after.Name, "the record is kept for the audit")
	require.NotNil(t, s.Hash, "the input is unchanged")
}

func TestToken_NotFound(t *testing.T) {
	t.Parallel()
	value := newValue(t)
	s := live(value)
	for _, c := range []struct {
		name    string
		state   State
		account string
	}{
		{"no such token", State{}, "acme"},
		{"another account's", s, "globex"},
		{"an account with no name", s, ""},
		{"no such token, and no account", State{}, ""},
		{"deleted", Evolve(s, fact(createdAt, event.TokenDeleted{})), "acme"},
	} {
		rotated, err := c.state.Rotate(c.account, value, createdAt)
		require.ErrorIs(t, err, ErrNotFound, "rotate: "+c.name)
		require.Zero(t, rotated, c.name)
		_, err = c.state.Delete(c.account)
		require.ErrorIs(t, err, ErrNotFound, "delete: "+c.name)
	}
}

func TestAdmits_LatestValueOnly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		values := []Value{newValue(t)}
		s, now := live(values[0]), createdAt
		for range rapid.IntRange(0, 5).Draw(rt, "rotations") {
			now = now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(rt, "hours")) * time.Hour)
			values = append(values, newValue(t))
			before := s
			before.Hash = slices.Clone(s.Hash)
			after := Evolve(s, fact(now, must(s.Rotate("acme", values[len(values)-1], now))))
			require.Equal(rt, before, s, "the input is unchanged")
			s = after
		}
		for i, value := range values {
			require.Equal(rt, i == len(values)-1, s.Admits(value.Hash(), now), "value %d of %d", i+1, len(values))
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
