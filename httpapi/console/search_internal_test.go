package console

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/query"
)

func TestLeads_SearchContinues(t *testing.T) {
	t.Parallel()
	pages := newTemplates("/console", assets{})
	shown := func(list leadList) string {
		var text bytes.Buffer
		require.NoError(t, pages.all.ExecuteTemplate(&text, "leads.html", map[string]any{
			"Data": list, "Currency": "INR",
		}))
		return text.String()
	}
	list := leadList{filtered: filtered{Active: true}}
	require.Contains(t, shown(list), "No leads match the filter.")
	list.parts, list.Reach = parts{Next: "?q=wu&cursor=a"},
		query.Timestamp(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	require.Contains(t, shown(list),
		`No match among the leads created since <time class="at exact" datetime="2026-11-01T00:00:00.000Z"`)
	require.Contains(t, shown(list), `<a href="?q=wu&amp;cursor=a" rel="next">Search older leads</a>`)
	list.Leads = []leadShown{{}}
	require.Contains(t, shown(list), "Searched back to <time")
}
