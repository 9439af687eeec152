package lead

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/eventstore/event"
)

// One Mexican mobile number in its current and in its former form.
const mexican, formerMexican = "+525512345678", "+5215512345678"

// history generates the facts of one lead: arrivals, releases of contacts, a join of another lead, and possibly a join
// into another lead.
func history(t *rapid.T) []event.Fact {
	text := func(of ...string) *rapid.Generator[string] { return rapid.SampledFrom(append(of, "")) }
	members := rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "ip", "source"}),
		rapid.Map(rapid.SampledFrom([]string{`1`, `"x"`, `""`, `{"k":[1,null]}`, `false`}),
			func(s string) jsontext.Value { return jsontext.Value(s) }), 0, 3)
	var facts []event.Fact
	var s State
	at := someDay
	for range rapid.IntRange(1, 8).Draw(t, "arrivals") {
		previous := at
		at = at.Add(time.Duration(rapid.IntRange(0, 1000).Draw(t, "later")) * time.Millisecond)
		a := Arrival{
			Source: rapid.SampledFrom([]string{"website", "chatbot", "facebook_ad", "api", "webhook"}).Draw(t,
				"source"),
			LeadFields: event.LeadFields{
				Name:  text("Asha", "Rao").Draw(t, "name"),
				Phone: text(phoneA, phoneB, phoneNew, mexican, formerMexican).Draw(t, "phone"),
				Email: text(emailA, emailB).Draw(t, "email"), Status: text("new", "won").Draw(t, "status"),
				Temperature:      text("hot", "cold").Draw(t, "temperature"),
				OpportunityValue: text("0", "5").Draw(t, "value"), CustomFields: members.Draw(t, "custom"),
			},
			VisitorID: text("v", "w").Draw(t, "visitor"), IP: text("198.51.100.7").Draw(t, "ip"),
			UserAgent: text("M").Draw(t, "agent"), Metadata: members.Draw(t, "metadata"),
		}
		if a.Phone == "" && a.Email == "" {
			a.Phone = phoneA
		}
		if rapid.Bool().Draw(t, "kept") {
			a.Ref.ReceivedAt = previous
		}
		if consent := text(`{"purpose":"a"}`, `[{"purpose":"a","granted":false},{"purpose":"b","text":"x"}]`).Draw(t,
			"consent"); consent != "" {
			given, _ := Consents(jsontext.Value(consent), "")
			a.Metadata, a.Consents = union(a.Metadata, raw(keyConsent, consent)), given
		}
		var owner *State
		if len(facts) > 0 {
			owner = &s
		}
		decision, err := Decide(a, someRules, owner, nil, someIDs)
		if err != nil {
			continue // a refused repeat from a curated source
		}
		fact := leadFact(idNew, at, decision.Fact)
		facts, s = append(facts, fact), Evolve(s, fact)
		contact := rapid.SampledFrom(
			[][2]string{{}, {}, {"phone", phoneA}, {"phone", phoneNew}, {"phone", formerMexican}, {"email", emailA}},
		).Draw(t, "released")
		released, err := s.Release(s.Account, raw(contact[0], `"`+contact[1]+`"`), someRules)
		if err == nil {
			fact := leadFact(idNew, at, released)
			facts, s = append(facts, fact), Evolve(s, fact)
		}
		if len(s.Joined) == 0 && rapid.IntRange(0, 3).Draw(t, "joins") == 0 {
			_, joined, err := s.Join(s.Account, other(t, at))
			require.NoError(t, err)
			fact := leadFact(idNew, at, joined)
			facts, s = append(facts, fact), Evolve(s, fact)
		}
	}
	if rapid.Bool().Draw(t, "joined into") {
		facts = append(facts, leadFact(idNew, at, event.LeadJoinedInto{Into: idA}))
	}
	return facts
}

