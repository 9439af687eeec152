package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// The two forms of a number that its plan has renumbered are one person, wherever a phone is given.
func TestPhone_RetiredForms(t *testing.T) {
	t.Parallel()
	s := start(t)
	website := func(phone, more string) reply {
		return s.capture(`{"phone":"` + phone + `"` + more + `,"metadata":{"source":"website"}}`)
	}
	id := func(r reply) string { return r.at("data", "leadId").(string) }
	found := func(behind reply, query string, want ...string) {
		t.Helper()
		ids := []string{}
		for _, l := range s.as(http.MethodGet, after(leads+"?"+query, behind), "").is(http.StatusOK).at("data").([]any) {
			ids = append(ids, l.(map[string]any)["leadId"].(string))
		}
		require.ElementsMatch(t, want, ids, query)
	}
	for former, now := range map[string]string{
		"+5215512345678": "+525512345678", "+551187654321": "+5511987654321", "+22997123456": "+2290197123456",
	} {
		first := website(former, "").is(http.StatusCreated)
		require.Equal(t, former, first.at("data", "phone"), "kept when it is E.164")
		last := first
		for _, phone := range []string{former, now} {
			for _, query := range []string{"phone=%2B" + phone[1:], "q=%2B" + phone[1:]} {
				found(last, query, id(first))
			}
		}
		again := website(now, `,"email":"ana@example.com"`).is(http.StatusOK)
		require.Equal(t, id(first), id(again))
		require.Equal(t, now, again.at("data", "phone"), "the latest value wins")
		last = s.capture(`{"phone":"` + former + `","metadata":{"source":"api"}}`).is(http.StatusOK)
		require.Equal(t, "DUPLICATE_LEAD_SOURCE", s.capture(`{"phone":"`+now+`"}`).is(http.StatusConflict).at("code"))
		found(last, "phone=%2B"+now[1:], id(first))

		path := leads + "/" + id(first)
		last = s.as(http.MethodPost, path+"/contacts/release", `{"phone":"`+former+`"}`).is(http.StatusOK)
		require.Equal(t, "", last.at("data", "phone"), "whichever form is released")
		second := website(now, "").is(http.StatusCreated)
		s.as(http.MethodPost, path+"/join", `{"from":"`+id(second)+`"}`).is(http.StatusOK)
		last = website(former, "").is(http.StatusOK)
		require.Equal(t, id(first), id(last))

		s.as(http.MethodDelete, path, "").is(http.StatusOK)
		third := website(now, "").is(http.StatusCreated)
		require.Equal(t, id(third), id(website(former, "").is(http.StatusOK)))
	}
	lines := s.sendBatch(`{"phone":"+5215587654321"}` + "\n" + `{"phone":"+525587654321","metadata":{"source":"website"}}`).lines(t)
	require.Equal(t, []int{http.StatusCreated, http.StatusOK}, statuses(lines))
}
