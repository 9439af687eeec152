package view_test

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/projection/view"
)

// anyLead draws a state with every kind of value: nil and empty, unusual texts, raw JSON.
func anyLead(t *rapid.T) lead.State {
	values := rapid.SampledFrom([]jsontext.Value{
		jsontext.Value(`"a"`), jsontext.Value(`"é<&>/"`), jsontext.Value(`1.0`), jsontext.Value(`1E-300`),
		jsontext.Value(`-0`), jsontext.Value(`{"b":1,"a":[true,null,{}]}`), jsontext.Value(`[]`),
		jsontext.Value(`false`),
	})
	objects := rapid.OneOf(rapid.Just[map[string]jsontext.Value](nil), rapid.MapOfN(rapid.String(), values, 0, 20))
	texts := rapid.OneOf(rapid.Just[[]string](nil), rapid.SliceOfN(rapid.String(), 0, 3))
	moments := rapid.Custom(func(t *rapid.T) time.Time {
		return time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, "ms")).UTC()
	})
	text := func(name string) string { return rapid.String().Draw(t, name) }
	return lead.State{
		Phase: lead.Live, ID: text("id"), Revision: rapid.Int64().Draw(t, "revision"),
		Account: text("account"), ContactUID: text("contact"), LeadFields: event.LeadFields{
			Name: text("name"), Phone: text("phone"), Email: text("email"), Status: text("status"),
			Temperature: text("temperature"), OpportunityID: text("opportunity"), OpportunityValue: text("value"),
			CustomFields: objects.Draw(t, "custom"),
		}, NameDerived: rapid.Bool().Draw(t, "derived"), Phones: texts.Draw(t, "phones"),
		Emails: texts.Draw(t, "emails"), Source: text("source"),
		Sources: []lead.SourceEntry{{Source: text("of a view of its own")}}, Metadata: objects.Draw(t, "meta"),
		VisitorIDs: texts.Draw(t, "visitors"), Joined: texts.Draw(t, "joined"), JoinedInto: text("into"),
		CreatedAt: moments.Draw(t, "created"), UpdatedAt: moments.Draw(t, "updated"),
	}
}

// rowOf returns a lead's row.
func rowOf(state *lead.State, written []byte) (row schema.LeadRow) {
	into := row.Into()
	for i, text := range []string{
		state.ID, state.Account, "", state.Temperature, state.Source, state.Phone, state.Email,
	} {
		if i != 2 {
			*into[i].(*string) = text
		}
	}
	*into[2].(*time.Time) = state.CreatedAt
	*into[7].(*[]byte) = written
	return row
}

func TestLead_RowRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		state := anyLead(t)
		written := view.AppendState(nil, &state)
		row := rowOf(&state, written)
		back, err := row.State()
		require.NoError(t, err)
		require.Equal(t, string(written), string(view.AppendState(nil, &back)), "a rewritten row is the same")
		state.Sources = nil
		for known, shown := range map[*[]string]string{&state.Phones: state.Phone, &state.Emails: state.Email} {
			if *known == nil && shown != "" { // a nil list and an empty one are equivalent
				*known = []string{}
			}
		}
		require.Equal(t, state, back)
	})
}
