package report_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/attribution"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/view"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/report"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func pick[T any](random *rand.Rand, from ...T) T { return from[random.IntN(len(from))] }

// writeJourneys appends leads of two accounts that arrive, visit, are won, lost, joined and erased, and settings that
// change the won stages. It returns the positions of all events.
func writeJourneys(
	t *testing.T, w *projectiontest.World, random *rand.Rand, events int,
) (positions []eventstore.Position) {
	t.Helper()
	type leadState struct {
		account, id string
		joined      []string
	}
	var leads []leadState
	values := []string{"", "", "0", "100", "0.0001", "99999.9999"}
	campaign := func() event.Campaign {
		return event.Campaign{
			UTMSource: pick(random, "", "google", "Google"), UTMMedium: pick(random, "", "cpc"),
			UTMCampaign: pick(random, "", "diwali", "eid"),
		}
	}
	visitor := func(account string) string {
		return pick(random, "", "", event.VisitorStream(account, "a"), event.VisitorStream(account, "b"))
	}
	kept := func() event.ArrivalRef {
		if random.IntN(4) > 0 {
			return event.ArrivalRef{}
		}
		return event.ArrivalRef{
			IntakeID:   pick(random, "01JQKXZ8V4W9H6M3T2R5N7P0AA", "01JQKXZ8V4W9H6M3T2R5N7P0AB"),
			ReceivedAt: projectiontest.Start.Add(time.Duration(random.IntN(events)) * time.Millisecond),
		}
	}
	for range events {
		account := pick(random, "acme", "globex")
		stream, data := "", event.Data(nil)
		n := random.IntN(100)
		if n < 25 || len(leads) == 0 {
			l := leadState{account: account, id: w.NewID()}
			leads = append(leads, l)
			created := event.LeadCreated{
				Source: pick(random, "website", "google_ad", "api"), Campaign: campaign(), ArrivalRef: kept(),
				Visitor:    visitor(account),
				LeadFields: event.LeadFields{Status: "new", OpportunityValue: pick(random, values...)},
			}
			if random.IntN(10) == 0 {
				created.Status, created.Changed = "Won", []string{"status"}
			}
			positions = append(positions, w.Append(t, account, event.LeadStream(l.id), created))
			continue
		}
		at := random.IntN(len(leads))
		l := leads[at]
		account, stream = l.account, event.LeadStream(l.id)
		switch {
		case n < 55:
			data = event.LeadMerged{
				Source: pick(random, "website", "whatsapp", "api"), Campaign: campaign(), ArrivalRef: kept(),
				Visitor: visitor(account),
				LeadFields: event.LeadFields{
					Status: pick(random, "", "", "", "won", "lost"), OpportunityValue: pick(random, values...),
				},
			}
		case n < 80:
			data = event.LeadUpdated{
				LeadFields: event.LeadFields{
					Status: pick(random, "", "won", "WON", "sold", "lost"), OpportunityValue: pick(random, values...),
				},
			}
		case n < 84:
			stream = event.AccountStream(account)
			data = event.AccountConfigured{
				Stages:    []string{pick(random, "new", "new", "won")},
				WonStages: pick(random, nil, []string{"won", "sold"}, []string{"new"}),
			}
		case n < 92:
			stream = event.VisitorStream(account, pick(random, "a", "b"))
			data = event.VisitorActed{
				VisitorID: "v", Kind: "page_view",
				At:    projectiontest.Start.Add(time.Duration(random.IntN(2*events)) * time.Millisecond),
				Touch: random.IntN(4) > 0, Campaign: campaign(),
			}
		case n < 96:
			other := random.IntN(len(leads))
			if from := leads[other]; from.account == account && from.id != l.id {
				w.Append(t, account, event.LeadStream(from.id), event.LeadJoinedInto{Into: l.id})
				data = event.LeadJoined{From: from.id, Joined: from.joined, OpportunityValue: pick(random, "", "7")}
				leads[at].joined = append(append(l.joined, from.id), from.joined...)
				leads = append(leads[:other], leads[other+1:]...)
			}
		default:
			data = event.LeadErased{}
			leads = append(leads[:at], leads[at+1:]...)
		}
		if data != nil {
			positions = append(positions, w.Append(t, account, stream, data))
		}
	}
	return positions
}