// other generates a lead of one or two arrivals, without a contact of the lead of history.
func other(t *rapid.T, at time.Time) State {
	s := Evolve(State{},
		leadFact(idB, at.Add(-time.Duration(rapid.IntRange(0, 2000).Draw(t, "earlier"))*time.Millisecond),
			event.LeadCreated{
				ContactUID: "contact-b", LeadFields: event.LeadFields{
					Name: "Bala", Phone: oldPhoneA, Status: "new",
					Temperature:   "warm",
					OpportunityID: rapid.SampledFrom([]string{"", idContact}).Draw(t, "opportunity"),
					CustomFields:  raw("a", "2", "c", "3"),
				}, NameDerived: rapid.Bool().Draw(t, "derived"),
				Source: "website", VisitorID: "x", Metadata: raw("b", `""`, "d", "4"),
			}))
	if s.OpportunityID != "" {
		s.OpportunityValue = "7"
	}
	if rapid.Bool().Draw(t, "again") {
		s = Evolve(s, leadFact(idB, at, event.LeadMerged{
			Source: "whatsapp", NewSource: true, LeadFields: event.LeadFields{Email: oldEmailA},
		}))
	}
	if rapid.Bool().Draw(t, "was joined") {
		s.Joined = []string{idA}
		s.Origins = []event.SplitOrigin{{LeadID: idContact, Before: 3}}
	}
	return s
}

func foldFacts(s State, facts []event.Fact) State {
	for _, fact := range facts {
		s = Evolve(s, fact)
	}
	return s
}

// stored returns the state after a round trip through JSON, as a view stores it.
func stored(t require.TestingT, s State) State {
	encoded, err := json.Marshal(s, json.Deterministic(true))
	require.NoError(t, err)
	var back State
	require.NoError(t, json.Unmarshal(encoded, &back))
	return back
}

// plain sets empty lists and maps to nil, because JSON does not distinguish them.
func plain(s State) State {
	list := func(v []string) []string { return append([]string(nil), v...) }
	table := func(v map[string]jsontext.Value) map[string]jsontext.Value {
		if len(v) == 0 {
			return nil
		}
		return v
	}
	s.Phones, s.Emails, s.VisitorIDs = list(s.Phones), list(s.Emails), list(s.VisitorIDs)
	s.CustomFields, s.Metadata = table(s.CustomFields), table(s.Metadata)
	if len(s.Consents) == 0 {
		s.Consents = nil
	}
	s.Sources = append([]SourceEntry(nil), s.Sources...)
	for i := range s.Sources {
		s.Sources[i].Changed, s.Sources[i].Metadata = list(s.Sources[i].Changed), table(s.Sources[i].Metadata)
	}
	return s
}

func TestEvolve_ChangesNoInput(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		facts, branch := history(t), history(t)
		var s State
		for i, fact := range facts {
			before, encoded := stored(t, s), encode(t, fact.Data)
			after := Evolve(s, fact)
			require.Equal(t, plain(before), plain(s), "fact %d", i)

			// Folding other facts onto the same state must not change this one: they share no memory.
			kept := stored(t, after)
			foldFacts(s, branch[1:])
			foldFacts(after, branch[1:])
			require.Equal(t, plain(kept), plain(after), "fact %d", i)
			require.Equal(t, encoded, encode(t, fact.Data), "fact %d itself", i)
			s = after
		}
	})
}

func encode(t require.TestingT, data event.Data) string {
	_, encoded, err := event.Encode(data)
	require.NoError(t, err)
	return string(encoded)
}

func TestEvolve_Associative(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		facts := history(t)
		cut := rapid.IntRange(0, len(facts)).Draw(t, "cut")
		all := foldFacts(State{}, facts)
		prefix := foldFacts(State{}, facts[:cut])
		require.Equal(t, all, foldFacts(prefix, facts[cut:]))
		require.Equal(t, plain(all), plain(foldFacts(stored(t, prefix), facts[cut:])), "with a stored state in between")
		require.Equal(t, int64(len(facts)-1), all.Revision)
	})
}

func TestFold_DecodedFacts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		facts := history(t)
		read := slices.Clone(facts)
		for i := range read {
			data, err := event.Decode(read[i].Data.EventType(), []byte(encode(t, read[i].Data)))
			require.NoError(t, err)
			read[i].Data = data
		}
		require.Equal(t, plain(foldFacts(State{}, facts)), plain(foldFacts(State{}, read)))
	})
}

func TestFold_EqualsEvolve(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s, folded State
		for _, fact := range history(t) {
			before, sources := s, slices.Clone(s.Sources)
			s, folded = Evolve(s, fact), Fold(folded, fact)
			require.Equal(t, sources, before.Sources)
			require.Equal(t, s, folded)
		}
	})
}

