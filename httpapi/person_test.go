package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/httpapi"
)

func TestExportLead_EverythingAboutOnePerson(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	joined := s.leadID(
		s.capture(`{"phone":"9876543211","name":"Asha R","metadata":{"source":"website"}}`).is(http.StatusCreated),
	)
	id := s.leadID(
		s.capture(`{"phone":"9876543210","name":"Asha","visitorId":"v-1","customFields":{"city":"Pune"},` +
			`"metadata":{"consent":{"purpose":"call","text":"Call me"}}}`).is(http.StatusCreated),
	)
	s.as(http.MethodPost, "/api/v1/crm/visitors/v-1/activity",
		`{"type":"page_view","url":"https://example.com/pricing"}`).is(http.StatusAccepted)
	s.join(id, joined).is(http.StatusOK)
	s.capture(`{"phone":"9123456789","name":"Somebody else"}`).is(http.StatusCreated)

	path := leads + "/" + id + "/export"
	r := s.eventually(path, func(r reply) bool {
		return r.status == http.StatusOK && len(r.at("data", "activity").([]any)) == 1 &&
			len(r.at("data", "sources").([]any)) == 2
	})
	require.Equal(t, `attachment; filename="lead-`+id+`.json"`, r.header.Get("Content-Disposition"))
	require.Equal(t, "Asha", r.at("data", "lead", "name"))
	require.Equal(t, []any{joined}, r.at("data", "lead", "joined"))
	require.Len(t, r.at("data", "events"), 4, "two of each lead: created, and joined")
	require.Len(t, r.at("data", "touches"), 2)
	require.Len(t, r.at("data", "consents"), 1)
	require.Empty(t, r.at("data", "deliveries"))
	for _, text := range []string{"+919876543210", "+919876543211", "Pune", "https://example.com/pricing"} {
		require.Contains(t, r.raw, text)
	}
	require.NotContains(t, r.raw, "Somebody else")
	s.eventually("/api/v1/crm/audit/events?type=data.revealed&subject="+id, func(r reply) bool {
		return len(r.at("data").([]any)) > 0
	})

	s.send(call{method: http.MethodGet, path: path, credential: s.stranger("")}).is(http.StatusNotFound)
	s.send(call{
		method: http.MethodGet, path: path, credential: s.mint(ownAccount, "leads:write"),
	}).is(http.StatusForbidden)
	s.erase(id, http.StatusOK)
	s.as(http.MethodGet, path, "").is(http.StatusNotFound)
}

// A copy has what the log has. It was once answered without the touches of a view that is behind.
func TestPersonCopy_ViewBehind(t *testing.T) {
	t.Parallel()
	s := startAlone(t, func(o *httpapi.Options) { o.OwnWriteTimeout = time.Nanosecond })
	path := leads + "/" +
		s.leadID(s.capture(`{"phone":"9876543210","metadata":{"source":"website"}}`).is(http.StatusCreated)) + "/export"
	s.as(http.MethodGet, path, "").is(http.StatusOK)
	tx, err := pgtest.Connect(t, s.url).Begin(t.Context())
	require.NoError(t, err)
	pgtest.Exec(t, tx, `SELECT FROM views.checkpoint WHERE projector = 'touch' FOR UPDATE`)
	s.capture(`{"phone":"9876543210","metadata":{"source":"landing"}}`).is(http.StatusOK)
	r := s.request(call{method: http.MethodGet, path: path, credential: s.jwt}).is(http.StatusServiceUnavailable)
	require.Equal(t, "1", r.header.Get("Retry-After"))
	require.NoError(t, tx.Rollback(t.Context()))
	r = s.as(http.MethodGet, path, "").is(http.StatusOK)
	for _, list := range []string{"sources", "touches", "events"} {
		require.Len(t, r.at("data", list), 2, list)
	}
}

// After a split, a person's copy has nothing of the person that left.
func TestPersonCopy_AfterSplit(t *testing.T) {
	t.Parallel()
	s := start(t)
	body := `{"name":"Asha","phone":"9876512501","email":"asha.copy@example.com","metadata":{"source":"website"}}`
	first := s.capture(body).is(http.StatusCreated)
	s.capture(`{"name":"Ravi","phone":"9876512502","email":"asha.copy@example.com","metadata":{"source":"website"}}`).
		is(http.StatusOK)
	at := leads + "/" + first.at("data", "leadId").(string)
	before := s.as(http.MethodGet, at+"/export", "").is(http.StatusOK)
	require.Contains(t, before.raw, "9876512502")
	split := s.as(http.MethodPost, at+"/split", `{"phone":"9876512502"}`).is(http.StatusCreated)
	stays := s.as(http.MethodGet, after(at+"/export", split), "").is(http.StatusOK)
	require.Contains(t, stays.raw, "9876512501")
	require.NotContains(t, stays.raw, "9876512502")
	require.NotContains(t, stays.raw, "Ravi")
}
