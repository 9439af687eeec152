package console

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/query"
)

// The page shows the kind of an object instead of its id, and marks up times.
func TestTrail_ShowsKindsAndTimes(t *testing.T) {
	t.Parallel()
	const id = "01M8AE8KYBJQPFV7F3YMJ632FC"
	var records []trailRecord
	for _, r := range []query.TrailRecord{
		{
			Type: "token.created", Subject: id,
			Data: jsontext.Value(`{"tokenId":"` + id + `","expiresAt":"2027-11-25T22:47:16.684Z"}`),
		},
		{Type: "data.searched", Subject: "leads", Data: jsontext.Value(`{}`)},
	} {
		records = append(records, trailRecord{r, "", details(r)})
	}
	page, err := newTemplates("/console", assets{}).renderMain("trail", layout{Data: trailPage{Records: records}})
	require.NoError(t, err)
	text := string(page)
	require.Contains(t, text, `<a href="?subject=`+id+`" title="`+id+`">API token</a>`)
	require.Contains(t, text, `>leads</a>`)
	require.Contains(t, text, `<time class="at exact" datetime="2027-11-25T22:47:16.684Z"`)
	require.NotContains(t, text, ">"+id)
}

func TestTrail_ShowsValuesAsText(t *testing.T) {
	t.Parallel()
	record := query.TrailRecord{Subject: "I1", Data: jsontext.Value(`{
		"intakeId":"I1",
		"name":"Fair",
		"demo":true,
		"origins":["https://a.example","https://b.example"],
		"redirect":null,
		"wonStages":{"old":["won"],"new":["won","paid"]},
		"stages":{"old":null,"new":[]},
		"mapping":{"old":{},"new":{"phone":"body.tel"}}
	}`)}
	require.Equal(t, []trailDetail{
		{Name: "demo", New: "true"},
		{Name: "mapping", Old: "{}", New: `{"phone":"body.tel"}`, Changed: true},
		{Name: "name", New: "Fair"},
		{Name: "origins", New: "https://a.example, https://b.example"},
		{Name: "redirect", New: "–"},
		{Name: "stages", Old: "–", New: "–", Changed: true},
		{Name: "wonStages", Old: "won", New: "won, paid", Changed: true},
	}, details(record))
}
