package lead

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// join joins the source lead from into the surviving lead into, and folds both.
func join(t *testing.T, into, from State) (State, State) {
	t.Helper()
	source, joined, err := into.Join("acme", from)
	require.NoError(t, err)
	at := someDay.Add(100 * time.Hour)
	return Evolve(into, leadFact(into.ID, at, joined)), Evolve(from, leadFact(from.ID, at, source))
}

func TestJoin_FillsMissingFields(t *testing.T) {
	t.Parallel()
	into := Evolve(State{}, leadFact(idA, someDay.Add(time.Hour), event.LeadCreated{
		ContactUID: "contact-a",
		LeadFields: event.LeadFields{
			Name: "9876543210", Phone: phoneA, Status: "new", Temperature: "warm", CustomFields: raw("city", `"Pune"`),
		}, NameDerived: true,
		Source: "website", Metadata: raw("utm", `"x"`, "gclid", `""`), VisitorID: "v",
	}))
	from := Evolve(State{}, leadFact(idB, someDay, event.LeadCreated{
		ContactUID: "contact-b", LeadFields: event.LeadFields{
			Name: "Bala", Phone: phoneB, Email: emailB, Status: "won",
			Temperature: "hot", OpportunityID: "opp", OpportunityValue: "7",
			CustomFields: raw("city", `"Goa"`, "size", `"XL"`),
		},
		Source: "api", Metadata: raw("utm", `"y"`, "gclid", `"g"`), VisitorID: "w", IP: "198.51.100.7",
	}))
	from = Evolve(from, leadFact(idB, someDay.Add(2*time.Hour), event.LeadMerged{
		Source: "website", NewSource: true, LeadFields: event.LeadFields{Email: emailNew},
	}))
	after, source := join(t, into, from)

	require.Equal(t, []string{"Bala", phoneA, emailNew, "new", "warm", "opp", "7", "website", "contact-a"}, []string{
		after.Name, after.Phone, after.Email, after.Status, after.Temperature, after.OpportunityID,
		after.OpportunityValue, after.Source, after.ContactUID,
	})
	require.False(t, after.NameDerived)
	require.Equal(t, []string{phoneA, phoneB}, after.Phones)
	require.Equal(t, []string{emailB, emailNew}, after.Emails)
	require.Equal(t, raw("city", `"Pune"`, "size", `"XL"`), after.CustomFields)
	require.Equal(t, raw("utm", `"x"`, "gclid", `"g"`, "ip", `"198.51.100.7"`), after.Metadata)
	require.Equal(t, []string{"v", "w"}, after.VisitorIDs)
	require.Equal(t, []string{idB}, after.Joined)
	require.Len(t, after.Sources, 2)
	require.Equal(t, "api", after.Sources[0].Source, "entries are in the order of their first arrivals")
	require.Equal(t, 2, after.Sources[1].Arrivals)
	require.Equal(t, someDay.Add(time.Hour), after.Sources[1].FirstSeenAt)
	require.Equal(t, someDay.Add(2*time.Hour), after.Sources[1].LastSeenAt)

	require.Equal(t, Joined, source.Phase)
	require.Equal(t, idA, source.JoinedInto)
	require.Equal(t, "Bala", source.Name, "the state before the join is kept")

	_, joined, err := into.Join("acme", from)
	require.NoError(t, err)
	require.Equal(t, []string{"name", "email", "opportunityValue", "customFields", "metadata", "visitorId"},
		joined.Changed)
	require.Equal(t, from.OpportunityValue, joined.OpportunityValue, "the value of the source lead")
}

