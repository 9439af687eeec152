package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
)

// A list by phone or email goes by who owns the value on the log; what it shows is who has it now.
func TestLeads_FoundByPhoneAndEmail(t *testing.T) {
	t.Parallel()
	s := start(t)
	found := func(query string, behind reply, want ...string) {
		t.Helper()
		list := s.as(http.MethodGet, after(leads+"?"+query, behind), "").is(http.StatusOK)
		require.Nil(t, list.at("nextCursor"))
		ids := []string{}
		for _, l := range list.at("data").([]any) {
			ids = append(ids, l.(map[string]any)["leadId"].(string))
		}
		require.ElementsMatch(t, want, ids, query)
	}
	into, from := s.twoLeads()
	last := s.capture(`{"phone":"9876543210","email":"first@example.com","metadata":{"source":"website"}}`)
	for _, written := range []string{"9876543210", "98765+43210", "%2B919876543210", "+919876543210"} {
		found("phone="+written, last, into)
	}
	found("phone=9876543210&createdSince=2020-01-01T00:00:00+05:30", last, into)
	found("email=FIRST@example.com", last, into)
	found("email=asha@example.com", last, from)
	found("phone=9876543210&email=first@example.com", last, into)
	found("phone=9876543210&email=asha@example.com", last)
	found("phone=9876543210&source=website", last, into)
	found("phone=9876543210&status=won", last)
	found("phone=9876543299", last)

	// A search for a whole phone or email is for who has it, and if nobody does for whoever has it as a part.
	longer := s.capture(`{"phone":"9876543218","email":"not-first@example.com"}`)
	found("q=9876543210", longer, into)
	found("q=first@EXAMPLE.com", longer, into)
	found("q=irst@example.com", longer, into, longer.at("data", "leadId").(string))
	found("q=987654321", longer, into, longer.at("data", "leadId").(string))
	found("q=first@example.com&source=facebook_ad", longer)
	found("q=nobody@example.com", longer)

	last = s.capture(`{"phone":"9876543210","email":"second@example.com","metadata":{"source":"website"}}`)
	found("email=second@example.com", last, into)
	found("email=first@example.com", last) // which it owns still, and does not have

	last = s.as(http.MethodPost, leads+"/"+from+"/join", `{"from":"`+into+`"}`).is(http.StatusOK)
	require.Equal(t, "+919876543210", last.at("data", "phone"))
	found("phone=9876543210", last, from) // which was the other's

	s.provision("other", account.Settings{Features: []string{account.FeatureAPI}})
	theirs := s.send(call{method: http.MethodGet, path: leads + "?phone=9876543210", credential: s.mint("other", "leads:read")}).is(http.StatusOK)
	require.Empty(t, theirs.at("data"))

	last = s.as(http.MethodDelete, leads+"/"+from, "").is(http.StatusOK)
	found("phone=9876543210", last)
	last = s.capture(`{"phone":"9876543210"}`)
	found("phone=9876543210", last, last.at("data", "leadId").(string))
}
