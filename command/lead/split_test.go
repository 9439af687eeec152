package lead

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

// story is a log of a few leads, an event an hour.
type story struct {
	t       *testing.T
	history []event.Fact
}

// add adds an event of a lead, and returns its id.
func (s *story) add(lead string, data event.Data) string {
	at := someDay.Add(time.Duration(len(s.history)) * time.Hour)
	fact := leadFact(lead, at, data)
	fact.ID = ulid.MustNew(ulid.Timestamp(at), nil)
	s.history = append(s.history, fact)
	return fact.ID.String()
}

func (s *story) lead(id string) (state State) {
	for _, fact := range s.history {
		if event.LeadID(fact.Stream) == id {
			state = Evolve(state, fact)
		}
	}
	return state
}

func (s *story) created(lead, name, phone string) string {
	return s.add(lead, event.LeadCreated{ContactUID: "contact-" + name, LeadFields: event.LeadFields{
		Name: name, Phone: phone, Status: "new", Temperature: "warm",
		CustomFields: raw("of", `"`+name+`"`),
	}, Source: "website"})
}

func (s *story) merged(lead string, fields event.LeadFields) string {
	return s.add(lead, event.LeadMerged{Source: "website", LeadFields: fields})
}

func (s *story) updated(lead, body string) time.Time {
	members, err := Members(jsontext.Value(body))
	require.NoError(s.t, err)
	updated, err := s.lead(lead).Update("acme", members, someRules, idOpportunity)
	require.NoError(s.t, err)
	s.add(lead, updated)
	return s.history[len(s.history)-1].At
}

func (s *story) joined(into, from string) {
	source, joined, err := s.lead(into).Join("acme", s.lead(from))
	require.NoError(s.t, err)
	s.add(from, source)
	s.add(into, joined)
}

// split splits a lead, and returns what leaves and what stays.
func (s *story) split(lead string, request SplitRequest) (leaves, stays event.LeadSplit) {
	decided, err := s.lead(lead).Split("acme", request, s.history, someRules, someIDs, idOpportunity)
	require.NoError(s.t, err)
	s.add(decided.LeavesID, decided.Leaves)
	s.add(lead, decided.Stays)
	return decided.Leaves, decided.Stays
}

const byHand = `{"name":"By Hand","status":"In Talks","leadTemperature":"hot","opportunityValue":500,` +
	`"customFields":{"tier":1}}`

// requireByHand requires that a lead has all that byHand set, since a time.
func requireByHand(t *testing.T, is event.LeadSplit, since time.Time) {
	t.Helper()
	require.Equal(t, []string{"By Hand", "In Talks", "hot", "500", idOpportunity}, []string{
		is.Is.Name, is.Is.Status, is.Is.Temperature, is.Is.OpportunityValue, is.Is.OpportunityID,
	})
	require.Equal(t, `1`, string(is.Is.CustomFields["tier"]))
	require.False(t, is.Is.NameDerived)
	require.Equal(t, []any{"In Talks", since, "500"}, []any{is.Status, is.StatusAt, is.OpportunityValue})
}

// requireNotByHand requires that a lead has the values of an arrival, and none of byHand.
func requireNotByHand(t *testing.T, is event.LeadSplit, name string) {
	t.Helper()
	require.Equal(t, []string{name, "new", "warm", ""},
		[]string{is.Is.Name, is.Is.Status, is.Is.Temperature, is.Is.OpportunityValue})
	require.NotContains(t, is.Is.CustomFields, "tier")
	require.Equal(t, "new", is.Status)
	require.Empty(t, is.OpportunityValue)
}

