package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const spending = "/api/v1/crm/spend"

func TestSpend_SetAgainChangesNothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	const body = `{"rows":[{"day":"2026-11-28","key":{"source":"google_ad","utmCampaign":"diwali"},"amount":"1250.50"},
		{"day":"2026-11-28","key":{"source":"facebook_ad"},"amount":800}]}`
	set := s.as(http.MethodPut, spending, body).is(http.StatusOK)
	require.Equal(t, map[string]any{"rows": 2.0, "changed": 2.0}, set.at("data"))
	end := s.last()
	again := s.as(http.MethodPut, spending, strings.ReplaceAll(body, `"1250.50"`, `"1,250.5"`)).is(http.StatusOK)
	require.Equal(t, map[string]any{"rows": 2.0, "changed": 0.0}, again.at("data"))
	require.Equal(t, end, s.last(), "nothing was appended")
	s.as(http.MethodPut, spending, strings.ReplaceAll(body, "800", "801")).is(http.StatusOK)
	require.Equal(t, []string{"spend.set.v1"}, s.writtenSince(end))

	trail := s.as(http.MethodGet, "/api/v1/crm/audit/events?type=spend.set", "").is(http.StatusOK).at("data").([]any)
	require.Len(t, trail, 2)
	require.Equal(t, map[string]any{"rows": 1.0, "since": "2026-11-28", "until": "2026-11-28"},
		trail[1].(map[string]any)["data"])

	require.Equal(t, []string{"rows[0].day", "rows[0].key", "rows[0].amount"},
		s.as(http.MethodPut, spending, `{"rows":[{}]}`).is(http.StatusBadRequest).fieldsNamed())
	foreign := s.as(http.MethodPut, spending, strings.ReplaceAll(body, "800", `"$800"`)).is(http.StatusBadRequest)
	require.Equal(t, []string{"rows[1].amount"}, foreign.fieldsNamed())
	require.Contains(t, foreign.raw, "is in $, and the account's currency is INR")
	s.as(http.MethodPut, spending, `{"rows":[],"day":"2026-11-28"}`).is(http.StatusBadRequest)
	s.as(http.MethodPut, spending, ``).is(http.StatusBadRequest)
}

func TestSpend_ListAsOf(t *testing.T) {
	t.Parallel()
	s := start(t)
	list := func(query string, write reply) (rows []string) {
		t.Helper()
		for _, row := range s.as(http.MethodGet, after(spending+query, write), "").is(http.StatusOK).at("data").([]any) {
			of := row.(map[string]any)
			rows = append(rows, fmt.Sprintf("%v %v %v", of["day"], of["key"], of["amount"]))
		}
		return rows
	}
	first := s.as(http.MethodPut, spending, `{"rows":[
		{"day":"2026-11-28","key":{"utmCampaign":"b"},"amount":"0.10"},
		{"day":"2026-11-27","key":{"utmCampaign":"a"},"amount":"1"},
		{"day":"2026-11-28","key":{"source":"api","utmMedium":"cpc"},"amount":"3"}]}`).is(http.StatusOK)
	second := s.as(http.MethodPut, spending, `{"rows":[
		{"day":"2026-11-28","key":{"utmCampaign":"b"},"amount":"0.20"}]}`).is(http.StatusOK)
	before := []string{
		"2026-11-27 map[utmCampaign:a] 1", "2026-11-28 map[utmCampaign:b] 0.1",
		"2026-11-28 map[source:api utmMedium:cpc] 3",
	}
	now := []string{before[0], "2026-11-28 map[utmCampaign:b] 0.2", before[2]}
	require.Equal(t, now, list("", second))
	require.Equal(t, before, list("?asOf="+first.header.Get("X-Log-Position"), second))
	require.Empty(t, list("?asOf=0", second))
	require.Equal(t, now, list("?asOf="+time.Now().UTC().Format(time.DateOnly), second), "by time")
	require.Equal(t, now[:1], list("?until=2026-11-28T00:00:00Z", second))
	require.Equal(t, now[1:], list("?since=2026-11-27T00:00:00.001Z", second), "days that begin later")

	var paged []any
	for cursor := ""; ; {
		page := s.as(http.MethodGet, spending+"?limit=1&cursor="+cursor, "").is(http.StatusOK)
		paged = append(paged, page.at("data").([]any)...)
		if page.at("nextCursor") == nil {
			break
		}
		cursor = page.at("nextCursor").(string)
		require.Len(t, page.at("data"), 1)
	}
	require.Equal(t, s.as(http.MethodGet, spending, "").at("data"), paged)
	s.as(http.MethodGet, spending+"?cursor=x", "").is(http.StatusBadRequest)
	s.as(http.MethodGet, spending+"?asOf=soon", "").is(http.StatusBadRequest)

	csv := s.send(call{
		method: http.MethodGet, path: spending, credential: s.jwt, header: map[string]string{"Accept": "text/csv"},
	}).is(http.StatusOK)
	require.Contains(t, csv.raw, "day,source,utmSource,utmMedium,utmCampaign,amount,setAt,position\n2026-11-27,,,,a,1,")
}

