package httpapi_test

import (
	"cmp"
	"encoding/csv"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
)

const tokens = "/api/v1/crm/tokens"

func TestTokens_Lifecycle(t *testing.T) {
	t.Parallel()
	s := start(t)
	created := s.as(http.MethodPost, tokens, `{"name":" form ","expiresInDays":30}`).is(http.StatusCreated)
	require.Equal(t, "no-store", created.header.Get("Cache-Control"))
	require.Len(t, created.at("data"), 5)
	require.Equal(t, "form", created.at("data", "name"))
	expires, err := time.Parse("2006-01-02T15:04:05.000Z", created.at("data", "expiresAt").(string))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().AddDate(0, 0, 30), expires, 3*time.Hour)
	id, old := created.at("data", "tokenId").(string), created.at("data", "plainToken").(string)
	require.True(t, strings.HasPrefix(old, created.at("data", "prefix").(string)))
	capture := func(value, phone string) int {
		return s.send(call{
			method: http.MethodPost, path: leads, credential: value, body: `{"phone":"` + phone + `"}`,
		}).status
	}
	require.Equal(t, http.StatusCreated, capture(old, "9876543210"))

	rotated := s.as(http.MethodPost, tokens+"/"+id+"/rotate", "").is(http.StatusOK)
	require.Equal(t, "no-store", rotated.header.Get("Cache-Control"))
	value := rotated.at("data", "plainToken").(string)
	require.Equal(t, http.StatusUnauthorized, capture(old, "9876543211"))
	require.Equal(t, http.StatusCreated, capture(value, "9876543211"))

	deleted := s.as(http.MethodDelete, tokens+"/"+id, "").is(http.StatusOK)
	require.Equal(t, `{"success":true,"message":"Token deleted"}`, deleted.raw)
	require.Equal(t, http.StatusUnauthorized, capture(value, "9876543212"))
	require.Equal(t, http.StatusUnauthorized,
		s.send(call{method: http.MethodPost, path: leads, credential: value, body: "no json"}).status,
		"a request with a deleted token gets no validation errors")

	for _, refused := range []reply{
		s.as(http.MethodDelete, tokens+"/"+id, ""), s.as(http.MethodPost, tokens+"/"+id+"/rotate", ""),
	} {
		require.Equal(t, http.StatusNotFound, refused.status)
		require.Equal(t, `{"success":false,"message":"Token not found or already deleted"}`, refused.raw)
	}
	record := s.as(http.MethodGet, after(tokens+"/"+id, deleted), "")
	require.Equal(t, "deleted", record.at("data", "status"), record.raw)
	require.Equal(t, "user:ann", record.at("data", "createdBy"))
	require.NotContains(t, record.raw, value)
	require.Len(t, s.as(http.MethodGet, after(tokens, deleted), "").at("data"), 1)
	var types []string
	for _, e := range s.as(http.MethodGet, after(tokens+"/"+id+"/events", deleted), "").at("data").([]any) {
		if e := e.(map[string]any); e["type"] != "token.refused" { // recorded asynchronously
			types = append(types, e["type"].(string))
		}
	}
	require.Equal(t, []string{"token.created", "token.rotated", "token.deleted"}, types)
	require.NotContains(t, s.log.String(), old[len(old)-20:])
}