// Changes by hand were lost when every arrival before them left, because the fold of the side that stays began later.
func TestSplit_ChangesByHandStay(t *testing.T) {
	t.Parallel()
	t.Run("before the first arrival that stays", func(t *testing.T) {
		t.Parallel()
		s := &story{t: t}
		s.created(idA, "Asha", phoneA)
		changed := s.updated(idA, byHand)
		s.merged(idA, event.LeadFields{Phone: phoneB, CustomFields: raw("of", `"Bala"`)})
		leaves, stays := s.split(idA, SplitRequest{Phone: phoneA})
		requireByHand(t, stays, changed)
		require.Equal(t, `"Bala"`, string(stays.Is.CustomFields["of"]))
		requireNotByHand(t, leaves, "Asha")
		require.Equal(t, stays.Is.LeadFields, s.lead(idA).LeadFields)
	})
	t.Run("a later arrival's values replace them", func(t *testing.T) {
		t.Parallel()
		s := &story{t: t}
		s.created(idA, "Asha", phoneA)
		s.updated(idA, byHand)
		s.merged(idA, event.LeadFields{
			Name: "Bala", Phone: phoneB, Status: "won", OpportunityValue: "7", CustomFields: raw("tier", `2`),
		})
		arrived := s.history[2].At
		_, stays := s.split(idA, SplitRequest{Phone: phoneA})
		require.Equal(t, []string{"Bala", "won", "hot", "7", idOpportunity}, []string{
			stays.Is.Name, stays.Is.Status, stays.Is.Temperature, stays.Is.OpportunityValue, stays.Is.OpportunityID,
		})
		require.Equal(t, `2`, string(stays.Is.CustomFields["tier"]))
		require.Equal(t, arrived, stays.StatusAt)
	})
	t.Run("a field that was removed stays removed", func(t *testing.T) {
		t.Parallel()
		s := &story{t: t}
		s.created(idA, "Asha", phoneA)
		s.updated(idA, `{"customFields":{"tier":1}}`)
		s.updated(idA, `{"customFields":{"tier":null}}`)
		s.merged(idA, event.LeadFields{Phone: phoneB})
		_, stays := s.split(idA, SplitRequest{Phone: phoneA})
		require.Empty(t, stays.Is.CustomFields)
		require.Equal(t, []any{phoneB, true}, []any{stays.Is.Name, stays.Is.NameDerived})
	})
	t.Run("in a second split", func(t *testing.T) {
		t.Parallel()
		s := &story{t: t}
		s.created(idA, "Asha", phoneA)
		changed := s.updated(idA, byHand)
		s.merged(idA, event.LeadFields{Phone: phoneB})
		touch := s.merged(idA, event.LeadFields{Name: "Cara", Phone: phoneNew})
		s.split(idA, SplitRequest{Touches: []string{touch}})
		decided, err := s.lead(idA).Split("acme", SplitRequest{Phone: phoneA}, s.history, someRules,
			NewIDs{Lead: idB, Contact: idContact, Opportunity: idOpportunity}, idOpportunity)
		require.NoError(t, err)
		requireByHand(t, decided.Stays, changed)
	})
	t.Run("when only a joined lead's arrivals stay", func(t *testing.T) {
		t.Parallel()
		s := &story{t: t}
		touch := s.created(idA, "Asha", phoneA)
		changed := s.updated(idA, byHand)
		s.created(idB, "Bala", phoneB)
		s.joined(idA, idB)
		leaves, stays := s.split(idA, SplitRequest{Touches: []string{touch}})
		requireByHand(t, stays, changed)
		require.Equal(t, `"Bala"`, string(stays.Is.CustomFields["of"]))
		require.Equal(t, []string{phoneB}, stays.Is.Phones)
		requireNotByHand(t, leaves, "Asha")
	})
	t.Run("of a joined lead whose arrivals leave as a new one", func(t *testing.T) {
		t.Parallel()
		s := &story{t: t}
		s.created(idA, "Asha", phoneA)
		touch := s.created(idB, "Bala", phoneB)
		s.updated(idB, byHand)
		s.joined(idA, idB)
		leaves, stays := s.split(idA, SplitRequest{Touches: []string{touch}})
		require.Equal(t, []string{"Asha", "new", "warm", "500"}, []string{
			stays.Is.Name, stays.Is.Status, stays.Is.Temperature, stays.Is.OpportunityValue,
		}, "what the join took stays")
		require.Equal(t, raw("of", `"Asha"`, "tier", `1`), stays.Is.CustomFields)
		requireNotByHand(t, leaves, "Bala")
	})
}

func TestSplit_UndoneJoinTakesItsChangesByHand(t *testing.T) {
	t.Parallel()
	s := &story{t: t}
	s.created(idA, "Asha", phoneA)
	s.created(idB, "Bala", phoneB)
	changed := s.updated(idB, byHand)
	s.merged(idB, event.LeadFields{Phone: phoneNew})
	s.split(idB, SplitRequest{Phone: phoneB}) // the arrival before the changes is a lead of its own
	s.joined(idA, idB)
	s.updated(idA, `{"customFields":{"city":"Pune"}}`)
	leaves, stays := s.split(idA, SplitRequest{Lead: idB})
	requireByHand(t, leaves, changed)
	require.NotContains(t, leaves.Is.CustomFields, "city")
	requireNotByHand(t, stays, "Asha")
	require.Equal(t, `"Pune"`, string(stays.Is.CustomFields["city"]))
}