func TestAttribution_Cost(t *testing.T) {
	t.Parallel()
	s := start(t)
	captured := s.capture(
		`{"phone":"9876543210","opportunityValue":"500","metadata":{"source":"google_ad","utm_campaign":"diwali"}}`)
	s.as(http.MethodPatch, leads+"/"+s.leadID(captured), `{"status":"won"}`).is(http.StatusOK)
	today := captured.at("data", "createdAt").(string)[:len(time.DateOnly)]
	set := func(amount string) reply {
		return s.as(http.MethodPut, spending, `{"rows":[
			{"day":"`+today+`","key":{"source":"google_ad","utmCampaign":"diwali"},"amount":"`+amount+`"},
			{"day":"2026-01-01","key":{"source":"landing"},"amount":"3"}]}`).is(http.StatusOK)
	}
	first := set("150")
	costs := func(query string, write reply) (rows []string) {
		t.Helper()
		report := s.as(http.MethodGet, after(attribution+query, write), "").is(http.StatusOK)
		for _, row := range append(report.at("data", "rows").([]any), report.at("data", "total")) {
			of := row.(map[string]any)
			require.Contains(t, of, "cost")
			rows = append(rows, fmt.Sprintf("%v %v %v %v", of["key"], of["cost"], of["costPerConversion"], of["returnOnCost"]))
		}
		return rows
	}
	want := []string{
		"google_ad 150.0000 150.0000 3.3333", "landing 3.0000 <nil> 0.0000", "<nil> 153.0000 153.0000 3.2680",
	}
	require.Equal(t, want, costs("?cost=true", first))
	require.Equal(t, []string{want[0], "<nil> 150.0000 150.0000 3.3333"},
		costs("?cost=true&since="+today+"T00:00:00Z", first))
	require.Equal(t, []string{"(none) 3.0000 <nil> 0.0000", "diwali 150.0000 150.0000 3.3333", want[2]},
		costs("?cost=true&by=campaign", first))
	require.Equal(t, []string{"(none) <nil> <nil> <nil>", "<nil> <nil> <nil> <nil>"},
		costs("?cost=true&by=intake", first))
	asOf := attribution + "?cost=true&asOf=" + first.header.Get("X-Log-Position")
	before := s.as(http.MethodGet, after(asOf, first), "").raw
	second := set("0")
	require.Equal(t, "google_ad 0.0000 0.0000 <nil>", costs("?cost=true", second)[0])
	require.Equal(t, before, s.as(http.MethodGet, after(asOf, second), "").raw)
	require.NotContains(t, s.as(http.MethodGet, attribution, "").is(http.StatusOK).raw, "ost")
	s.as(http.MethodGet, attribution+"?cost=maybe", "").is(http.StatusBadRequest)
}

// A request that is too large for one event is several, and concurrent requests set each amount once.
func TestSpend_LargeRequest(t *testing.T) {
	t.Parallel()
	s := start(t)
	var rows []string
	for i := range 3600 {
		rows = append(rows, fmt.Sprintf(`{"day":"2026-11-28","key":{"utmCampaign":"%0150d"},"amount":%d}`, i, i))
	}
	body := `{"rows":[` + strings.Join(rows, ",") + `]}`
	end := s.last()
	changed := 0.0
	for _, r := range concurrently(2, func(int) reply { return s.as(http.MethodPut, spending, body) }) {
		changed += r.is(http.StatusOK).at("data", "changed").(float64)
	}
	require.EqualValues(t, 3600, changed)
	require.Len(t, s.writtenSince(end), 3)
}

// Rows of two months are two appends.
func TestSpend_SetByMonths(t *testing.T) {
	t.Parallel()
	s := start(t)
	end := s.last()
	const body = `{"rows":[{"day":"2026-10-31","key":{"source":"google_ad"},"amount":"1"},
		{"day":"2026-11-01","key":{"source":"google_ad"},"amount":"2"}]}`
	set := s.as(http.MethodPut, spending, body).is(http.StatusOK)
	require.Equal(t, map[string]any{"rows": 2.0, "changed": 2.0}, set.at("data"))
	require.Equal(t, []string{"spend.set.v1", "spend.set.v1"}, s.writtenSince(end))
	list := s.as(http.MethodGet, after(spending, set), "").is(http.StatusOK)
	require.Len(t, list.at("data"), 2, "the answer's position covers both")
	set = s.as(http.MethodPut, spending, strings.ReplaceAll(body, `"2"`, `"3"`)).is(http.StatusOK)
	require.Equal(t, map[string]any{"rows": 2.0, "changed": 1.0}, set.at("data"))
}