// A token captures and, by default, its answers show what is known of a person. A caller with tokens:write alone got
// all that.
func TestTokens_IssuerNeedsTheirRights(t *testing.T) {
	t.Parallel()
	s := start(t)
	id, _ := s.token()
	requests := map[string]string{tokens: `{"name":"mine","expiresInDays":1}`, tokens + "/" + id + "/rotate": ""}
	issue := func(scope, path, body string) reply {
		return s.send(call{method: http.MethodPost, path: path, credential: s.mint(s.account, scope), body: body})
	}
	for path, body := range requests {
		require.Equal(t, "Scope leads:write required",
			issue("tokens:write leads:read", path, body).is(http.StatusForbidden).at("message"), path)
		require.Equal(t, "Scope leads:read required",
			issue("tokens:write leads:write", path, body).is(http.StatusForbidden).at("message"), path)
		require.Less(t, issue("tokens:write leads:write leads:read", path, body).status, 300, path)
	}
	hidden := false
	s.provision(s.account, account.Settings{Features: []string{account.FeatureAPI}, TokensSeeLeads: &hidden})
	for path, body := range requests {
		require.Less(t, issue("tokens:write leads:write", path, body).status, 300, path)
	}
	s.send(call{
		method: http.MethodDelete, path: tokens + "/" + id, credential: s.mint(s.account, "tokens:write"),
	}).is(http.StatusOK)
}

func TestTokens_ConcurrentCreations(t *testing.T) {
	t.Parallel()
	s := start(t)
	created := 0
	for _, r := range concurrently(24, func(int) reply {
		return s.as(http.MethodPost, tokens, `{"name":"t","expiresInDays":1}`)
	}) {
		if r.status == http.StatusCreated {
			created++
			continue
		}
		require.Equal(t, http.StatusConflict, r.status, r.raw)
		require.Equal(t, "TOKEN_LIMIT_REACHED", r.at("code"))
	}
	require.Equal(t, 5, created)
}

func TestTokens_ConcurrentRotations(t *testing.T) {
	t.Parallel()
	s := start(t)
	id, old := s.token()
	valid := 0
	for _, rotated := range concurrently(8, func(int) reply {
		return s.as(http.MethodPost, tokens+"/"+id+"/rotate", "")
	}) {
		value, _ := rotated.at("data", "plainToken").(string)
		if s.send(call{
			method: http.MethodPost, path: leads, credential: value, body: `{}`,
		}).status == http.StatusBadRequest {
			valid++
		}
	}
	require.Equal(t, 1, valid)
	require.Equal(t, http.StatusUnauthorized,
		s.send(call{method: http.MethodPost, path: leads, credential: old}).status)
}

func TestTokens_RevokedInEveryProcess(t *testing.T) {
	t.Parallel()
	first := start(t)
	second := first.another()
	for _, end := range []func(id string) reply{
		func(id string) reply { return first.as(http.MethodPost, tokens+"/"+id+"/rotate", "") },
		func(id string) reply { return first.as(http.MethodDelete, tokens+"/"+id, "") },
	} {
		for name, c := range map[string]call{
			"a new lead": {body: `{"email":"` + ulid.Make().String() + `@example.com"}`}, "a bad lead": {body: `{}`},
			"no JSON": {body: `x`}, "no type": {body: `x`, header: map[string]string{"Content-Type": "text/plain"}},
			"a batch":             {path: batch, body: `{"email":"` + ulid.Make().String() + `@example.com"}`},
			"a batch of no lines": {path: batch},
			"an activity":         {path: visitors + "v/activity", body: `{"type":"click"}`},
			"a bad activity":      {path: visitors + "v/activity", body: `{}`},
		} {
			id, value := first.token()
			known := call{method: http.MethodPost, path: leads, credential: value, body: `{}`}
			require.Equal(t, http.StatusBadRequest, second.send(known).status, "the other process has cached the token")
			require.Equal(t, http.StatusOK, end(id).status)
			c.method, c.path, c.credential = http.MethodPost, cmp.Or(c.path, leads), value
			r := second.send(c)
			require.Equal(t, http.StatusUnauthorized, r.status, "%s: %s", name, r.raw)
			first.as(http.MethodDelete, tokens+"/"+id, "")
		}
	}
}

