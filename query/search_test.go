package query_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/query"
)

// Names of searched leads: several scripts, accents in both forms, characters with a meaning in patterns, words of one to three
// letters.
var searchedNames = []string{
	"Asha Rao", "Ravi Iyer", "Asha Iyer", "Zubin Mehta", "JOSÉ GARCÍA", "Jose\u0301 Garci\u0301a", "राम शर्मा", "O'Brien-Smith", "Li", "X",
	"50% off_now", `back\slash`, "a.b+c@d", "Σίσυφος", "İpek", "  ", "ΑΣ ΑΣ", "no_100%", "한국 사람", "e\u0301e\u0301",
}

// searched has leads of two accounts, several to a moment.
func searched(t *testing.T) *projectiontest.World {
	t.Helper()
	w := projectiontest.New(t)
	for n := range 300 {
		for _, account := range []string{"acme", "other"} {
			e := w.NewEvent()
			e.At, e.Metadata.Account = projectiontest.Start.Add(time.Duration(n/7)*time.Minute), account
			created := event.LeadCreated{
				Name: searchedNames[n*n%len(searchedNames)], Temperature: []string{"hot", "warm", "cold"}[n%3],
				Status: []string{"New", "won"}[n%2], Source: []string{"api", "website", "api"}[n/2%3],
			}
			if n%4 > 0 {
				created.Phone = "+9198765" + strings.Repeat(string(rune('0'+n%10)), 3) + string(rune('0'+n/100)) + "1"
			}
			if n%3 > 0 {
				created.Email = []string{"asha.rao", "zoe", "x_y"}[n%3] + "@" + []string{"example.com", "b.co"}[n%2]
			}
			var err error
			e.Type, e.Data, err = event.Encode(created)
			require.NoError(t, err)
			_, err = w.Store.Append(t.Context(), eventstore.Write{
				Stream: event.LeadStream(e.ID.String()), Expect: eventstore.NoStream, Events: []eventstore.Event{e},
			})
			require.NoError(t, err)
		}
	}
	w.Project(t)
	return w
}

// inParts is a whole list of an account's leads.
func inParts(t *testing.T, reader *query.Reader, filter query.LeadFilter, limit int) []query.Lead {
	t.Helper()
	return walk(t, limit, func(p query.Page) (query.List[query.Lead], error) {
		return reader.Leads(t.Context(), "acme", filter, p)
	})
}

func TestSearch_MatchesReference(t *testing.T) {
	t.Parallel()
	for plan, statement := range map[string]string{
		"by statistics": `ANALYZE views.lead_search`,
		"by trigrams":   `DROP INDEX views.lead_search_newest`,
		"from newest":   `DROP INDEX views.lead_search_trigrams`,
	} {
		t.Run(plan, func(t *testing.T) {
			t.Parallel()
			w := searched(t)
			pgtest.Exec(t, w.Pool, statement)
			config := w.Pool.Config()
			config.ConnConfig.RuntimeParams["enable_seqscan"] = "off"
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			reader := query.New(pool, w.Store)
			all := inParts(t, reader, query.LeadFilter{}, 200)
			require.Len(t, all, 300)
			var texts []string
			for _, l := range all {
				texts = append(texts, l.Name, l.Phone, l.Email)
			}
			found := 0
			rapid.Check(t, func(rt *rapid.T) {
				filter := query.LeadFilter{
					Q:               rapid.OneOf(partOf(texts), rapid.StringN(1, 4, -1), rapid.StringOf(rapid.SampledFrom([]rune(`aish 9@._%\é`)))).Draw(rt, "q"),
					Status:          rapid.SampledFrom([]string{"", "", "NEW", "won", "lost"}).Draw(rt, "status"),
					Source:          rapid.SampledFrom([]string{"", "", "api", "website", "chatbot"}).Draw(rt, "source"),
					LeadTemperature: rapid.SampledFrom([]string{"", "", "hot", "cold"}).Draw(rt, "temperature"),
				}
				if rapid.Bool().Draw(rt, "within") {
					filter.CreatedSince, filter.CreatedUntil = projectiontest.Start.Add(5*time.Minute), projectiontest.Start.Add(30*time.Minute)
				}
				want := []string{}
				for _, l := range all {
					if matches(filter, l) {
						want = append(want, l.LeadID)
					}
				}
				limit := rapid.IntRange(max(1, len(want)/4), 200).Draw(rt, "limit")
				require.Equal(rt, want, ids(inParts(t, reader, filter, limit), func(l query.Lead) string { return l.LeadID }))
				found += len(want)
			})
			require.NotZero(t, found)
		})
	}
}

