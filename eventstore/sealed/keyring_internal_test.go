package sealed

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAKeyThatWasForgottenIsNotRememberedByWhoeverLookedItUpBefore(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(*keyring){
		"its stream":     func(r *keyring) { r.forget("lead-1") },
		"another stream": func(r *keyring) { r.forget("lead-2") }, // it need not know which one was looked up
		"everything":     (*keyring).forgetAll,
	} {
		r := newKeyring(nil)
		before := r.moment()
		forget(r)
		r.remember("lead-1", testKey(), before, true)
		_, known := r.recall("lead-1")
		require.False(t, known, name)
		r.remember("lead-1", testKey(), r.moment(), true)
		_, known = r.recall("lead-1")
		require.True(t, known, name)
	}
}

func TestOfTheKeysUsedLatelyABoundedNumberIsRememberedAndAnyIsForgotten(t *testing.T) {
	t.Parallel()
	r := newKeyring(nil)
	stream := func(i int) string { return "lead-" + strconv.Itoa(i) }
	for i := range 3*generation + 1 {
		r.remember(stream(i), testKey(), r.moment(), false)
	}
	require.Equal(t, generation+1, len(r.latest)+len(r.earlier))
	for what, i := range map[string]int{"the latest": 3 * generation, "one of a generation ago": 3*generation - 1} {
		r.prove(stream(i), testKey().id+1)
		known, ok := r.recall(stream(i))
		require.True(t, ok, what)
		require.False(t, known.kept, "%s: another key opened something", what)
		r.prove(stream(i), testKey().id)
		known, _ = r.recall(stream(i))
		require.True(t, known.kept, what)
		r.forget(stream(i))
		_, ok = r.recall(stream(i))
		require.False(t, ok, what)
	}
	r.forgetAll()
	require.Empty(t, len(r.latest)+len(r.earlier))
}

// Nobody tells a process that has lost its connection, and what it knows is worth nothing after a while all the same.
func TestAKeyThatNobodySaysIsDestroyedIsRememberedForAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newKeyring(nil)
		r.remember("lead-1", testKey(), r.moment(), true)
		time.Sleep(time.Minute - time.Nanosecond)
		r.prove("lead-1", testKey().id) // what it opens does not say that it is there
		_, known := r.recall("lead-1")
		require.True(t, known)
		time.Sleep(time.Nanosecond)
		_, known = r.recall("lead-1")
		require.False(t, known)
	})
}
