package query_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/query"
)

// planNode is a part of a plan, as auto_explain writes it.
type planNode struct {
	NodeType string     `json:"Node Type"`
	Loops    float64    `json:"Actual Loops"`
	Rows     float64    `json:"Actual Rows"`
	Filtered float64    `json:"Rows Removed by Filter"`
	Plans    []planNode `json:"Plans"`
}

// read returns how many rows of tables and indexes were read.
func (n planNode) read() (rows int) {
	switch n.NodeType {
	case "Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan":
		rows = int(n.Loops * (n.Rows + n.Filtered))
	}
	for _, part := range n.Plans {
		rows += part.read()
	}
	return rows
}

// explained returns a pool whose statements are explained, and a function that returns how many rows they have read
// since its last call.
func explained(t *testing.T, w *projectiontest.World) (*pgxpool.Pool, func() int) {
	t.Helper()
	config, err := pgxpool.ParseConfig(w.URL)
	require.NoError(t, err)
	schema.Bound(config.ConnConfig)
	config.ConnConfig.User = "postgres" // who may load a library
	for name, value := range map[string]string{
		"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0",
		"auto_explain.log_analyze": "on", "auto_explain.log_timing": "off",
		"auto_explain.log_format": "json", "auto_explain.log_level": "notice", "client_min_messages": "notice",
		"max_parallel_workers_per_gather": "0",
	} {
		config.ConnConfig.RuntimeParams[name] = value
	}
	var reading sync.Mutex
	rows := 0
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) {
		_, plan, found := strings.Cut(notice.Message, "plan:")
		if !found {
			return
		}
		var explanation struct{ Plan planNode }
		if err := json.Unmarshal([]byte(plan), &explanation); err != nil {
			panic(err)
		}
		reading.Lock()
		defer reading.Unlock()
		rows += explanation.Plan.read()
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool, func() int {
		reading.Lock()
		defer reading.Unlock()
		read := rows
		rows = 0
		return read
	}
}

// Pages of lists do not read all rows of a large account. Each of these read 15,000 or more; the first ones while
// PostgreSQL had no statistics.
func TestLists_ReadPages(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	const lead = "00000000000000000000000007"
	touch := `
		INSERT INTO views.touch (position, touch_id, account, lead_id, at, kind, source, first, utm_source, utm_medium,
		  utm_campaign, utm_id, credential,
		                         intake_id, visitor, erased, stage, value)
		SELECT i, 't' || i, 'acme', CASE kind WHEN 'visit' THEN '' ELSE lpad((i - 20000)::text, 26, '0') END,
		  $1::timestamptz + i * interval '1 second',
		       kind, CASE kind WHEN 'visit' THEN '' ELSE 'api' END, kind <> 'visit', '', '', '', '', '', '', CASE kind
		       WHEN 'visit' THEN 'v' || i ELSE '' END, false, '', '' `
	for _, rows := range []string{
		touch + `FROM generate_series(20001, 30000) AS i, (VALUES ('created')) AS k (kind)`,
		`INSERT INTO views.touch_personal SELECT i, 'acme', '{}', '', '', '', '[]'
			FROM generate_series(20001, 20200) AS i`,
		`ANALYZE views.touch`, // it knows of no visits
		touch + `FROM generate_series(1, 20000) AS i, (VALUES ('visit')) AS k (kind)`,
		`INSERT INTO views.refused SELECT i, 'acme', $1::timestamptz + i * interval '1 second', 'api', 'C', 'l', '', '',
			'' FROM generate_series(1, 20000) AS i`,
		// Leads that the search index has, and later ones that it has not.
		`INSERT INTO views.lead SELECT lpad(i::text, 26, '0'), CASE WHEN i > 15000 THEN 'globex'
			ELSE 'acme' END, $1::timestamptz + i * interval '1 second',
		        'new', '', 'api', '', '', 'asha ' || i, '{}' FROM generate_series(1, 30000) AS i`,
		`INSERT INTO views.lead_search SELECT created_at, lead_id, account, search FROM views.lead
			WHERE account = 'acme'`,
	} {
		if strings.Contains(rows, "$1") {
			pgtest.Exec(t, w.Pool, rows, projectiontest.Start)
			continue
		}
		pgtest.Exec(t, w.Pool, rows)
	}
	pool, read := explained(t, w)
	reader := query.New(pool, w.Store)
	reader.ScanRows(500)
	reader.ScanLeads(100)
	ctx, page := t.Context(), query.Page{Limit: 50}
	touches := func(f query.TouchFilter) func() error {
		return func() error {
			f.AsOf = 100_000
			_, err := reader.Touches(ctx, "acme", f, page)
			return err
		}
	}
	leads := func(f query.LeadFilter) func() error {
		return func() error {
			_, err := reader.Leads(ctx, "acme", f, page)
			return err
		}
	}
	within := func(lists map[string]func() error) {
		for name, list := range lists {
			read()
			require.NoError(t, list(), name)
			rows := read()
			require.Positive(t, rows, name)
			require.Less(t, rows, 5000, name)
		}
	}
	within(map[string]func() error{
		"a lead's touches":     touches(query.TouchFilter{LeadID: lead, Visits: true}),
		"a lead's sources":     func() error { _, err := reader.LeadSources(ctx, "acme", lead, page); return err },
		"a lead's arrivals":    touches(query.TouchFilter{LeadID: lead}),
		"leads by temperature": leads(query.LeadFilter{LeadTemperature: "hot"}),
		"leads by short text":  leads(query.LeadFilter{Q: "zz"}),
		"leads by text":        leads(query.LeadFilter{Q: "asha 77"}),
	})
	pgtest.Exec(t, w.Pool, `ANALYZE`)
	within(map[string]func() error{
		"arrivals":            touches(query.TouchFilter{}),
		"arrivals and visits": touches(query.TouchFilter{Visits: true}),
		"a campaign's visits": touches(query.TouchFilter{Visits: true, Campaign: "none"}),
		"a lead's arrivals":   touches(query.TouchFilter{LeadID: lead}),
		"a lead's touches":    touches(query.TouchFilter{LeadID: lead, Visits: true}),
		"sources": func() error {
			_, err := reader.Sources(ctx, "acme", query.SourceFilter{}, page)
			return err
		},
		"refused of no source": func() error {
			_, err := reader.Refused(ctx, "acme", query.RefusedFilter{Source: "none"}, page)
			return err
		},
		"refused for nothing": func() error {
			_, err := reader.Refused(ctx, "acme", query.RefusedFilter{Code: "none"}, page)
			return err
		},
		"leads by temperature": leads(query.LeadFilter{LeadTemperature: "hot"}),
		"leads by text":        leads(query.LeadFilter{Q: "asha 77"}),
	})
}
