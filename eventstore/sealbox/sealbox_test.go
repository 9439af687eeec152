package sealbox_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/sealbox"
)

var owner, secret = []byte("webhook-1"), []byte("whsec_secret")

func key(fill byte) []byte { return bytes.Repeat([]byte{fill}, sealbox.KeySize) }

func newBox(t *testing.T, keys ...[]byte) *sealbox.Box {
	t.Helper()
	box, err := sealbox.New(keys...)
	require.NoError(t, err)
	return box
}

func seal(t *testing.T, box *sealbox.Box) sealbox.Sealed {
	t.Helper()
	sealed, err := box.Seal(secret, owner)
	require.NoError(t, err)
	return sealed
}

func TestBox_SealsDifferentlyEachTime(t *testing.T) {
	t.Parallel()
	box := newBox(t, key(1))
	first, second := seal(t, box), seal(t, box)
	require.NotEqual(t, first.Data, second.Data)
	require.NotContains(t, string(first.Data), string(secret))
	for _, sealed := range []sealbox.Sealed{first, second} {
		opened, err := box.Open(sealed, owner)
		require.NoError(t, err)
		require.Equal(t, secret, opened)
	}
}

func TestBox_RejectsChangedSecret(t *testing.T) {
	t.Parallel()
	box := newBox(t, key(1))
	good := seal(t, box)
	_, err := box.Open(good, []byte("webhook-2"))
	require.ErrorIs(t, err, sealbox.ErrDamaged, "another owner")
	for i := range good.Data {
		changed := bytes.Clone(good.Data)
		changed[i] ^= 1
		_, err := box.Open(sealbox.Sealed{KeyID: good.KeyID, Data: changed}, owner)
		require.ErrorIs(t, err, sealbox.ErrDamaged)
		_, err = box.Open(sealbox.Sealed{KeyID: good.KeyID, Data: good.Data[:i]}, owner)
		require.ErrorIs(t, err, sealbox.ErrDamaged)
		require.NotContains(t, err.Error(), string(secret))
	}
}

func TestBox_Rotation(t *testing.T) {
	t.Parallel()
	old, rotated, next := newBox(t, key(1)), newBox(t, key(2), key(1)), newBox(t, key(2))
	sealed := seal(t, old)
	require.Equal(t, old.Current(), sealed.KeyID)
	require.ElementsMatch(t, []string{rotated.Current(), old.Current()}, rotated.KeyIDs())
	_, err := next.Open(sealed, owner)
	require.ErrorIs(t, err, sealbox.ErrUnknownKey)

	rewrapped, err := rotated.Rewrap(sealed, owner)
	require.NoError(t, err)
	require.Equal(t, rotated.Current(), rewrapped.KeyID)
	opened, err := next.Open(rewrapped, owner)
	require.NoError(t, err)
	require.Equal(t, secret, opened)
	_, err = old.Rewrap(rewrapped, owner)
	require.ErrorIs(t, err, sealbox.ErrUnknownKey)
}

func TestBox_Keys(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 16, 31, 33} {
		_, err := sealbox.New(key(1), make([]byte, size))
		require.Error(t, err, size)
	}
	empty := newBox(t)
	_, err := empty.Seal(secret, owner)
	require.ErrorIs(t, err, sealbox.ErrNoKey)
	_, err = empty.Open(seal(t, newBox(t, key(1))), owner)
	require.ErrorIs(t, err, sealbox.ErrNoKey)
}

func TestSealed_Text(t *testing.T) {
	t.Parallel()
	sealed := seal(t, newBox(t, key(1)))
	parsed, err := sealbox.Parse(sealed.String())
	require.NoError(t, err)
	require.Equal(t, sealed, parsed)
	for _, text := range []string{"", "5e318f8c", "5e318f8c.*"} {
		_, err := sealbox.Parse(text)
		require.ErrorIs(t, err, sealbox.ErrDamaged, text)
	}
}