func someFilter(random *rand.Rand) query.AttributionFilter {
	filter := query.AttributionFilter{
		Rules: attribution.Rules{
			Model:    attribution.Model(pick(random, attribution.Models()...)),
			Window:   pick(random, attribution.Day, attribution.MaxWindow),
			HalfLife: pick(random, attribution.MinHalfLife, attribution.Day),
		},
		By: attribution.Key(pick(random, attribution.Keys()...)), Visits: random.IntN(2) == 0,
	}
	if random.IntN(3) == 0 {
		filter.Since = projectiontest.Start.Add(time.Duration(random.IntN(200)) * time.Millisecond)
		filter.Until = filter.Since.Add(time.Duration(random.IntN(200)) * time.Millisecond)
	}
	return filter
}

// awaitConversions waits until the view has a row for every conversion.
func awaitConversions(t *testing.T, w *projectiontest.World) {
	t.Helper()
	stop := projectiontest.Run(t, w.Runner(t, view.Touch{}))
	defer stop()
	require.Eventually(t, func() bool {
		var complete bool
		err := w.Pool.QueryRow(t.Context(), `
			SELECT coalesce((SELECT NOT EXISTS (SELECT FROM views.conversion_sweep)
			  AND position = (SELECT max(position) FROM (
			           SELECT position FROM views.touch UNION ALL SELECT position FROM views.lead_change UNION ALL
			           SELECT position FROM views.won_stages) AS rows)
			          FROM views.conversion_state), false)`).Scan(&complete)
		return err == nil && complete
	}, time.Minute, 10*time.Millisecond)
}

// A replay kept the rows of conversions and their state. A lost row could not be built again, and after a restore of
// the log the conversions of later positions were not built until the log had reached the old position. Later a replay
// left all of them to be built by the live view.
func TestReplay_RebuildsConversions(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]string{
		"a lost row":               `DELETE FROM views.conversion`,
		"a state ahead of the log": `UPDATE views.conversion_state SET position = 1000000`,
		"a row that is not from the log": `INSERT INTO views.conversion SELECT 'other' || lead_id, since, until,
			account, at, value, touches, source, medium, campaign, utm_source, intake, credential
			FROM views.conversion`,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := projectiontest.New(t)
			random := rand.New(rand.NewPCG(1, 29))
			writeJourneys(t, w, random, 100)
			awaitConversions(t, w)
			want := w.DumpTable(t, "views", "conversion")
			require.NotEmpty(t, want)
			pgtest.Exec(t, w.Pool, spoil)
			require.NoError(t, w.Replay(view.Touch{}).Run(t.Context()))
			require.Equal(t, want, w.DumpTable(t, "views", "conversion"))
		})
	}
}

// The view yields the same report as the log, as of any position, also after later events, and for any set of
// conversions with rows.
func TestReport_ViewEqualsLog(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 29))
			w := projectiontest.New(t)
			reader, log := query.New(w.Pool, w.Store), report.Reading{Store: w.Store}
			var positions []eventstore.Position
			counted := 0
			compare := func() {
				projectiontest.CatchUp(t, w.Runner(t, view.Touch{}))
				for range 25 {
					filter := someFilter(random)
					filter.AsOf, filter.Cost = pick(random, positions...), random.IntN(2) == 0
					account := pick(random, "acme", "globex")
					answer, err := reader.Attribution(t.Context(), account, filter)
					require.NoError(t, err)
					want, err := log.Make(t.Context(), report.New(report.Parameters{
						Account: account, AttributionFilter: filter,
					}))
					require.NoError(t, err)
					require.Equal(t, want.Rows, answer.Rows, "%+v", filter)
					require.Equal(t, want.Total, answer.Total, "%+v", filter)
					counted += len(want.Rows)
				}
			}
			for range 3 {
				positions = append(positions, writeJourneys(t, w, random, 70)...)
				positions = append(positions, writeSpend(t, w, random))
				compare()
				awaitConversions(t, w)
				compare()
			}
			require.NotZero(t, counted)
			compared, err := w.Replay(view.Touch{}).Compare(t.Context(), 5)
			require.NoError(t, err)
			require.Empty(t, compared[0].Differences)
			require.NoError(t, compared[0].Err)

			pgtest.Exec(t, w.Pool,
				`UPDATE views.conversion SET value = '77.0000'
					WHERE (lead_id, since) = (SELECT lead_id, since FROM views.conversion LIMIT 1)`)
			compared, err = w.Replay(view.Touch{}).Compare(t.Context(), 5)
			require.NoError(t, err)
			require.Len(t, compared[0].Differences, 1)
			require.Equal(t, "does not match its touches", compared[0].Differences[0].What)
		})
	}
}

