package httpapi_test

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
)

const touches = "/api/v1/crm/touches"

// touched returns one member of each touch in the answer to a query.
func (s *service) touched(path, member string) []any {
	s.t.Helper()
	list := []any{}
	for _, item := range s.as(http.MethodGet, path, "").is(http.StatusOK).at("data").([]any) {
		list = append(list, item.(map[string]any)[member])
	}
	return list
}

func TestTouches_RowAndFormats(t *testing.T) {
	t.Parallel()
	s := start(t)
	captured :=
		s.capture(`{"phone":"9876543210","metadata":{"source":"website","utm_source":"Google","utm_medium":"cpc","utm_campaign":"=Diwali","utm_id":7,
		"utm_term":"gold","utm_content":"for asha@example.com","gclid":"g1","li_fat_id":"l1","page_url":"https://example.com/a","referrer":"https://example.org/"}}`)
	id := captured.is(http.StatusCreated).at("data", "leadId")
	last := s.capture(`{"phone":"9876543210","metadata":{"source":"whatsapp","utm_source":"call 98765-43210",` +
		`"utm_campaign":"asha@example.com","landing_page":"/b"}}`)
	require.Equal(t, id, last.is(http.StatusOK).at("data", "leadId"))

	rows := s.as(http.MethodGet, after(touches, last), "").is(http.StatusOK).at("data").([]any)
	require.Len(t, rows, 2)
	first, second := rows[0].(map[string]any), rows[1].(map[string]any)
	for member, want := range map[string]any{
		"leadId": id, "source": "website", "kind": "created", "utmSource": "Google", "utmMedium": "cpc",
		"utmCampaign": "=Diwali", "utmId": "7", "utmTerm": "gold", "utmContent": "for asha@example.com",
		"clickIds":    map[string]any{"gclid": "g1", "li_fat_id": "l1"},
		"landingPage": "https://example.com/a", "referrer": "https://example.org/", "intakeId": nil, "erased": false,
		"requestId": captured.header.Get("X-Request-Id"),
		"position":  mustNumber(t, captured.header.Get("X-Log-Position")),
	} {
		require.Equal(t, want, first[member], member)
	}
	require.True(t, strings.HasPrefix(first["credential"].(string), "user:"))
	require.Equal(t, []any{"merged", "asha@example.com", "/b", map[string]any{}, nil},
		[]any{second["kind"], second["utmCampaign"], second["landingPage"], second["clickIds"], second["utmMedium"]})

	for filter, want := range map[string]int{
		"source=whatsapp": 1, "campaign=%3DDiwali": 1, "campaign=%3Ddiwali": 0, "campaign=asha%40example.com": 0,
		"medium=cpc": 1, "leadId=" + id.(string): 2, "leadId=x": 0, "since=2999-01-01T00:00:00Z": 0,
		"until=2999-01-01T00:00:00Z": 2,
	} {
		require.Len(t, s.touched(touches+"?"+filter, "touchId"), want, filter)
	}
	page := s.as(http.MethodGet, touches+"?limit=1", "")
	rest := s.as(http.MethodGet, touches+"?limit=1&cursor="+page.at("nextCursor").(string), "")
	require.Equal(t, rows, append(page.at("data").([]any), rest.at("data").([]any)...))
	require.Nil(t, rest.at("nextCursor"))

	as := func(media string) string {
		r := s.send(call{
			method: http.MethodGet, path: touches, credential: s.jwt, header: map[string]string{"Accept": media},
		})
		require.Equal(t, media+"; charset=utf-8", r.header.Get("Content-Type"))
		return r.raw
	}
	table, err := csv.NewReader(strings.NewReader(as("text/csv"))).ReadAll()
	require.NoError(t, err)
	require.Len(t, table, 3)
	require.Equal(t,
		"touchId leadId at source kind utmSource utmMedium utmCampaign utmId utmTerm utmContent clickIds "+
			"landingPage referrer"+
			" credential intakeId requestId position erased", strings.Join(table[0], " "))
	require.Equal(t, []string{"'=Diwali", `{"gclid":"g1","li_fat_id":"l1"}`, "false"},
		[]string{table[1][7], table[1][11], table[1][18]})
	for i, line := range strings.Split(strings.TrimSuffix(as("application/x-ndjson"), "\n"), "\n") {
		var row any
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		require.Equal(t, rows[i], row)
	}
	require.Empty(t, s.send(call{method: http.MethodGet, path: touches, credential: s.stranger("")}).at("data"),
		"another account's")
	require.Equal(t, http.StatusForbidden,
		s.send(call{method: http.MethodGet, path: touches, credential: s.mint(ownAccount, "tokens:read")}).status)
}

func TestTouches_BadParameters(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.capture(`{"phone":"9876543210"}`)
	for query, field := range map[string]string{
		"asOf=yesterday": "asOf", "asOf=999999": "asOf", "asOf=-1": "asOf", "asOf=2999-01-01T00:00:00Z": "asOf",
		"include=all": "include", "source=tv": "source", "since=x": "since", "limit=0": "limit",
	} {
		r := s.as(http.MethodGet, touches+"?"+query, "").is(http.StatusBadRequest)
		require.Equal(t, []string{field}, r.fieldsNamed(), query)
	}
	s.as(http.MethodGet, touches+"?cursor=x", "").is(http.StatusBadRequest)
}

