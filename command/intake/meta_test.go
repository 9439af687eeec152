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

func TestLeadURL_EscapesToken(t *testing.T) {
	t.Parallel()
	url, err := LeadURL(event.IntakeSettings{GraphURL: "https://graph.example.com/v1/"}, Secrets{AccessToken: "a&b"},
		[]byte(`{"leadgen_id": 12}`))
	require.NoError(t, err)
	require.Equal(t, "https://graph.example.com/v1/12?access_token=a%26b", url)
	url, err = LeadURL(event.IntakeSettings{}, Secrets{}, []byte(`{"leadgen_id": "12"}`))
	require.NoError(t, err)
	require.Equal(t, DefaultGraphURL+"/12?access_token=", url)
	_, err = LeadURL(event.IntakeSettings{}, Secrets{}, []byte(`{"leadgen_id": "12/../13"}`))
	require.Error(t, err)
}

func TestFetched_NeedsLead(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{``, `{}`, `{"error": {"message": "x"}}`, `[]`, `{"field_data": "x"}`} {
		_, err := Fetched([]byte(`{"leadgen_id": "1"}`), []byte(bad))
		require.Error(t, err, bad)
	}
}
