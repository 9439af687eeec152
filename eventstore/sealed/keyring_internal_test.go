package sealed

import (
	"strconv"
	"testing"

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