// Two leads were joined. As of a time before the join, each has its own touches.
func TestTouches_AsOfBeforeJoin(t *testing.T) {
	t.Parallel()
	s := start(t)
	into := s.capture(`{"phone":"9876543210"}`).at("data", "leadId").(string)
	second := s.capture(`{"phone":"9876543211"}`)
	from := second.at("data", "leadId").(string)
	joined := s.as(http.MethodPost, leads+"/"+into+"/join", fmt.Sprintf(`{"from":%q}`, from)).is(http.StatusOK)
	last := s.capture(`{"phone":"9876543211","metadata":{"source":"whatsapp"}}`).is(http.StatusOK)

	require.Equal(t, []any{into, into, into}, s.touched(after(touches, last), "leadId"))
	before := touches + "?asOf=" + second.header.Get("X-Log-Position")
	require.Equal(t, []any{into, from}, s.touched(before, "leadId"))
	require.Equal(t, []any{into, into}, s.touched(touches+"?asOf="+joined.header.Get("X-Log-Position"), "leadId"))
	require.Len(t, s.touched(before+"&leadId="+from, "leadId"), 1)
	require.Len(t, s.touched(touches+"?leadId="+from, "leadId"), 0)
	require.Len(t, s.touched(touches+"?leadId="+into, "leadId"), 3)
	require.Empty(t, s.touched(touches+"?asOf=2020-01-01T00:00:00Z", "leadId"))

	events := s.as(http.MethodGet, leads+"/"+into+"/events", "").is(http.StatusOK).at("data").([]any)
	at, err := time.Parse(time.RFC3339, events[1].(map[string]any)["at"].(string))
	require.NoError(t, err)
	require.Equal(t, into, s.touched(touches+"?asOf="+at.UTC().Format("2006-01-02T15:04:05.000Z"), "leadId")[1],
		"a join applies as of its own time")
}

func TestTouches_VisitsTiedByVisitor(t *testing.T) {
	t.Parallel()
	s := start(t)
	visit := func(visitor, query string) reply {
		return s.as(http.MethodPost, visitors+visitor+"/activity",
			`{"type":"page_view","at":"2026-01-02T03:04:05Z","url":"https://example.com/`+query+
				`"}`).is(http.StatusAccepted)
	}
	visit("v1", "?utm_campaign=diwali&utm_term=gold&gclid=g1")
	visit("v1", "?page=2")
	visit("v2", "?utm_source=asha%40example.com")
	last := s.capture(`{"phone":"9876543210","visitorId":"v1"}`).is(http.StatusCreated)
	id := last.at("data", "leadId")

	require.Equal(t, []any{"created"}, s.touched(after(touches, last), "kind"))
	require.Equal(t, []any{"visit", "visit", "created"}, s.touched(touches+"?include=visits", "kind"))
	require.Equal(t, []any{id, nil, id}, s.touched(touches+"?include=visits", "leadId"))
	rows := s.as(http.MethodGet, touches+"?include=visits&leadId="+id.(string), "").at("data").([]any)
	require.Len(t, rows, 2)
	row := rows[0].(map[string]any)
	require.Equal(t, []any{
		"2026-01-02T03:04:05.000Z", nil, "diwali", "gold", map[string]any{"gclid": "g1"},
		"https://example.com/?utm_campaign=diwali&utm_term=gold&gclid=g1",
	},
		[]any{row["at"], row["source"], row["utmCampaign"], row["utmTerm"], row["clickIds"], row["landingPage"]})
}

func TestTouches_ErasureKeepsRows(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.as(http.MethodPost, visitors+"v1/activity",
		`{"type":"page_view","url":"https://example.com/?utm_campaign=diwali&utm_term=gold"}`).is(http.StatusAccepted)
	last := s.capture(`{"phone":"9876543210","visitorId":"v1","metadata":{"source":"website","utm_medium":"cpc",` +
		`"utm_source":"asha@example.com","gclid":"g1"}}`)
	id := last.is(http.StatusCreated).at("data", "leadId").(string)
	before := s.as(http.MethodGet, after(touches, last)+"&include=visits", "").at("data").([]any)
	erased := s.erase(id, http.StatusOK)

	rows := s.as(http.MethodGet, after(touches, erased)+"&include=visits", "").is(http.StatusOK)
	require.NotContains(t, rows.raw, "asha")
	require.NotContains(t, rows.raw, "g1")
	require.NotContains(t, rows.raw, "gold")
	require.NotContains(t, rows.raw, id)
	require.Len(t, rows.at("data"), len(before))
	for i, row := range rows.at("data").([]any) {
		row, was := row.(map[string]any), before[i].(map[string]any)
		require.Equal(t, []any{true, nil, nil, nil}, []any{
			row["erased"], row["leadId"], row["requestId"], row["landingPage"],
		})
		for _, kept := range []string{
			"touchId", "at", "kind", "source", "utmMedium", "utmCampaign", "credential", "position",
		} {
			require.Equal(t, was[kept], row[kept], kept)
		}
	}
	require.Empty(t, s.touched(touches+"?leadId="+id, "leadId"))
	require.Len(t, s.touched(touches+"?include=visits&asOf="+last.header.Get("X-Log-Position"), "leadId"), 2)
}

func mustNumber(t *testing.T, text string) float64 {
	t.Helper()
	var n float64
	require.NoError(t, json.Unmarshal([]byte(text), &n))
	return n
}