// writeSpend sets what some days of acme's advertising cost, and returns the position.
func writeSpend(t *testing.T, w *projectiontest.World, random *rand.Rand) eventstore.Position {
	t.Helper()
	var set event.SpendSet
	for day := range 5 {
		for _, key := range []event.SpendKey{
			{Source: "website"}, {UTMSource: "google", UTMMedium: "cpc"}, {UTMCampaign: "diwali", Source: "google_ad"},
		} {
			if random.IntN(2) == 0 {
				set.Rows = append(set.Rows, event.SpendRow{
					Day:      projectiontest.Start.AddDate(0, 0, day-2).Format(time.DateOnly),
					SpendKey: key, Amount: fmt.Sprintf("%d.%d", random.IntN(100), 1+random.IntN(9)),
				})
			}
		}
	}
	return w.Append(t, "acme", event.SpendStream("acme", "2026-01"), set)
}

// A visit may be recorded long after it happened. It belongs to the lead that the visitor's lead was joined into, and
// the conversions of the joined lead, which only reports as of an earlier position show, stay as they are.
func TestConversions_VisitAfterJoin(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	joined, into, visitor := w.NewID(), w.NewID(), event.VisitorStream("acme", "a")
	created := event.LeadCreated{Source: "website", Visitor: visitor, LeadFields: event.LeadFields{Status: "new"}}
	w.Append(t, "acme", event.LeadStream(joined), created, event.LeadUpdated{
		LeadFields: event.LeadFields{Status: "won"},
	})
	won := w.Append(t, "acme", event.LeadStream(into), event.LeadCreated{
		Source: "google_ad", LeadFields: event.LeadFields{Status: "won"},
	})
	w.Append(t, "acme", event.LeadStream(joined), event.LeadJoinedInto{Into: into})
	w.Append(t, "acme", event.LeadStream(into), event.LeadJoined{From: joined})
	w.Project(t)
	awaitConversions(t, w)
	visited := w.Append(t, "acme", visitor, event.VisitorActed{
		VisitorID: "v", Kind: "page_view", At: projectiontest.Start, Touch: true,
	})
	w.Project(t)
	awaitConversions(t, w)
	compared, err := w.Replay(view.Touch{}).Compare(t.Context(), 5)
	require.NoError(t, err)
	require.Empty(t, compared[0].Differences)

	reader := query.New(w.Pool, w.Store)
	for position, touches := range map[eventstore.Position]int64{won: 2, visited: 3} {
		answer, err := reader.Attribution(t.Context(), "acme", query.AttributionFilter{
			Rules: attribution.Rules{Model: attribution.Linear, Window: attribution.Day, HalfLife: attribution.Day},
			By:    attribution.BySource, Visits: true, AsOf: position,
		})
		require.NoError(t, err)
		for _, row := range answer.Rows {
			touches -= row.Touches
		}
		require.Zero(t, touches)
	}
}

