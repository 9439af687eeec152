package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

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
	s.as(http.MethodPut, spending, `{"rows":[],"day":"2026-11-28"}`).is(http.StatusBadRequest)
	s.as(http.MethodPut, spending, ``).is(http.StatusBadRequest)
}

// A request that is too large for one event is several, and concurrent requests set each amount once.
func TestSpend_LargeRequest(t *testing.T) {
	t.Parallel()
	s := start(t)
	var rows []string
	for i := range 8000 {
		rows = append(rows, fmt.Sprintf(`{"day":"2026-11-28","key":{"utmCampaign":"%0150d"},"amount":%d}`, i, i))
	}
	body := `{"rows":[` + strings.Join(rows, ",") + `]}`
	end := s.last()
	changed := 0.0
	for _, r := range concurrently(2, func(int) reply { return s.as(http.MethodPut, spending, body) }) {
		changed += r.is(http.StatusOK).at("data", "changed").(float64)
	}
	require.EqualValues(t, 8000, changed)
	require.Len(t, s.writtenSince(end), 5)
}
