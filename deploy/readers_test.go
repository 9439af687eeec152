package deploy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each script that makes readers is run alone, so each has what closes the server to them. It is the same in all.
func TestReaderScripts_SameRestrictions(t *testing.T) {
	t.Parallel()
	restrictions := func(file string) string {
		_, from, begun := strings.Cut(text(t, file), "-- What any role may do by default")
		head, rest, found := strings.Cut(from, "-- The table of locks is the whole server's")
		last, _, ended := strings.Cut(rest, "\n$$;\n")
		require.True(t, begun && found && ended, file)
		return head + last
	}
	want := restrictions("roles.sql")
	for _, file := range []string{"analyst.sql", "account-reader.sql"} {
		require.Equal(t, want, restrictions(file), file)
	}
}