func TestJoin_KeepsFields(t *testing.T) {
	t.Parallel()
	into := Evolve(State{}, leadFact(idA, someDay.Add(time.Hour), event.LeadCreated{
		ContactUID: "contact-a", LeadFields: event.LeadFields{
			Name: "Asha", Email: emailNew, Status: "new", Temperature: "warm",
			OpportunityID: "opp-a", OpportunityValue: "5", CustomFields: raw("city", `"Pune"`),
		}, Source: "website", Metadata: raw("utm", `"x"`), VisitorID: "v",
	}))
	from := Evolve(State{}, leadFact(idB, someDay, event.LeadCreated{
		ContactUID: "contact-b", LeadFields: event.LeadFields{
			Name: "9876543211", Phone: phoneB, Email: emailB, Status: "won",
			Temperature: "hot", OpportunityID: "opp-b", OpportunityValue: "7", CustomFields: raw("city", `"Goa"`),
		}, NameDerived: true, Source: "website",
		Metadata: raw("utm", `"y"`, "gclid", `""`), VisitorID: "v",
	}))
	_, joined, err := from.Join("acme",
		Evolve(State{}, leadFact("01KAHQ5V8M3N6R9T2W4Y7Z0B1C", someDay, event.LeadCreated{
			LeadFields: event.LeadFields{Name: phoneNew, Phone: phoneNew}, NameDerived: true, Source: "website",
		})))
	require.NoError(t, err)
	from = Evolve(from, leadFact(idB, someDay.Add(3*time.Hour), joined))
	after, _ := join(t, into, from)

	kept := into
	kept.Phone, kept.Phones, kept.Emails = phoneB, []string{phoneB, phoneNew}, []string{emailNew, emailB}
	kept.Joined, kept.Revision, kept.UpdatedAt = []string{idB, "01KAHQ5V8M3N6R9T2W4Y7Z0B1C"}, after.Revision,
		someDay.Add(100*time.Hour)
	kept.FirstSeen = map[string]time.Time{phoneB: someDay, phoneNew: someDay, emailB: someDay}
	first := from.Sources[0]
	kept.Sources = []SourceEntry{{
		Source: "website", FirstSeenAt: someDay, LastSeenAt: someDay.Add(time.Hour), Arrivals: 3,
		Credential: first.Credential, Metadata: from.Metadata, RequestID: first.RequestID,
	}}
	require.Equal(t, kept, after)

	_, joined, err = into.Join("acme", from)
	require.NoError(t, err)
	require.Equal(t, []string{"phone"}, joined.Changed)
	require.Empty(t, joined.OpportunityValue, "the surviving lead has a value")
	require.Equal(t, event.LeadSnapshot{
		ContactUID: "contact-b", LeadFields: event.LeadFields{
			Name: "9876543211", Phone: phoneB, Email: emailB, Status: "won",
			Temperature: "hot", OpportunityID: "opp-b", OpportunityValue: "7", CustomFields: raw("city", `"Goa"`),
		}, NameDerived: true, Phones: []string{phoneB, phoneNew}, Emails: []string{emailB}, Source: "website",
		Sources: []event.SourceSnapshot{event.SourceSnapshot(first)}, Metadata: raw("utm", `"y"`, "gclid", `""`),
		VisitorIDs: []string{"v"}, CreatedAt: someDay,
	}, joined.Was, "the state before the join is kept")
}

func TestJoin_Refused(t *testing.T) {
	t.Parallel()
	a, b := *leadA("api"), *leadB("api")
	_, source := join(t, a, b)
	missing, foreign := State{}, b
	foreign.Account = "other"
	for _, c := range []struct {
		into, from State
		is         error
	}{
		{a, missing, ErrNotFound}, {missing, a, ErrNotFound}, {a, foreign, ErrNotFound}, {foreign, a, ErrNotFound},
	} {
		_, _, err := c.into.Join("acme", c.from)
		require.ErrorIs(t, err, c.is)
	}
	for _, pair := range [][2]State{{a, source}, {source, a}} {
		_, _, err := pair[0].Join("acme", pair[1])
		var joined *JoinedError
		require.ErrorAs(t, err, &joined)
		require.Equal(t, JoinedError{LeadID: idB, Into: idA}, *joined)
	}
	_, _, err := a.Join("acme", a)
	var wrong field.Errors
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, "from", wrong[0].Field)
	for _, body := range []map[string]jsontext.Value{raw(), raw("from", "null"), raw("from", "7"), raw("from", `" "`)} {
		_, err := JoinFrom(body)
		require.ErrorAs(t, err, &wrong, "%v", body)
		require.Equal(t, "from", wrong[0].Field)
	}
}