func TestOverlay_QuotesAddress(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"192.0.2.7", "", `a"b`, `a\b`, "é", "\xff", "a<b>&\u2028", "tab\t"} {
		require.False(t, quotes(nil, s))
		require.False(t, quotes(jsontext.Value(`[`+s+`]`), s))
		if v := jsontext.Value(`"` + s + `"`); v.IsValid() && quotes(v, s) {
			require.Equal(t, quote(s), v)
		}
	}
	require.True(t, quotes(quote("Mozilla/5.0"), "Mozilla/5.0"))
}

func TestLead_Invariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s State
		arrived := 0
		for i, fact := range history(t) {
			before := s
			s = Evolve(s, fact)
			switch data := fact.Data.(type) {
			case event.LeadCreated, event.LeadMerged:
				arrived++
			case event.LeadJoined:
				for _, entry := range data.Was.Sources {
					arrived += entry.Arrivals
				}
			case event.LeadJoinedInto:
				before.Phase, before.JoinedInto, before.UpdatedAt, before.Revision = Joined,
					data.Into, fact.At, before.Revision+1
				require.Equal(t, before, s, "the other fields are unchanged")
				continue
			}
			released, isRelease := fact.Data.(event.LeadReleased)
			if isRelease {
				require.NotContains(t, append(slices.Clone(s.Phones), s.Emails...),
					contact.FoldPhone(released.Phone)+released.Email)
				before.Phones, before.Emails = except(before.Phones, contact.FoldPhone(released.Phone)),
					except(before.Emails, released.Email)
				require.NotEmpty(t, append(slices.Clone(s.Phones), s.Emails...), "the lead keeps a contact")
			}
			require.Equal(t, int64(i), s.Revision, "one revision per fact")
			require.False(t, s.UpdatedAt.Before(s.CreatedAt))
			require.Equal(t, fact.At, s.UpdatedAt)
			require.True(t, slices.Equal(before.Phones, s.Phones[:len(before.Phones)]),
				"only a release removes a phone")
			require.True(t, slices.Equal(before.Emails, s.Emails[:len(before.Emails)]),
				"only a release removes an email")
			require.Equal(t, s.Phone != "", slices.Contains(s.Phones, contact.FoldPhone(s.Phone)))
			require.Equal(t, s.Email != "", slices.Contains(s.Emails, s.Email))
			require.Equal(t, s.OpportunityID != "", s.OpportunityValue != "")
			require.NotEmpty(t, s.Name)

			arrivals, seen := 0, map[string]bool{}
			for _, entry := range s.Sources {
				require.False(t, seen[entry.Source], "one entry per source")
				seen[entry.Source] = true
				arrivals += entry.Arrivals
				require.False(t, entry.LastSeenAt.Before(entry.FirstSeenAt))
			}
			require.Equal(t, arrived, arrivals, "every arrival is counted once")
			require.True(t, slices.IsSortedFunc(s.Sources, func(a, b SourceEntry) int {
				return a.FirstSeenAt.Compare(b.FirstSeenAt)
			}))
			require.True(t, s.HasSource(s.Source))
			require.True(t, s.Joined != nil || s.Sources[0].Source == s.Source, "the first touch")
			if i > 0 {
				require.Equal(t, before.CreatedAt, s.CreatedAt)
				require.Equal(t, before.ContactUID, s.ContactUID)
				require.False(t, s.NameDerived && !before.NameDerived)
			}
		}
	})
}

func TestState_JSONRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := foldFacts(State{}, history(t))
		back := stored(t, s)
		require.Equal(t, plain(s), plain(back))
		require.Equal(t, back, stored(t, back), "a second round trip changes nothing")
	})
}

// A field that JSON or a fold drops would pass the tests above if the generator never set it.
func TestLead_GeneratorFillsEveryField(t *testing.T) {
	t.Parallel()
	filled := map[string]bool{}
	for seed := range 200 {
		s := foldFacts(State{}, rapid.Custom(history).Example(seed))
		for _, v := range []reflect.Value{reflect.ValueOf(s), reflect.ValueOf(s.Sources[0])} {
			for i := range v.NumField() {
				if f := v.Field(i); !f.IsZero() {
					filled[v.Type().Field(i).Name] = true
				}
			}
		}
	}
	for _, of := range []reflect.Type{reflect.TypeFor[State](), reflect.TypeFor[SourceEntry]()} {
		for i := range of.NumField() {
			require.True(t, filled[of.Field(i).Name], "%s.%s", of, of.Field(i).Name)
		}
	}
}