func TestExplain_NamesEventsBehindEachRow(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	first, second := w.NewID(), w.NewID()
	created := func(source string) event.LeadCreated {
		return event.LeadCreated{Source: source, LeadFields: event.LeadFields{Status: "new", OpportunityValue: "10"}}
	}
	w.Append(t, "acme", event.LeadStream(first), created("website"), event.LeadUpdated{
		LeadFields: event.LeadFields{Status: "won"},
	})
	w.Append(t, "acme", event.LeadStream(second), created("google_ad"))
	p := report.Parameters{Account: "acme", AttributionFilter: query.AttributionFilter{
		Rules: attribution.Rules{
			Model: attribution.Last, Window: attribution.DefaultWindow, HalfLife: attribution.DefaultHalfLife,
		}, By: attribution.BySource,
	}}
	log := report.Reading{Store: w.Store}
	at := func(position eventstore.Position) report.File {
		p.AsOf = position
		made, err := log.Make(t.Context(), report.New(p))
		require.NoError(t, err)
		return made
	}
	before := at(w.Append(t, "acme", event.AccountStream("acme"), event.AccountConfigured{Stages: []string{"new"}}))
	w.Append(t, "globex", event.LeadStream(w.NewID()), created("api"))
	w.Append(t, "acme", event.LeadStream(first), event.LeadMerged{Source: "whatsapp"})
	won := w.Append(t, "acme", event.LeadStream(second), event.LeadUpdated{LeadFields: event.LeadFields{Status: "won"}})
	middle := at(won)
	explained := func(before, after report.File) (lines []string) {
		changes, err := log.Explain(t.Context(), before, after)
		require.NoError(t, err)
		for _, change := range changes {
			lines = append(lines, change.String())
			for _, cause := range change.Events {
				lines = append(lines,
					fmt.Sprintf("%s of %s", cause.Type, map[string]string{
						first: "first", second: "second", "": "all",
					}[cause.Lead]))
			}
		}
		return lines
	}
	require.Empty(t, explained(before, before))
	require.Equal(t,
		[]string{`row "google_ad": no row -> touches 1, conversions 1.000000, value 10.0000`, "lead.updated of second"},
		explained(before, middle))
	require.Equal(t,
		[]string{`row "google_ad": touches 1, conversions 1.000000, value 10.0000 -> no row`, "lead.updated of second"},
		explained(middle, before))

	lost := at(w.Append(t, "acme", event.AccountStream("acme"), event.AccountConfigured{
		Stages: []string{"new"}, WonStages: []string{"lost"},
	}))
	require.Equal(t, []string{
		`row "google_ad": touches 1, conversions 1.000000, value 10.0000 -> no row`, "account.configured of all",
		`row "website": touches 1, conversions 1.000000, value 10.0000 -> no row`, "account.configured of all",
	}, explained(middle, lost))

	p.Model, p.By = attribution.First, attribution.ByMedium
	other := at(won)
	require.Equal(t, []string{"model: last -> first"}, middle.Parameters(other))
	require.ErrorContains(t, report.Comparable(middle, other), "by source and by medium")
}

func TestVerify_FindsFirstDifference(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	stream := event.LeadStream(w.NewID())
	end := w.Append(t, "acme", stream, event.LeadCreated{
		Source: "website", LeadFields: event.LeadFields{Status: "won", OpportunityValue: "10"},
	})
	log := report.Reading{Store: w.Store}
	made, err := log.Make(t.Context(),
		report.New(report.Parameters{Account: "acme", AttributionFilter: query.AttributionFilter{
			Rules: attribution.Rules{
				Model: attribution.Last, Window: attribution.DefaultWindow, HalfLife: attribution.DefaultHalfLife,
				Since: projectiontest.Start,
			},
			By: attribution.BySource, AsOf: end,
		}}))
	require.NoError(t, err)
	text, err := made.Encode()
	require.NoError(t, err)
	w.Append(t, "acme", stream, event.LeadMerged{Source: "api"})
	for what, c := range map[string]struct{ from, to, difference string }{
		"nothing": {``, ``, ``},
		"a value": {
			`"value": "10.0000"` + "\n    }\n  ]", `"value": "11.0000"` + "\n    }\n  ]",
			`row "website": touches 1, conversions 1.000000, value 11.0000 -> touches 1, conversions 1.000000, ` +
				`value 10.0000`,
		},
		"the total": {
			`"conversions": "1.000000",` + "\n    " + `"value": "10.0000"` + "\n  }",
			`"conversions": "2.000000",` + "\n    " + `"value": "10.0000"` + "\n  }",
			`total: 2.000000 conversions, value 10.0000: the log gives 1.000000 and 10.0000`,
		},
		"a key": {
			`"website"`, `"website2"`, `row "website": no row -> touches 1, conversions 1.000000, value 10.0000`,
		},
		"a parameter": {
			`"since": "2026-03-01T09:00:00.000Z"`, `"since": "2027-03-01T09:00:00.000Z"`,
			`row "website": touches 1, conversions 1.000000, value 10.0000 -> no row`,
		},
		"the log": {`"size": 1`, `"size": 2`, fmt.Sprintf("log up to position %d: the report has 2 events", end)},
		"the position": {
			fmt.Sprintf(`"asOf": %d`, end), fmt.Sprintf(`"asOf": %d`, end+1),
			fmt.Sprintf("log up to position %d: the report has 1 events", end+1),
		},
	} {
		t.Run(what, func(t *testing.T) {
			changed := strings.Replace(string(text), c.from, c.to, 1)
			require.Equal(t, c.from == "", changed == string(text))
			parsed, err := report.Parse([]byte(changed))
			require.NoError(t, err)
			difference, err := log.Verify(t.Context(), parsed)
			require.NoError(t, err)
			if c.difference == "" {
				require.Empty(t, difference)
			}
			require.Contains(t, difference, c.difference)
		})
	}
	for _, wrong := range []string{
		``, `{}`, `[]`, `{"report":"x"}`, strings.Replace(string(text), `"last"`, `"best"`, 1),
		strings.Replace(string(text), `"90d"`, `"90"`, 1), strings.Replace(string(text), `"rows"`, `"lines"`, 1),
	} {
		_, err := report.Parse([]byte(wrong))
		require.Error(t, err, wrong)
	}
}

