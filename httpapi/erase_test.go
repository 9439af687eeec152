package httpapi_test

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/view"
)

// traces are substrings of the personal data in the test's requests.
var traces = []string{"Asha", "9876543210", "asha@", "203.0.113", "browser-of", "pune-city", "visitor-of", "diwali"}

const fullArrival = `{"name":"Asha Rao","phone":"9876543210","email":"asha@example.com",` +
	`"visitorId":"visitor-of-asha",` +
	`"metadata":{"source":"website","ip":"203.0.113.7","userAgent":"browser-of-asha","utm_content":"diwali"},` +
	`"customFields":{"city":"pune-city"}}`

// requireNoTrace searches every row of every table of a database, and the service's log.
func (s *service) requireNoTrace() {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), `
		SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		 WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema')`)
	require.NoError(s.t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s.t, err)
	require.Contains(s.t, tables, "person.key")
	for _, table := range tables {
		rows, err := s.pool.Query(s.t.Context(), `SELECT t::text FROM `+table+` t`)
		require.NoError(s.t, err)
		rowTexts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(s.t, err)
		for _, row := range rowTexts {
			for _, trace := range traces {
				require.NotContains(s.t, row, trace, table)
				// PostgreSQL prints bytea in hex
				require.NotContains(s.t, row, hex.EncodeToString([]byte(trace)), table)
			}
		}
	}
	for _, trace := range traces {
		require.NotContains(s.t, s.log.String(), trace, "the log output of the service")
	}
	for _, e := range storetest.Events(s.t, s.store.Store.Store, eventstore.Filter{}) {
		for _, trace := range traces {
			require.NotContains(s.t, string(e.Data)+fmt.Sprint(e.Metadata), trace)
		}
	}
}

func (s *service) leadID(r reply) string {
	s.t.Helper()
	data, ok := r.body["data"].(map[string]any)
	require.True(s.t, ok, r.raw)
	return data["leadId"].(string)
}

func (s *service) erase(id string, status int) reply {
	s.t.Helper()
	return s.as(http.MethodDelete, leads+"/"+id, "").is(status)
}

func (s *service) captureFull(status int, header map[string]string) reply {
	s.t.Helper()
	return s.send(call{
		method: http.MethodPost, path: leads, credential: s.jwt, body: fullArrival, header: header,
	}).is(status)
}

func TestErase_RemovesPersonEverywhere(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	other := s.another()
	recordActivity := func(status int) {
		r := s.send(call{method: http.MethodPost, path: "/api/v1/crm/visitors/visitor-of-asha/activity",
			credential: s.jwt,
			body:       `{"type":"page_view","url":"https://example.com/diwali"}`})
		require.Equal(t, status, r.status, r.raw)
	}
	recordActivity(202)
	id := s.leadID(s.captureFull(201, nil))
	second := s.as(http.MethodPost, leads, `{"phone":"9876543210","name":"Asha R.","metadata":{"source":"whatsapp"}}`).
		is(200)
	now := time.Now().UTC().Format(time.RFC3339Nano)
	for _, p := range []*service{s, other} { // both processes have warm caches
		for _, path := range []string{
			"?minPosition=" + second.header.Get("X-Log-Position"), "/sources", "/events", "/activity", "?asOf=" + now,
		} {
			p.as(http.MethodGet, leads+"/"+id+path, "").is(200)
		}
	}

	erased := s.erase(id, 200)
	require.NotEmpty(t, erased.header.Get("X-Log-Position"))
	for _, p := range []*service{s, other} {
		for _, path := range []string{"", "/sources", "/events", "/activity", "?asOf=" + now} {
			r := p.as(http.MethodGet, leads+"/"+id+path, "")
			require.Equal(t, 404, r.status, "%s %s", path, r.raw)
		}
		p.erase(id, 404)
		require.NotContains(t, p.as(http.MethodGet, leads, "").raw, id)
	}
	s.requireNoTrace()
	other.requireNoTrace()
	keys := pgtest.Value[int](t, s.pool, `SELECT count(*) FROM person.key`)
	require.Zero(t, keys, "the keys of the lead and of the visitor are destroyed")

	recordActivity(202) // the browser still has its visitor id
	again := s.captureFull(201, nil)
	require.NotEqual(t, id, s.leadID(again))
	again = s.as(http.MethodGet, leads+"/"+s.leadID(again)+"/activity?minPosition="+again.header.Get("X-Log-Position"),
		"").is(200)
	require.Len(t, again.body["data"], 1, "only activity after the erasure is shown")
}

