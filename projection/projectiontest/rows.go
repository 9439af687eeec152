package projectiontest

import (
	"slices"
	"testing"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/view"
)

// Dump returns all rows of all views as text, by table, in an order that does not depend on how they were written.
func (w *World) Dump(t testing.TB) map[string][]string {
	t.Helper()
	tables := map[string][]string{}
	for _, p := range view.All() {
		for _, table := range Folded(p) {
			tables[table] = w.DumpTable(t, "views", table)
		}
	}
	return tables
}

// Folded returns the tables of a projector whose rows are a fold of the log.
func Folded(p projection.Projector) []string {
	tables := p.Tables()
	if m, maintains := p.(projection.Maintainer); maintains {
		tables = slices.DeleteFunc(tables, func(table string) bool { return slices.Contains(m.DerivedTables(), table) })
	}
	return tables
}

// DumpTable returns the rows of a table as Dump does.
func (w *World) DumpTable(t testing.TB, schema, table string) []string {
	t.Helper()
	return pgtest.Rows[string](t, w.Pool, `SELECT v::text FROM `+schema+`.`+table+` AS v ORDER BY v::text COLLATE "C"`)
}

// Replay returns a replay of projectors.
func (w *World) Replay(projectors ...projection.Projector) projection.Replay {
	return projection.Replay{URL: w.URL, Store: w.Store, Projectors: projectors}
}
