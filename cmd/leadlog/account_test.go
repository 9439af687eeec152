package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// runs runs the program on a database, and returns what it printed and its exit code.
func runs(t *testing.T, database string, args ...string) (out, err string, code int) {
	t.Helper()
	var printed, complained strings.Builder
	code = run(t.Context(), append(args, "--database-url", database), cli.Output{Out: &printed, Err: &complained})
	return printed.String(), complained.String(), code
}

// The messages once had the names of fields of a request, or the layout that Go parses a time with; and an empty text,
// or the first instant of the year 1, was accepted and changed nothing.
func TestAccountSet_RefusalNamesFlag(t *testing.T) {
	t.Parallel()
	database := pgtest.Database(t)
	_, _, code := runs(t, database, "migrate")
	require.Zero(t, code)
	for message, args := range map[string][]string{
		"ID must be 1 to 64":                {"a b"},
		"--rate-limit must be between":      {"acme", "--rate-limit", "NaN"},
		"--rate-burst must be between":      {"acme", "--rate-burst", "0"},
		"--visitor-days must be between":    {"acme", "--visitor-days", "0"},
		"--quarantine-days must be between": {"acme", "--quarantine-days", "0"},
		"--storage-per-day must be between": {"acme", "--storage-per-day", "1099511627777"},
		"--won-stage must be":               {"acme", "--won-stage", "nowhere"},
		"--stage must be":                   {"acme", "--stage", "a", "--stage", "A"},
		"--feature must be":                 {"acme", "--feature", "a b"},
		"--region must be":                  {"acme", "--region", "XX"},
		"--currency must be":                {"acme", "--currency", "XXXX"},
		"--name must be":                    {"acme", "--name", strings.Repeat("a", 201)},
		"--jwt-not-before must not be in the future": {
			"acme", "--jwt-not-before", "9999-01-01T00:00:00Z",
		},
		`--jwt-not-before="yesterday": must be a time`: {"acme", "--jwt-not-before", "yesterday"},
		`--jwt-not-before="0001-01-01T00:00:00Z": must be a time`: {
			"acme", "--jwt-not-before", "0001-01-01T00:00:00Z",
		},
		`--jwt-not-before="": must be a time`:                        {"acme", "--jwt-not-before", ""},
		`--name="": must be not empty; left out, it changes nothing`: {"acme", "--name", ""},
		`--region=" ": must be not empty`:                            {"acme", "--region", " "},
		`--currency="": must be not empty`:                           {"acme", "--currency", ""},
	} {
		out, err, code := runs(t, database, append([]string{"account", "set"}, args...)...)
		require.Equal(t, exitUsage, code, message)
		require.Empty(t, out)
		require.True(t, strings.HasPrefix(err, "leadlog: "+message), "%s: %s", message, err)
	}
}

func TestAccountSet_PrintsRateLimits(t *testing.T) {
	t.Parallel()
	database := pgtest.Database(t)
	_, _, code := runs(t, database, "migrate")
	require.Zero(t, code)
	out, _, _ := runs(t, database, "account", "set", "acme")
	require.Contains(t, out, "arrivals for 30 days (position", "the limits are those of the service")
	out, _, _ = runs(t, database, "account", "set", "acme", "--rate-limit", "0.5", "--rate-burst", "2")
	require.Contains(t, out, "arrivals for 30 days; captures 0.5 a second; burst 2 (position")
	out, _, _ = runs(t, database, "account", "set", "acme", "--rate-limit", "0")
	require.Contains(t, out, "arrivals for 30 days; captures without a limit; burst 2 (position")
	out, _, _ = runs(t, database, "account", "set", "other", "--storage-per-day", "5000")
	require.Contains(t, out, "arrivals for 30 days; storage of 5000 bytes a day (position")
	out, _, _ = runs(t, database, "account", "set", "other", "--storage-per-day", "0")
	require.Contains(t, out, "arrivals for 30 days; storage without a limit (position")
	out, _, _ = runs(t, database, "account", "set", "acme", "--no-mask-in-console")
	require.Contains(t, out, "; unmasked in the console (position")
	out, _, _ = runs(t, database, "account", "set", "acme", "--mask-in-console")
	require.NotContains(t, out, "unmasked")
}