// The audit trail names the released field, which is not personal, also when its view is built after the erasure.
func TestErase_KeepsReleaseOnTrail(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	for i, field := range []string{"phone", "email"} {
		value := map[string]string{
			"phone": fmt.Sprintf("987654321%d", i), "email": fmt.Sprintf("asha%d@example.com", i),
		}
		body := fmt.Sprintf(`{"phone":%q,"email":%q}`, value["phone"], value["email"])
		id := s.leadID(s.as(http.MethodPost, leads, body).is(201))
		s.as(http.MethodPost, leads+"/"+id+"/contacts/release", fmt.Sprintf(`{%q:%q}`, field, value[field])).is(200)
		s.erase(id, 200)
		require.Equal(t, map[string]any{"field": field}, s.trail("&type=lead.released&subject="+id, 1)[0]["data"])
	}
	compared, err := projection.Replay{
		URL: s.url, Store: s.store, Projectors: []projection.Projector{view.Trail{}},
		Progress: func(_, _ eventstore.Position) {},
	}.Compare(t.Context(), 5)
	require.NoError(t, err)
	require.NoError(t, compared[0].Err)
	require.Empty(t, compared[0].Differences)
}

func TestErase_ForgetsVisitorOfLastLead(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.as(http.MethodPost, "/api/v1/crm/visitors/v-1/activity", `{"type":"click"}`).is(202)
	var ids []string
	for i := range 2 {
		r := s.as(http.MethodPost, leads, fmt.Sprintf(`{"phone":"987654321%d","visitorId":"v-1"}`, i)).is(201)
		ids = append(ids, s.leadID(r))
	}
	s.erase(ids[0], 200)
	shown := s.as(http.MethodGet, leads+"/"+ids[1]+"/activity", "")
	require.Len(t, shown.body["data"], 1, shown.raw)
	s.erase(ids[1], 200)
	rows := func() int {
		return s.count(`SELECT count(*) FROM views.visitor_activity WHERE account = $1`, s.account)
	}
	require.Zero(t, rows())

	// A repeated erasure does not delete later activity of the visitor.
	s.as(http.MethodPost, "/api/v1/crm/visitors/v-1/activity", `{"type":"click"}`).is(202)
	require.Eventually(t, func() bool { return rows() == 1 }, time.Minute, 10*time.Millisecond)
	s.erase(ids[1], 404)
	require.Equal(t, 1, rows())
}

func TestErase_IdempotentRepeatIsGone(t *testing.T) {
	t.Parallel()
	s := start(t)
	key := map[string]string{"Idempotency-Key": "k-1"}
	id := s.leadID(s.captureFull(201, key))
	s.captureFull(201, key)
	s.erase(id, 200)
	erased := s.captureFull(410, key)
	require.Equal(t, "LEAD_ERASED", erased.body["code"])
	s.captureFull(201, nil)
}

// Callers capture, repeat and erase one person concurrently. Each answer is valid. At the end, an erasure of the last
// lead leaves no lead and no personal data.
func TestErase_ConcurrentCapturesAndRepeats(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	other := s.another()
	var erased []string
	for round := range 4 {
		id := s.leadID(s.captureFull(201, map[string]string{"Idempotency-Key": fmt.Sprint("first-", round)}))
		var group sync.WaitGroup
		for i := range 6 {
			p := []*service{s, other}[i%2]
			group.Go(func() {
				r := p.as(http.MethodPost, leads, fullArrival)
				if r.status != 200 && r.status != 201 {
					t.Error(r.status, r.raw)
				}
			})
			group.Go(func() {
				r := p.send(call{
					method: http.MethodPost, path: leads, credential: p.jwt, body: fullArrival,
					header: map[string]string{"Idempotency-Key": fmt.Sprint("first-", round)},
				})
				if r.status != 201 && r.status != 410 {
					t.Error(r.status, r.raw)
				}
			})
			group.Go(func() {
				r := p.as(http.MethodDelete, leads+"/"+id, "")
				if r.status != 200 && r.status != 404 {
					t.Error(r.status, r.raw)
				}
			})
		}
		group.Wait()
		s.erase(id, 404)
		last := s.leadID(s.as(http.MethodPost, leads, fullArrival))
		s.erase(last, 200)
		erased = append(erased, event.LeadStream(id), event.LeadStream(last))
		s.requireNoTrace()
		live := pgtest.Value[int](t, s.pool, `SELECT count(*) FROM views.lead`)
		require.Zero(t, live)
	}
	has, err := s.store.HasKeys(t.Context(), erased...)
	require.NoError(t, err)
	require.False(t, has)
	require.False(t, strings.Contains(s.log.String(), `"level":"ERROR"`), s.log.String())
}
