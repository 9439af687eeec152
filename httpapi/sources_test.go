package httpapi_test

import (
	"encoding/csv"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
)

const (
	history = "/api/v1/crm/sources/history"
	report  = "/api/v1/crm/sources/report"
)

// arrivals captures two leads, with three merges and a refusal. One lead is won, with the value 1200.50. It returns the
// last answer.
func arrivals(t *testing.T, s *service) reply {
	t.Helper()
	for body, status := range map[string]int{
		`{"phone":"9876543210","metadata":{"source":"website","utm":"=1+1"}}`: http.StatusCreated,
		`{"phone":"9876543211","metadata":{"source":"facebook_ad"}}`:          http.StatusCreated,
	} {
		s.capture(body).is(status)
	}
	for _, body := range []string{
		`{"phone":"9876543211","metadata":{"source":"facebook_ad"}}`,
		`{"phone":"9876543210","metadata":{"source":"whatsapp"}}`,
		`{"phone":"9876543210","status":"won","opportunityValue":"1200.50","metadata":{"source":"google_ad"}}`,
	} {
		s.capture(body).is(http.StatusOK)
	}
	s.capture(`{"phone":"9876543212"}`).is(http.StatusCreated)
	return s.capture(`{"phone":"9876543212"}`).is(http.StatusConflict)
}

func TestSources_HistoryFormats(t *testing.T) {
	t.Parallel()
	s := start(t)
	path := after(history, arrivals(t, s))

	all := s.as(http.MethodGet, path, "").at("data").([]any)
	require.Len(t, all, 5)
	first := s.as(http.MethodGet, path+"&limit=2", "")
	rest := s.as(http.MethodGet, path+"&limit=200&cursor="+first.at("nextCursor").(string), "")
	require.Equal(t, all, append(first.at("data").([]any), rest.at("data").([]any)...))
	require.Nil(t, rest.at("nextCursor"))
	require.Len(t, s.as(http.MethodGet, path+"&source=whatsapp", "").at("data"), 1)
	require.Empty(t, s.as(http.MethodGet, path+"&until=2000-01-01T00:00:00Z", "").at("data"))
	require.Empty(t, s.as(http.MethodGet, path+"&since=2999-01-01T00:00:00Z", "").at("data"))

	table := s.send(call{
		method: http.MethodGet, path: path + "&source=website", credential: s.jwt,
		header: map[string]string{"Accept": "text/csv"},
	})
	require.Equal(t, "text/csv; charset=utf-8", table.header.Get("Content-Type"))
	rows, err := csv.NewReader(strings.NewReader(table.raw)).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Equal(t, "source", rows[0][1])
	require.Equal(t, []string{"website", `{"source":"website","utm":"=1+1"}`}, []string{rows[1][1], rows[1][11]})

	lines := s.send(call{
		method: http.MethodGet, path: path, credential: s.jwt,
		header: map[string]string{"Accept": "application/x-ndjson"},
	})
	streamed := strings.Split(strings.TrimSuffix(lines.raw, "\n"), "\n")
	require.Len(t, streamed, 5)
	for i, line := range streamed {
		var entry any
		require.NoError(t, json.Unmarshal([]byte(line), &entry))
		require.Equal(t, all[i], entry)
	}

	require.Empty(t, s.send(call{method: http.MethodGet, path: history, credential: s.stranger("")}).at("data"),
		"another account's")
	require.Equal(t, http.StatusForbidden,
		s.send(call{method: http.MethodGet, path: path, credential: s.mint(ownAccount, "tokens:read")}).status)
	s.as(http.MethodGet, history+"?cursor=x", "").is(http.StatusBadRequest)
}

func TestSources_Report(t *testing.T) {
	t.Parallel()
	s := start(t)
	last := arrivals(t, s)
	counts := func(query string) (rows []string) {
		r := s.as(http.MethodGet, after(report+query, last), "").is(http.StatusOK)
		for _, row := range r.at("data").([]any) {
			from, err := time.Parse(time.RFC3339, row.(map[string]any)["from"].(string))
			require.NoError(t, err)
			require.Equal(t, from.Truncate(24*time.Hour), from)
			delete(row.(map[string]any), "from")
			line, err := json.Marshal(row, json.Deterministic(true))
			require.NoError(t, err)
			rows = append(rows, string(line))
		}
		return rows
	}
	want := []string{
		`{"created":1,"merged":0,"refused":1,"source":"api","value":0,"won":0}`,
		`{"created":1,"merged":1,"refused":0,"source":"facebook_ad","value":0,"won":0}`,
		`{"created":0,"merged":1,"refused":0,"source":"google_ad","value":0,"won":0}`,
		`{"created":1,"merged":0,"refused":0,"source":"website","value":1200.5,"won":1}`,
		`{"created":0,"merged":1,"refused":0,"source":"whatsapp","value":0,"won":0}`,
	}
	// The interval is a month, because the test may run at midnight.
	require.Equal(t, want, counts("?interval=month"))
	require.Equal(t, want[3:4], counts("?interval=month&source=website"))
	require.Empty(t, counts("?until=2000-01-01T00:00:00Z"))
	require.Empty(t, counts("?interval=week&since=2999-01-01T00:00:00Z"))

	first := s.as(http.MethodGet, after(report+"?interval=month&limit=2", last), "")
	rest := s.as(http.MethodGet, report+"?interval=month&cursor="+first.at("nextCursor").(string), "")
	require.Len(t, rest.at("data"), 3)
	require.Equal(t, []string{"interval"}, s.as(http.MethodGet, report+"?interval=year", "").fieldsNamed())
	require.Equal(t, http.StatusForbidden,
		s.send(call{method: http.MethodGet, path: report, credential: s.mint(ownAccount, "tokens:read")}).status)
}

func TestLeads_AsOf(t *testing.T) {
	t.Parallel()
	s := start(t)
	first := s.capture(`{"name":"Asha","phone":"9876543210","metadata":{"source":"website"}}`)
	id := first.at("data", "leadId").(string)
	second := s.capture(`{"name":"Asha Rao","phone":"9876543210","metadata":{"source":"whatsapp"}}`)
	third := s.capture(`{"name":"Asha R","phone":"9876543210","metadata":{"source":"google_ad"}}`)
	asOf := func(at string) reply { return s.as(http.MethodGet, "/api/v1/crm/leads/"+id+"?asOf="+at, "") }

	now := s.as(http.MethodGet, after("/api/v1/crm/leads/"+id, third), "")
	require.Equal(t, now.at("data"), asOf("2999-01-01T00:00:00Z").at("data"))
	for _, then := range []reply{first, second, third} {
		shown := asOf(then.at("data", "updatedAt").(string))
		require.Equal(t, http.StatusOK, shown.status, shown.raw)
		data := shown.at("data").(map[string]any)
		require.Contains(t, data, "metadata")
		require.Equal(t, then.at("data", "updatedAt"), data["updatedAt"])
	}
	created, err := time.Parse(time.RFC3339, first.at("data", "createdAt").(string))
	require.NoError(t, err)
	before := asOf(created.Add(-time.Millisecond).Format("2006-01-02T15:04:05.000Z"))
	require.Equal(t, http.StatusNotFound, before.status, before.raw)
	require.Equal(t, "Lead not found", before.at("message"))
	require.Equal(t, []string{"asOf"}, asOf("yesterday").fieldsNamed())
	s.send(call{
		method: http.MethodGet, path: "/api/v1/crm/leads/" + id + "?asOf=2999-01-01T00:00:00Z",
		credential: s.stranger(""),
	}).is(http.StatusNotFound)
}
