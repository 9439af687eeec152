package intake

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

func TestChanges_SplitsPost(t *testing.T) {
	t.Parallel()
	changes, err := Changes(sample(t, "meta_post.json"))
	require.NoError(t, err)
	require.Len(t, changes, 2)
	require.Equal(t, "123123123123", changes[0].ID)
	require.Equal(t, "444444444444", changes[1].ID)
	require.JSONEq(t,
		`{"leadgen_id": "444444444444", "page_id": "153125381133", "form_id": "555", "created_time": 1440120385}`,
		string(changes[1].Body))
	for _, none := range []string{`{}`, `{"entry": []}`, `{"entry": [{"changes": [{"field": "feed", "value": 5}]}]}`} {
		changes, err := Changes([]byte(none))
		require.NoError(t, err, none)
		require.Empty(t, changes, none)
	}
	for _, bad := range []string{``, `[]`, `{"entry": 5}`, `{"entry": {}}`} {
		_, err := Changes([]byte(bad))
		require.Error(t, err, bad)
	}
}

func TestChanges_InvalidChangeIsolated(t *testing.T) {
	t.Parallel()
	good := `{"field": "leadgen", "value": {"leadgen_id": 12}}`
	for _, bad := range []string{
		`{"field": "leadgen", "value": {}}`, `{"field": "leadgen", "value": {"leadgen_id": "../me"}}`,
		`{"field": "leadgen"}`, `{"field": 5}`, `[]`, `"x"`,
	} {
		changes, err := Changes([]byte(`{"entry": [{"changes": [` + bad + `, ` + good + `]}]}`))
		require.NoError(t, err, bad)
		require.Len(t, changes, 2, bad)
		require.Error(t, changes[0].Wrong, bad)
		require.Equal(t, bad, string(changes[0].Body))
		require.Equal(t, Change{ID: "12", Body: []byte(`{"leadgen_id": 12}`)}, changes[1])
		again, err := Changes([]byte(`{"entry": [{"changes": [` + bad + `]}]}`))
		require.NoError(t, err)
		require.Equal(t, changes[:1], again, "the id is derived from the content")
	}
	changes, err := Changes([]byte(`{"entry": [5, {"changes": {}}, {"changes": [` + good + `]}]}`))
	require.NoError(t, err)
	require.Len(t, changes, 3)
	require.NotEqual(t, changes[0].ID, changes[1].ID)
	require.NoError(t, changes[2].Wrong)
}

func TestLeadQuery_URL(t *testing.T) {
	t.Parallel()
	const all = "id%2Ccreated_time%2Cfield_data%2Ccustom_disclaimer_responses%2Cform_id%2Cplatform%2Cis_organic%2C" +
		"ad_id%2Cad_name%2Cadset_id%2Cadset_name%2Ccampaign_id%2Ccampaign_name"
	// openssl dgst -sha256 -hmac app, of a&b
	const proof = "&appsecret_proof=6df97c6f2c2631d9ccf774e682cf8dc58a05e194792683796f4858c54bfc2af5"
	secrets := Secrets{AccessToken: "a&b", AppSecret: "app", Secret: "other"}
	for want, q := range map[string]LeadQuery{
		proof + "&fields=" + all:                         {},
		proof + "&fields=id%2Ccreated_time%2Cfield_data": {OnlyAnswers: true},
		"&fields=" + all:                                 {WithoutProof: true},
		"&fields=id%2Ccreated_time%2Cfield_data":         {OnlyAnswers: true, WithoutProof: true},
	} {
		url, err := q.URL(event.IntakeSettings{GraphURL: "https://graph.example.com/v1/"}, secrets,
			[]byte(`{"leadgen_id": 12}`))
		require.NoError(t, err)
		require.Equal(t, "https://graph.example.com/v1/12?access_token=a%26b"+want, url)
	}
	url, err := LeadQuery{}.URL(event.IntakeSettings{}, Secrets{}, []byte(`{"leadgen_id": "12"}`))
	require.NoError(t, err)
	require.Equal(t, DefaultGraphURL+"/12?access_token=&fields="+all, url)
	_, err = LeadQuery{}.URL(event.IntakeSettings{}, Secrets{}, []byte(`{"leadgen_id": "12/../13"}`))
	require.Error(t, err)
}

// The errors are those of Meta's documents, and of public reports about its SDKs.
func TestGraphError_Kinds(t *testing.T) {
	t.Parallel()
	const passes, missing, permanent = "passes", "missing", "permanent"
	for text, want := range map[string]string{
		`{"code":1}`: passes, `{"code":2,"is_transient":false}`: passes, `{"code":4}`: passes, `{"code":17}`: passes,
		`{"code":32}`: passes, `{"code":613}`: passes, `{"code":80000}`: passes, `{"code":80004}`: passes,
		`{"code":80005}`: passes, `{"code":99,"is_transient":true}`: passes, `{"code":341}`: passes,
		`{"code":100,"error_subcode":33,"message":"Unsupported get request. Object with ID '1' does not exist"}`: missing,
		`{"code":100}`: missing,
		`{"code":803,"message":"(#803) Some of the aliases you requested do not exist: 1"}`: missing,
		`{"code":100,"error_subcode":1487390}`:                                              permanent,
		`{"code":100,"message":"(#100) Tried accessing nonexistent field (ad_name)"}`:       permanent + ", OnlyAnswers",
		`{"code":100,"message":"Invalid appsecret_proof provided in the API argument"}`:     permanent + ", WithoutProof",
		`{"code":200,"message":"(#200) Requires ads_management permission"}`:                permanent + ", OnlyAnswers",
		`{"code":10}`: permanent + ", OnlyAnswers", `{"code":190,"error_subcode":463}`: permanent, `{"code":102}`: permanent,
	} {
		e := GraphErrorOf([]byte(`{"error":` + text + `}`))
		got := permanent
		if e.Passes() {
			got = passes
		} else if e.Missing() {
			got = missing
		}
		if next, ok := (LeadQuery{}).After(e); ok {
			got += map[LeadQuery]string{{OnlyAnswers: true}: ", OnlyAnswers", {WithoutProof: true}: ", WithoutProof"}[next]
			_, again := next.After(e)
			require.False(t, again, "it ends")
		}
		require.Equal(t, want, got, text)
	}
	for _, none := range []string{``, `{}`, `[]`, `{"error":"x"}`, `no JSON`} {
		require.Equal(t, GraphError{}, GraphErrorOf([]byte(none)))
	}
}

func TestFetched_NeedsLead(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{``, `{}`, `{"error": {"message": "x"}}`, `[]`, `{"field_data": "x"}`} {
		_, err := Fetched([]byte(`{"leadgen_id": "1"}`), []byte(bad))
		require.Error(t, err, bad)
	}
}
