package view_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/view"
)

// touchRows returns the touches of the view, one per line, without ids and times.
func touchRows(t *testing.T, w *projectiontest.World) []string {
	t.Helper()
	return pgtest.Rows[string](t, w.Pool, `
		SELECT concat_ws(' ', kind, source, utm_source, utm_medium, utm_campaign, utm_id, credential, erased,
		  coalesce(p.metadata::text, '-'))
		  FROM views.touch t LEFT JOIN views.touch_personal p USING (position) ORDER BY t.position`)
}

func TestTouch_RowPerArrivalAndVisit(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	lead, visitor := event.LeadStream(w.NewID()), event.VisitorStream("acme", "hash")
	w.Append(t, "acme", visitor,
		event.VisitorActed{VisitorID: "v", Kind: "page_view", URL: "https://example.com/", At: projectiontest.Start},
		event.VisitorActed{
			VisitorID: "v", Kind: "page_view", URL: "https://example.com/?utm_source=Google&gclid=g%22",
			Referrer: "https://example.org/", At: projectiontest.Start,
			Touch: true, Campaign: event.Campaign{UTMSource: "Google"},
		})
	w.Append(t, "acme", lead,
		event.LeadCreated{
			Source: "website", Visitor: visitor, Campaign: event.Campaign{UTMMedium: "cpc"},
			Metadata: map[string]jsontext.Value{"utm_medium": jsontext.Value(`"cpc"`)},
		},
		event.LeadUpdated{LeadFields: event.LeadFields{Status: "won"}},
		event.LeadMerged{Source: "website", Campaign: event.Campaign{UTMCampaign: "diwali", UTMID: "7"}})
	w.Project(t)
	require.Equal(t, []string{
		`visit  Google    user:urn:ada f {"gclid":"g\"",` +
			`"page_url":"https://example.com/?utm_source=Google&gclid=g%22","referrer":"https://example.org/",` +
			`"utm_source":"Google"}`,
		`created website  cpc   user:urn:ada f {"utm_medium":"cpc"}`,
		`merged website   diwali 7 user:urn:ada f {}`,
	}, touchRows(t, w))
}

func TestTouch_ErasureKeepsNumbers(t *testing.T) {
	t.Parallel()
	for name, batch := range map[string]int{"event by event": 1, "at once": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := projectiontest.New(t)
			first, second, other := w.NewID(), w.NewID(), w.NewID()
			visitor := event.VisitorStream("acme", "hash")
			visit := event.VisitorActed{
				VisitorID: "v", Kind: "page_view", URL: "https://example.com/?utm_id=1", At: projectiontest.Start,
				Touch: true, Campaign: event.Campaign{UTMID: "1"},
			}
			for _, id := range []string{first, second, other} {
				w.Append(t, "acme", event.LeadStream(id), event.LeadCreated{Source: "website", Visitor: visitor})
			}
			w.Append(t, "acme", visitor, visit)
			w.Append(t, "acme", event.LeadStream(second), event.LeadJoinedInto{Into: first})
			w.Append(t, "acme", event.LeadStream(first), event.LeadJoined{From: second}, event.LeadErased{
				Leads: []string{second}, Visitors: []string{visitor},
			})
			w.Append(t, "acme", visitor, event.VisitorForgotten{}, visit)
			projectiontest.CatchUp(t, w.RunnerOf(t, batch, view.All()...))
			const details = `{"page_url":"https://example.com/?utm_id=1","utm_id":"1"}`
			require.Equal(t, []string{
				`created website     user:urn:ada t -`,
				`created website     user:urn:ada t -`,
				`created website     user:urn:ada f {}`,
				`visit     1 user:urn:ada t -`,
				`visit     1 user:urn:ada f ` + details,
			}, touchRows(t, w))
			require.Equal(t, []string{second + " " + first},
				pgtest.Rows[string](t, w.Pool,
					`SELECT lead_id || ' ' || owner FROM views.touch_owner JOIN views.touch USING (position)`))
		})
	}
}