// moved is a copy of a log in another store, which has other positions.
type moved struct{ eventstore.Store }

const stretch = 100

func (moved) Epoch(context.Context) (string, error) { return "another", nil }

func (m moved) Head(ctx context.Context) (eventstore.Position, error) {
	head, err := m.Store.Head(ctx)
	return head * stretch, err
}

func (m moved) Subscribe(
	ctx context.Context, after eventstore.Position, filter eventstore.Filter,
) iter.Seq2[eventstore.Page, error] {
	return func(yield func(eventstore.Page, error) bool) {
		for page, err := range m.Store.Subscribe(ctx, after/stretch, filter) {
			page.Position *= stretch
			for i := range page.Events {
				page.Events[i].Position *= stretch
			}
			if !yield(page, err) {
				return
			}
		}
	}
}

func TestVerify_AfterMoveOfLog(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	lead := w.NewID()
	parameters := report.Parameters{Account: "acme", AttributionFilter: query.AttributionFilter{
		Rules: attribution.Rules{
			Model: attribution.Last, Window: attribution.DefaultWindow, HalfLife: attribution.DefaultHalfLife,
		}, By: attribution.BySource,
	}}
	make := func(store eventstore.Store, asOf eventstore.Position) report.File {
		parameters.AsOf = asOf
		made, err := report.Reading{Store: store}.Make(t.Context(), report.New(parameters))
		require.NoError(t, err)
		return made
	}
	w.Append(t, "acme", event.LeadStream(lead), event.LeadCreated{
		Source: "website", LeadFields: event.LeadFields{Status: "new", OpportunityValue: "10"},
	})
	before := make(w.Store, w.Append(t, "acme", event.LeadStream(lead), event.LeadUpdated{
		LeadFields: event.LeadFields{Status: "won"},
	}))
	last := w.Append(t, "acme", event.LeadStream(lead), event.LeadUpdated{
		LeadFields: event.LeadFields{OpportunityValue: "20"},
	})
	copied := report.Reading{Store: moved{w.Store}}
	after := make(copied.Store, last*stretch)
	require.NotEmpty(t, before.Rows)

	for _, f := range []report.File{before, after} {
		for _, log := range []report.Reading{{Store: w.Store}, copied} {
			difference, err := log.Verify(t.Context(), f)
			require.NoError(t, err)
			require.Empty(t, difference)
		}
	}
	changes, err := copied.Explain(t.Context(), before, after)
	require.NoError(t, err)
	require.Len(t, changes, 1)
	require.Len(t, changes[0].Events, 1)
	require.Equal(t, last*stretch, changes[0].Events[0].Position)

	forged := before
	forged.Log.Size++
	difference, err := copied.Verify(t.Context(), forged)
	require.NoError(t, err)
	require.Contains(t, difference, "the report has 3 events")
	forged.Log.Size = 9
	difference, err = copied.Verify(t.Context(), forged)
	require.NoError(t, err)
	require.Contains(t, difference, "the report has 9 events")
}

func FuzzParse(f *testing.F) {
	f.Add(
		[]byte(`{"report":"attribution","account":"acme","model":"last","by":"source","since":null,"until":null,` +
			`"window":"90d","halfLife":"7d","visits":false,"asOf":7,"log":{"size":7,"root":"x"},"rows":[],` +
			`"total":{"conversions":"0.000000","value":"0.0000"}}`),
	)
	f.Fuzz(func(t *testing.T, text []byte) {
		parsed, err := report.Parse(text)
		if err != nil {
			return
		}
		encoded, err := parsed.Encode()
		if err != nil {
			return // a year outside of the range of JSON times
		}
		again, err := report.Parse(encoded)
		require.NoError(t, err)
		require.Equal(t, parsed.Rows, again.Rows)
		is, err := report.Is(bytes.NewReader(encoded))
		require.NoError(t, err)
		require.True(t, is)
	})
}