func TestTokens_FieldErrors(t *testing.T) {
	t.Parallel()
	s := start(t)
	for body, fields := range map[string][]string{
		``:                                 {"name", "expiresInDays"},
		`{"name":7,"expiresInDays":"30"}`:  {"name", "expiresInDays"},
		`{"name":"x","expiresInDays":366}`: {"expiresInDays"},
		`{"name":"x","expiresInDays":1.5}`: {"expiresInDays"},
		`{"name":null,"expiresInDays":1}`:  {"name"},
		`{"name":"x","name":"y"}`:          {"name"},
		`{"name":"` + strings.Repeat("x", 101) + `","expiresInDays":1}`: {"name"},
	} {
		require.Equal(t, fields, s.as(http.MethodPost, tokens, body).is(http.StatusBadRequest).fieldsNamed(), body)
	}
}

func TestAudit_Formats(t *testing.T) {
	t.Parallel()
	s := start(t)
	id, _ := s.token()
	request := call{
		method: http.MethodPost, path: tokens + "/" + id + "/rotate", credential: s.jwt,
		header: map[string]string{"User-Agent": "=cmd()", "X-Request-Id": "audit-1"},
	}
	rotated := s.send(request)
	path := after("/api/v1/crm/audit/tokens", rotated)

	inParts := s.as(http.MethodGet, path+"&limit=1", "")
	require.Len(t, inParts.at("data"), 1, inParts.raw)
	rest := s.as(http.MethodGet, path+"&limit=1&cursor="+inParts.at("nextCursor").(string), "")
	require.Len(t, rest.at("data"), 1, rest.raw)
	require.Nil(t, rest.at("nextCursor"))
	require.Equal(t, "token.rotated", rest.at("data").([]any)[0].(map[string]any)["type"])
	require.Len(t, s.as(http.MethodGet, path+"&type=token.rotated&tokenId="+id, "").at("data"), 1)
	require.Empty(t, s.as(http.MethodGet, path+"&until=2000-01-01T00:00:00Z", "").at("data"))

	table := s.send(call{
		method: http.MethodGet, path: path, credential: s.jwt, header: map[string]string{"Accept": "text/csv"},
	})
	require.Equal(t, "text/csv; charset=utf-8", table.header.Get("Content-Type"))
	rows, err := csv.NewReader(strings.NewReader(table.raw)).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 3)
	require.Equal(t, "userAgent", rows[0][7])
	require.Equal(t, "'=cmd()", rows[2][7], "the cell is not a formula")
	require.Equal(t, "audit-1", rows[2][8])

	lines := s.send(call{
		method: http.MethodGet, path: path, credential: s.jwt,
		header: map[string]string{"Accept": "application/json;q=0.5, application/x-ndjson"},
	})
	require.Equal(t, "application/x-ndjson; charset=utf-8", lines.header.Get("Content-Type"))
	all := strings.Split(strings.TrimSuffix(lines.raw, "\n"), "\n")
	require.Len(t, all, 2)
	var event map[string]any
	require.NoError(t, json.Unmarshal([]byte(all[1]), &event))
	require.Equal(t, "=cmd()", event["userAgent"])

	file := s.send(call{
		method: http.MethodGet, path: path, credential: s.jwt,
		header: map[string]string{"Accept": "application/vnd.apache.parquet"},
	})
	require.Equal(t, "application/vnd.apache.parquet", file.header.Get("Content-Type"))
	require.Equal(t, `attachment; filename="token-events.parquet"`, file.header.Get("Content-Disposition"))
	require.True(t, strings.HasPrefix(file.raw, "PAR1") && strings.HasSuffix(file.raw, "PAR1"))

	unprovisioned := s.send(call{
		method: http.MethodGet, path: "/api/v1/crm/audit/tokens", credential: s.stranger(""),
		header: map[string]string{"Accept": "text/csv"},
	})
	require.Equal(t, "id,tokenId,type,position,at,actor,ip,userAgent,requestId,data,digest,leaf,lineHash\n",
		unprovisioned.raw)
	require.Equal(t, http.StatusForbidden,
		s.send(call{method: http.MethodGet, path: path, credential: s.mint(ownAccount, "tokens:read")}).status)
}