// many returns n custom fields with values of the given length.
func many(prefix string, n, length int) map[string]jsontext.Value {
	fields := map[string]jsontext.Value{}
	for i := range n {
		fields[fmt.Sprintf("%s%02d", prefix, i)] = quote(strings.Repeat("\U0001f600", length))
	}
	return fields
}

func TestJoin_SizeLimit(t *testing.T) {
	t.Parallel()
	a, b := *leadA("api"), *leadB("api")
	for name, c := range map[string]struct {
		surviving, joined State
		wrong             string
	}{
		"fifty fields": {
			State{
				LeadFields: event.LeadFields{CustomFields: many("a", 30, 1)},
			}, State{LeadFields: event.LeadFields{CustomFields: many("b", 20, 1)}}, "",
		},
		"fifty-one fields": {
			State{
				LeadFields: event.LeadFields{CustomFields: many("a", 31, 1)},
			}, State{LeadFields: event.LeadFields{CustomFields: many("b", 20, 1)}}, "customFields",
		},
		"the same fields": {
			State{
				LeadFields: event.LeadFields{CustomFields: many("a", 50, 1)},
			}, State{LeadFields: event.LeadFields{CustomFields: many("a", 50, 1)}}, "",
		},
		"64 keys of metadata": {State{Metadata: many("a", 60, 1)}, State{Metadata: many("b", 4, 1)}, ""},
		"65 keys of metadata": {State{Metadata: many("a", 60, 1)}, State{Metadata: many("b", 5, 1)}, "metadata"},
		"32 KiB":              {State{Metadata: many("a", 1, 5000)}, State{Metadata: many("b", 1, 5000)}, "metadata"},
		"larger than an event": {
			State{}, State{LeadFields: event.LeadFields{CustomFields: many("b", 50, 4700)}}, "customFields",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			into, from := a, b
			into.CustomFields, into.Metadata = c.surviving.CustomFields, c.surviving.Metadata
			from.CustomFields, from.Metadata = c.joined.CustomFields, c.joined.Metadata
			_, _, err := into.Join("acme", from)
			if c.wrong == "" {
				require.NoError(t, err)
				return
			}
			var wrong field.Errors
			require.ErrorAs(t, err, &wrong)
			require.Len(t, wrong, 1)
			require.Equal(t, c.wrong, wrong[0].Field)
		})
	}
}

func TestJoin_ContactLimits(t *testing.T) {
	t.Parallel()
	full, other := *leadA("api"), *leadB("api")
	for name, fill := range map[string]func(many, more *State){
		"phone": func(many, more *State) {
			many.Phones, more.Phones = numbered("p", MaxContacts), []string{"one more"}
		},
		"email": func(many, more *State) {
			many.Emails, more.Emails = numbered("e", MaxContacts), []string{"one more"}
		},
		"visitorId": func(many, more *State) {
			many.VisitorIDs, more.VisitorIDs = numbered("v", MaxVisitors), []string{"one more"}
		},
		"from": func(many, more *State) { many.Joined, more.Joined = numbered("l", MaxJoined-1), []string{"one more"} },
	} {
		many, more := full, other
		fill(&many, &more)
		_, _, err := many.Join("acme", more)
		require.Equal(t, []string{name}, fieldNames(t, err), name)
		more.Phones, more.Emails, more.VisitorIDs, more.Joined = many.Phones, many.Emails, many.VisitorIDs, nil
		_, _, err = many.Join("acme", more)
		require.NoError(t, err, name)
	}
}
