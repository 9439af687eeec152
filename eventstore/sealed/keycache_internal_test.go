package sealed

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestKeyCache_RemovalDuringLookup(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(*keyCache){
		"its stream":     func(c *keyCache) { c.remove("lead-1") },
		"another stream": func(c *keyCache) { c.remove("lead-2") },
		"all":            (*keyCache).clear,
	} {
		c := newKeyCache(nil)
		before := c.version()
		remove(c)
		c.add("lead-1", testKey(), before, true)
		_, cached := c.get("lead-1")
		require.False(t, cached, name)
		c.add("lead-1", testKey(), c.version(), true)
		_, cached = c.get("lead-1")
		require.True(t, cached, name)
	}
}

func TestKeyCache_Bounds(t *testing.T) {
	t.Parallel()
	c := newKeyCache(nil)
	stream := func(i int) string { return "lead-" + strconv.Itoa(i) }
	for i := range cachedKeys + 10 {
		c.add(stream(i), testKey(), c.version(), false)
	}
	require.Equal(t, cachedKeys, c.keys.Len())
	_, cached := c.get(stream(9))
	require.False(t, cached)
	_, cached = c.get(stream(10))
	require.True(t, cached)
	c.clear()
	require.Zero(t, c.keys.Len())
}

func TestKeyCache_Confirm(t *testing.T) {
	t.Parallel()
	c := newKeyCache(nil)
	c.add("lead-1", testKey(), c.version(), false)
	c.confirm("lead-1", testKey().id+1)
	cached, ok := c.get("lead-1")
	require.True(t, ok)
	require.False(t, cached.stored, "the confirmation of another key is ignored")
	c.confirm("lead-1", testKey().id)
	cached, _ = c.get("lead-1")
	require.True(t, cached.stored)
}

// A process that has lost its connection is not notified of destroyed keys.
func TestKeyCache_TTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newKeyCache(nil)
		c.add("lead-1", testKey(), c.version(), true)
		time.Sleep(time.Minute - time.Nanosecond)
		c.confirm("lead-1", testKey().id)
		_, cached := c.get("lead-1")
		require.True(t, cached)
		time.Sleep(time.Nanosecond)
		_, cached = c.get("lead-1")
		require.False(t, cached, "a confirmation does not extend the TTL")
	})
}
