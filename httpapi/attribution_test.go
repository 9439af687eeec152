package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/view"
)

const attribution = "/api/v1/crm/attribution"

// attributed returns the rows of a report as "key touches conversions value", and its total.
func attributed(r reply) (rows []string) {
	r.t.Helper()
	r.is(http.StatusOK)
	for _, row := range r.at("data", "rows").([]any) {
		of := row.(map[string]any)
		rows = append(rows, fmt.Sprintf("%v %v %v %v", of["key"], of["touches"], of["conversions"], of["value"]))
	}
	return append(rows, fmt.Sprintf("= %v %v", r.at("data", "total", "conversions"), r.at("data", "total", "value")))
}

func TestAttribution_ModelsAndKeys(t *testing.T) {
	t.Parallel()
	s := start(t)
	first := s.capture(
		`{"phone":"9876543210","metadata":{"source":"website","utm_source":"Google","utm_campaign":"diwali"}}`,
	).is(http.StatusCreated)
	s.capture(`{"phone":"9876543210","metadata":{"source":"google_ad","utm_medium":"cpc"}}`).is(http.StatusOK)
	s.capture(`{"phone":"9876543210","opportunityValue":"100","metadata":{"source":"whatsapp"}}`).is(http.StatusOK)
	s.capture(`{"phone":"9876543211","metadata":{"source":"website"}}`).is(http.StatusCreated)
	path := leads + "/" + s.leadID(first)
	won := s.as(http.MethodPatch, path, `{"status":"won"}`).is(http.StatusOK)
	// A touch in the millisecond of the conversion counts.
	converted := time.Now().UnixMilli()
	require.Eventually(t, func() bool { return time.Now().UnixMilli() > converted }, time.Minute, time.Millisecond)
	s.capture(`{"phone":"9876543210","metadata":{"source":"chatbot"}}`).is(http.StatusOK)

	for query, want := range map[string][]string{
		"": {
			"google_ad 1 0.000000 0.0000", "website 1 0.000000 0.0000", "whatsapp 1 1.000000 100.0000",
			"= 1.000000 100.0000",
		},
		"?model=first": {
			"google_ad 1 0.000000 0.0000", "website 1 1.000000 100.0000", "whatsapp 1 0.000000 0.0000",
			"= 1.000000 100.0000",
		},
		"?model=linear": {
			"google_ad 1 0.333333 33.3333", "website 1 0.333334 33.3334", "whatsapp 1 0.333333 33.3333",
			"= 1.000000 100.0000",
		},
		"?model=position&by=medium": {"(none) 2 0.800000 80.0000", "cpc 1 0.200000 20.0000", "= 1.000000 100.0000"},
		"?by=campaign": {
			"(none) 2 1.000000 100.0000", "diwali 1 0.000000 0.0000", "= 1.000000 100.0000",
		},
		"?by=utmSource&model=first": {
			"(none) 2 0.000000 0.0000", "Google 1 1.000000 100.0000", "= 1.000000 100.0000",
		},
		"?by=intake":                  {"(none) 3 1.000000 100.0000", "= 1.000000 100.0000"},
		"?by=credential":              {"user:ann 3 1.000000 100.0000", "= 1.000000 100.0000"},
		"?since=2999-01-01T00:00:00Z": {"= 0.000000 0.0000"},
		"?until=2000-01-01T00:00:00Z": {"= 0.000000 0.0000"},
		"?asOf=0":                     {"= 0.000000 0.0000"},
		"?asOf=1970-01-01T00:00:00Z":  {"= 0.000000 0.0000"},
		"?asOf=1970-01-01":            {"= 0.000000 0.0000"},
		"?by=credential&asOf=" + time.Now().UTC().Format(time.DateOnly): {"user:ann 3 1.000000 100.0000", "= 1.000000 100.0000"},
		"?model=time_decay&halfLife=1h&window=24h&include=visits":       nil,
	} {
		rows := attributed(s.as(http.MethodGet, after(attribution+query, won), ""))
		if want != nil {
			require.Equal(t, want, rows, query)
		}
	}
	require.Equal(t, []string{"= 0.000000 0.0000"},
		attributed(s.send(call{method: http.MethodGet, path: attribution, credential: s.stranger("")})),
		"another account")
	s.send(call{
		method: http.MethodGet, path: attribution, credential: s.mint(ownAccount, "tokens:read"),
	}).is(http.StatusForbidden)
}

func TestAttribution_InvalidParameters(t *testing.T) {
	t.Parallel()
	s := start(t)
	for query, fields := range map[string]string{
		"model=best&cost=maybe": "model cost",
		"model=best":            "model", "by=phone": "by", "window=0d": "window", "window=366d": "window", "window=7": "window",
		"window=-1d": "window", "window=23h": "window", "halfLife=x": "halfLife", "halfLife=0h": "halfLife",
		"include=everything": "include", "since=yesterday": "since", "until=1": "until",
		"asOf=999999999": "asOf", "asOf=2999-01-01T00:00:00Z": "asOf", "asOf=now": "asOf", "asOf=2999-01-01": "asOf", "asOf=2026-02-30": "asOf", "asOf=-1": "asOf",
		"asOf=01": "asOf", "minPosition=x": "minPosition",
	} {
		require.Equal(t, strings.Fields(fields),
			s.as(http.MethodGet, attribution+"?"+query, "").is(http.StatusBadRequest).fieldsNamed(), query)
	}
}