// The last row up to a position names the lead that an arrival belongs to, after joins and splits.
func TestTouch_BelongsInIntervals(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	a, b, c := w.NewID(), w.NewID(), w.NewID()
	names := map[string]string{a: "A", b: "B", c: "C"}
	arrived := event.LeadCreated{Source: "website"}
	first := w.Append(t, "acme", event.LeadStream(a), arrived)
	w.Append(t, "acme", event.LeadStream(b), arrived)
	last := w.Append(t, "acme", event.LeadStream(b), event.LeadMerged{Source: "api", NewSource: true})
	w.Append(t, "acme", event.LeadStream(b), event.LeadJoined{From: a})
	w.Project(t)
	moved := pgtest.Rows[string](t, w.Pool, `SELECT touch_id FROM views.touch WHERE position IN ($1, $2)`,
		int64(first), int64(last))
	w.Append(t, "acme", event.LeadStream(b), event.LeadSplit{Into: c, Touches: moved})
	w.Append(t, "acme", event.LeadStream(b), event.LeadSplit{
		Into: a, Undone: true, Touches: []string{"01KAHQ5V8M3N6R9T2W4Y7Z0B1A"},
	})
	w.Append(t, "acme", event.LeadStream(a), event.LeadJoined{From: c})
	w.Project(t)
	var rows []string
	for _, row := range pgtest.Rows[string](t, w.Pool,
		`SELECT concat_ws(' ', dense_rank() OVER (ORDER BY position), owner, begins) FROM views.touch_owner
			ORDER BY since, position`) {
		for id, name := range names {
			row = strings.ReplaceAll(row, id, name)
		}
		rows = append(rows, row)
	}
	require.Equal(t, []string{"1 B f", "1 C t", "2 C f", "1 A f", "2 A f"}, rows)
}

func TestTouch_StagesAndValues(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	id := w.NewID()
	w.Append(t, "acme", event.AccountStream("acme"),
		event.AccountConfigured{Stages: []string{"Neu", "Won"}},
		event.AccountConfigured{Stages: []string{"Neu", "Won"}, WonStages: []string{"Won", "Übergeben"}})
	w.Append(t, "acme", event.LeadStream(id),
		event.LeadCreated{
			Source: "website", LeadFields: event.LeadFields{Status: "Neu", OpportunityValue: "5"},
			Changed: []string{"opportunityValue"},
		},
		event.LeadMerged{Source: "website", LeadFields: event.LeadFields{Status: "WON"}},
		event.LeadMerged{Source: "website"},
		event.LeadUpdated{LeadFields: event.LeadFields{Name: "Asha"}},
		event.LeadUpdated{LeadFields: event.LeadFields{OpportunityValue: "7.5"}},
		event.LeadJoined{From: w.NewID(), OpportunityValue: "9"},
		event.LeadJoined{From: w.NewID()})
	w.Append(t, "acme", event.LeadStream(w.NewID()),
		event.LeadCreated{Source: "website", LeadFields: event.LeadFields{Status: "Won"}, Changed: []string{"status"}})
	w.Project(t)
	require.Equal(t, []string{`created neu 5`, `merged  `, `merged  `, `created won `},
		pgtest.Rows[string](t, w.Pool, `SELECT concat_ws(' ', kind, stage, value) FROM views.touch ORDER BY position`))
	require.Equal(t, []string{`won/`, `/7.5`, "\x01/", `/9`, "\x01/", `/`, `won/`},
		pgtest.Rows[string](t, w.Pool,
			`SELECT stage || '/' || value FROM views.lead_change ORDER BY position, stage DESC`))
	require.Equal(t, []string{`acme ["won"] neu`, `acme ["won", "übergeben"] neu`},
		pgtest.Rows[string](t, w.Pool,
			`SELECT concat_ws(' ', account, stages, first) FROM views.won_stages ORDER BY position`))
}
