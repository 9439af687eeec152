package deploy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each script that creates roles is run alone, so each repeats the restrictions on the server.
func TestReaderScripts_SameRestrictions(t *testing.T) {
	t.Parallel()
	restrictions := func(file string) string {
		_, from, begun := strings.Cut(text(t, file), "-- By default any role can")
		head, rest, found := strings.Cut(from, "-- The lock table belongs to")
		last, _, ended := strings.Cut(rest, "\n$$;\n")
		require.True(t, begun && found && ended, file)
		return head + last
	}
	want := restrictions("roles.sql")
	for _, file := range []string{"analyst.sql", "account-reader.sql"} {
		require.Equal(t, want, restrictions(file), file)
	}
}
