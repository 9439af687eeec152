package projection_test

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/projection"
)

// anyLead draws a state with every kind of value: nil and empty, odd texts, raw JSON.
func anyLead(t *rapid.T) lead.State {
	values := rapid.SampledFrom([]jsontext.Value{
		jsontext.Value(`"a"`), jsontext.Value(`"\u2028<&>\/"`), jsontext.Value(`1.0`), jsontext.Value(`1E-300`), jsontext.Value(`-0`),
		jsontext.Value(`{"b":1,"a":[true,null,{}]}`), jsontext.Value(`[]`), jsontext.Value(`false`),
	})
	objects := rapid.OneOf(rapid.Just[map[string]jsontext.Value](nil), rapid.MapOfN(rapid.String(), values, 0, 20))
	texts := rapid.OneOf(rapid.Just[[]string](nil), rapid.SliceOfN(rapid.String(), 0, 3))
	moments := rapid.Custom(func(t *rapid.T) time.Time {
		return time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, "ms")).UTC()
	})
	text := func(name string) string { return rapid.String().Draw(t, name) }
	return lead.State{
		Phase: lead.Phase(rapid.IntRange(0, 3).Draw(t, "phase")), ID: text("id"), Revision: rapid.Int64().Draw(t, "revision"),
		Account: text("account"), ContactUID: text("contact"), Name: text("name"), NameDerived: rapid.Bool().Draw(t, "derived"),
		Phone: text("phone"), Email: text("email"), Phones: texts.Draw(t, "phones"), Emails: texts.Draw(t, "emails"),
		Status: text("status"), Temperature: text("temperature"), OpportunityID: text("opportunity"), OpportunityValue: text("value"),
		Source: text("source"), Sources: []lead.SourceEntry{{Source: text("of a view of its own")}},
		CustomFields: objects.Draw(t, "custom"), Metadata: objects.Draw(t, "meta"), VisitorIDs: texts.Draw(t, "visitors"),
		Joined: texts.Draw(t, "joined"), JoinedInto: text("into"),
		CreatedAt: moments.Draw(t, "created"), UpdatedAt: moments.Draw(t, "updated"),
	}
}

func TestALeadsStateIsWrittenAsTheLibraryWouldAndReadBackTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		state := anyLead(t)
		encoded := projection.AppendState([]byte("before"), &state)
		state.Sources = nil
		want, err := json.Marshal(state, json.Deterministic(true), json.OmitZeroStructFields(true), json.FormatNilSliceAsNull(true),
			jsontext.PreserveRawStrings(true))
		require.NoError(t, err)
		require.Equal(t, "before"+string(want), string(encoded))
		var back lead.State
		require.NoError(t, json.Unmarshal(want, &back))
		require.Equal(t, state, back)
	})
	require.Equal(t, "{}", string(projection.AppendState(nil, &lead.State{})))
}
