package migration

import (
	"maps"

	"github.com/jackc/pgx/v5"
)

// SetSession sets parameters that otherwise depend on the database and the role, for every session of the program.
func SetSession(config *pgx.ConnConfig) {
	maps.Copy(config.RuntimeParams, map[string]string{
		// Texts are sent as UTF8, and some statements with quoted literals.
		"client_encoding":             "UTF8",
		"standard_conforming_strings": "on",
		// Statements that wait for a lock read the latest version of the row, and do not fail.
		"default_transaction_isolation": "read committed",
		"lock_timeout":                  "0",
		// Sessions with a lease, LISTEN or an advisory lock may be idle.
		"idle_session_timeout": "0",
		// Compiling a query costs more than it saves, also for the longest one, a search among a million leads.
		"jit": "off",
	})
}