// partOf draws a part of one of the texts, in the letter case of one of several.
func partOf(texts []string) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		text := []rune(rapid.SampledFrom(texts).Draw(t, "text"))
		from := rapid.IntRange(0, len(text)).Draw(t, "from")
		part := string(text[from:rapid.IntRange(from, len(text)).Draw(t, "to")])
		return rapid.SampledFrom([]string{part, strings.ToUpper(part), strings.ToLower(part), norm.NFD.String(part)}).Draw(t, "form")
	})
}

// matches is the plain meaning of a filter.
func matches(filter query.LeadFilter, l query.Lead) bool {
	normal := func(text string) string { return norm.NFC.String(strings.ToLower(text)) }
	created := time.Time(l.CreatedAt)
	return slices.ContainsFunc([]string{l.Name, l.Phone, l.Email}, func(text string) bool {
		return strings.Contains(normal(text), normal(filter.Q))
	}) &&
		strings.EqualFold(cmp.Or(filter.Status, l.Status), l.Status) && cmp.Or(filter.Source, l.Source) == l.Source &&
		cmp.Or(filter.LeadTemperature, l.LeadTemperature) == l.LeadTemperature &&
		!created.Before(filter.CreatedSince) && (filter.CreatedUntil.IsZero() || created.Before(filter.CreatedUntil))
}

// A search shows no lead that the view of leads does not have, however far ahead or behind either view is.
func TestSearch_ViewsAtDifferentPositions(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	var leads []string
	for range 3 {
		leads = append(leads, w.NewID())
		w.Append(t, "acme", event.LeadStream(leads[len(leads)-1]), event.LeadCreated{Name: "Asha", Status: "new", Source: "api"})
	}
	w.Project(t)
	reader := query.New(w.Pool, w.Store)
	find := func(q string) []string {
		return ids(inParts(t, reader, query.LeadFilter{Q: q}, 2), func(l query.Lead) string { return l.LeadID })
	}
	require.Equal(t, []string{leads[2], leads[1], leads[0]}, find("asha"))

	w.Append(t, "acme", event.LeadStream(leads[2]), event.LeadErased{})
	w.Append(t, "acme", event.LeadStream(leads[1]), event.LeadMerged{Source: "api", Name: "Zubin"})
	projectiontest.CatchUp(t, w.Runner(t, projection.LeadView{}))
	require.Equal(t, []string{leads[1], leads[0]}, find("asha"), "an erased lead is gone from searches at once")
	require.Empty(t, find("zubin"))
	projectiontest.CatchUp(t, w.Runner(t, projection.LeadSearch{}))
	require.Equal(t, []string{leads[0]}, find("asha"))
	require.Equal(t, []string{leads[1]}, find("zubin"))

	id := w.NewID()
	w.Append(t, "acme", event.LeadStream(id), event.LeadCreated{Name: "Asha", Status: "new", Source: "api"})
	projectiontest.CatchUp(t, w.Runner(t, projection.LeadSearch{}))
	require.Equal(t, []string{leads[0]}, find("asha"))
	projectiontest.CatchUp(t, w.Runner(t, projection.LeadView{}))
	require.Equal(t, []string{id, leads[0]}, find("asha"))
}
