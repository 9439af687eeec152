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
		_, known := c.get("lead-1")
		require.False(t, known, name)
		c.add("lead-1", testKey(), c.version(), true)
		_, known = c.get("lead-1")
		require.True(t, known, name)
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
	_, known := c.get(stream(9))
	require.False(t, known)
	_, known = c.get(stream(10))
	require.True(t, known)
	c.clear()
	require.Zero(t, c.keys.Len())
}

func TestKeyCache_Confirm(t *testing.T) {
	t.Parallel()
	c := newKeyCache(nil)
	c.add("lead-1", testKey(), c.version(), false)
	c.confirm("lead-1", testKey().id+1)
	known, ok := c.get("lead-1")
	require.True(t, ok)
	require.False(t, known.stored, "another key has opened an event")
	c.confirm("lead-1", testKey().id)
	known, _ = c.get("lead-1")
	require.True(t, known.stored)
}

// A process whose connection is lost hears of no destroyed key.
func TestKeyCache_TTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newKeyCache(nil)
		c.add("lead-1", testKey(), c.version(), true)
		time.Sleep(time.Minute - time.Nanosecond)
		c.confirm("lead-1", testKey().id)
		_, known := c.get("lead-1")
		require.True(t, known)
		time.Sleep(time.Nanosecond)
		_, known = c.get("lead-1")
		require.False(t, known, "a confirmation does not extend the time")
	})
}