func TestAttribution_StageHistory(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.leadID(s.capture(`{"phone":"9876543210","opportunityValue":"7"}`).is(http.StatusCreated))
	patch := func(body string) string {
		return s.as(http.MethodPatch, leads+"/"+id, body).is(http.StatusOK).header.Get("X-Log-Position")
	}
	total := func(asOf string) string {
		return s.as(http.MethodGet, attribution+"?asOf="+asOf, "").is(http.StatusOK).at("data",
			"total", "conversions").(string)
	}
	won := patch(`{"status":"won"}`)
	lost := patch(`{"status":"lost"}`)
	again := patch(`{"status":"Won"}`)
	require.Equal(t, []string{"1.000000", "0.000000", "1.000000"}, []string{total(won), total(lost), total(again)})

	s.provision(ownAccount, account.Settings{Features: []string{account.FeatureAPI}, WonStages: []string{"lost"}})
	configured, err := s.store.Head(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"1.000000", "0.000000", "1.000000"}, []string{total(won), total(lost), total(again)},
		"the won stages are also read as of the position")
	require.Equal(t, "0.000000", total(fmt.Sprint(configured)))
}

// An answer as of a position has the same bytes after later arrivals, changes, joins, settings, an erasure and a
// rebuild.
func TestAttribution_AsOfIsReproducible(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	into, from := s.twoLeads()
	for _, id := range []string{into, from} {
		s.as(http.MethodPatch, leads+"/"+id, `{"status":"won","opportunityValue":10}`).is(http.StatusOK)
	}
	last := s.capture(`{"phone":"9876543219","metadata":{"source":"website"}}`).is(http.StatusCreated)
	afterLast := time.Now().UTC().Add(time.Millisecond).Format("2006-01-02T15:04:05.000Z")
	position := s.as(http.MethodGet, after(attribution, last), "").is(http.StatusOK).at("data", "asOf")
	queries := []string{"?model=linear&asOf=" + fmt.Sprintf("%.0f", position)}
	require.Eventually(t, func() bool {
		return time.Now().UTC().Format("2006-01-02T15:04:05.000Z") > afterLast
	}, time.Minute, time.Millisecond)
	queries = append(queries, "?by=credential&asOf="+afterLast)
	reports := func() (answers []string) {
		for _, query := range queries {
			answers = append(answers, s.as(http.MethodGet, attribution+query, "").is(http.StatusOK).raw)
		}
		return answers
	}
	before := reports()
	require.Contains(t, before[0], `"total":{"conversions":"2.000000","value":"20.0000"}`)
	require.Contains(t, before[1], `"total":{"conversions":"2.000000","value":"20.0000"}`)

	s.as(http.MethodPatch, leads+"/"+into, `{"opportunityValue":99}`).is(http.StatusOK)
	s.capture(`{"phone":"9876543219","status":"won","metadata":{"source":"google_ad"}}`).is(http.StatusOK)
	joined := s.join(into, from).is(http.StatusOK)
	require.Equal(t, before, reports())
	require.Contains(t, attributed(s.as(http.MethodGet, after(attribution, joined), "")), "= 2.000000 99.0000")
	erased := s.as(http.MethodDelete, leads+"/"+into, "").is(http.StatusOK)
	s.provision(ownAccount, account.Settings{Features: []string{account.FeatureAPI}, WonStages: []string{"lost"}})
	require.Equal(t, before, reports())
	s.as(http.MethodGet, after(attribution, erased), "").is(http.StatusOK)
	require.NoError(t, projection.Replay{
		URL: s.url, Store: s.store, Projectors: []projection.Projector{view.Touch{}, view.LogIndex{}},
	}.Run(t.Context()))
	require.Equal(t, before, reports())
}

// While conversions of a large account are rebuilt, its reports are the last complete ones. They were refused.
func TestAttribution_WhileRebuilt(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	s := startOn(t, url, url, nil, withConsole) // nothing builds conversions
	head, err := s.store.Head(t.Context())
	require.NoError(t, err)
	pgtest.Exec(t, s.pool,
		`INSERT INTO views.checkpoint (projector, version, epoch, position, updated_at)
			VALUES ('touch', 1, '', $1, now())`, int64(head))
	pgtest.Exec(t, s.pool,
		`INSERT INTO views.lead_change SELECT -i, $1, 'lead-' || i, now(), 'won', ''
			FROM generate_series(1, 2001) AS i`, ownAccount)
	pgtest.Exec(t, s.pool,
		`INSERT INTO views.conversion_sweep (account, position, at, touch, leads) VALUES ($1, $2, now(), 0, 0)`,
		ownAccount, int64(head))

	none := s.as(http.MethodGet, attribution, "").is(http.StatusOK)
	require.Equal(t, true, none.at("data", "rebuilding"), "none are built yet")
	pgtest.Exec(t, s.pool, `INSERT INTO views.conversion_state (position, settings) VALUES ($1, 0)`, int64(head))
	answer := s.as(http.MethodGet, attribution, "").is(http.StatusOK)
	require.Equal(t, true, answer.at("data", "rebuilding"))
	require.Equal(t, float64(head-1), answer.at("data", "asOf"))
	earlier := s.as(http.MethodGet, attribution+fmt.Sprint("?asOf=", head-1), "").is(http.StatusOK)
	require.NotContains(t, earlier.raw, "rebuilding")

	b := s.browser().signIn(s.jwt)
	require.Contains(t, b.get("/console/sources/attribution").body, "Conversions are being rebuilt.")
	require.Equal(t, http.StatusServiceUnavailable, b.get("/console/sources/attribution.csv").status)
}
