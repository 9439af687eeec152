package lead

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// withContacts returns a lead with the former phone phoneA, the current phone phoneNew and the email emailA.
func withContacts(name string, derived bool) State {
	s := Evolve(State{}, leadFact(idA, someDay, event.LeadCreated{
		LeadFields: event.LeadFields{Name: name, Phone: phoneA, Email: emailA}, NameDerived: derived, Source: "api",
	}))
	return Evolve(s, leadFact(idA, someDay.Add(time.Hour), event.LeadMerged{
		Source: "website", LeadFields: event.LeadFields{Phone: phoneNew},
	}))
}

func TestRelease_Replacement(t *testing.T) {
	t.Parallel()
	local := derivedName(Arrival{LeadFields: event.LeadFields{Email: emailA}})
	mergedInto := func(s State, merged event.LeadMerged) State {
		merged.Source = "api"
		return Evolve(s, leadFact(idA, someDay.Add(time.Hour), merged))
	}
	for name, c := range map[string]struct {
		lead         State
		phone, email string
		want         event.LeadReleased
		current      [3]string // name, phone, email
	}{
		"an old phone": {
			withContacts("Asha", false), phoneA, "",
			event.LeadReleased{Field: "phone", Phone: phoneA, Current: phoneNew}, [3]string{"Asha", phoneNew, emailA},
		},
		"the current phone": {
			withContacts("Asha", false), phoneNew, "",
			event.LeadReleased{Field: "phone", Phone: phoneNew, Current: phoneA, Changed: []string{"phone"}},
			[3]string{"Asha", phoneA, emailA},
		},
		"a phone added after the current one": {
			mergedInto(withContacts("Asha", false), event.LeadMerged{LeadFields: event.LeadFields{Phone: phoneA}}),
			phoneNew, "", event.LeadReleased{Field: "phone", Phone: phoneNew, Current: phoneA},
			[3]string{"Asha", phoneA, emailA},
		},
		"the current email": {
			mergedInto(withContacts("Asha", false), event.LeadMerged{LeadFields: event.LeadFields{Email: emailNew}}),
			"", emailNew,
			event.LeadReleased{Field: "email", Email: emailNew, Current: emailA, Changed: []string{"email"}},
			[3]string{"Asha", phoneNew, emailA},
		},
		"an old phone, and a name derived from the email": {
			withContacts(local, true), phoneA, "",
			event.LeadReleased{Field: "phone", Phone: phoneA, Current: phoneNew}, [3]string{local, phoneNew, emailA},
		},
		"the only email, from which the name is derived": {
			withContacts(local, true), "", emailA,
			event.LeadReleased{Field: "email", Email: emailA, Name: phoneNew, Changed: []string{"name", "email"}},
			[3]string{phoneNew, phoneNew, ""},
		},
		"an old phone, from which the name is derived": {
			withContacts(phoneA, true), phoneA, "",
			event.LeadReleased{
				Field: "phone", Phone: phoneA, Current: phoneNew, Name: local, Changed: []string{"name"},
			}, [3]string{local, phoneNew, emailA},
		},
		"the other form of the current phone, from which the name is derived": {
			mergedInto(withContacts(formerMexican, true), event.LeadMerged{
				LeadFields: event.LeadFields{Phone: formerMexican},
			}), mexican, "",
			event.LeadReleased{
				Field: "phone", Phone: mexican, Current: phoneNew, Name: local, Changed: []string{"name", "phone"},
			}, [3]string{local, phoneNew, emailA},
		},
		"the only email, and a given name that equals its local part": {
			withContacts(local, false), "", emailA,
			event.LeadReleased{Field: "email", Email: emailA, Changed: []string{"email"}},
			[3]string{local, phoneNew, ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := raw("phone", `"`+c.phone+`"`, "email", `"`+c.email+`"`)
			released, err := c.lead.Release(c.lead.Account, body, someRules)
			require.NoError(t, err)
			require.Equal(t, c.want, released)
			after := Evolve(c.lead, leadFact(idA, someDay.Add(2*time.Hour), released))
			require.Equal(t, c.current, [3]string{after.Name, after.Phone, after.Email})
			require.NotContains(t, append(after.Phones, after.Emails...), c.phone+c.email)
			require.Len(t, append(after.Phones, after.Emails...), len(c.lead.Phones)+len(c.lead.Emails)-1)
			require.Equal(t, c.lead.NameDerived, after.NameDerived)
			require.Equal(t, someDay.Add(2*time.Hour), after.UpdatedAt)
		})
	}
}

func TestRelease_Refused(t *testing.T) {
	t.Parallel()
	s := withContacts("Asha", false)
	for body, named := range map[[2]string]string{
		{``, ``}:                                 "body",
		{`null`, `" "`}:                          "body",
		{`"\u200b"`, ``}:                         "body",
		{`"` + phoneA + `"`, `"` + emailA + `"`}: "body",
		{`"12"`, ``}:                             "phone",
		{`true`, ``}:                             "phone",
		{``, `"nope"`}:                           "email",
		{`"` + phoneB + `"`, ``}:                 "phone",
		{``, `"` + emailB + `"`}:                 "email",
	} {
		members := raw()
		for i, key := range []string{"phone", "email"} {
			if body[i] != "" {
				members = union(members, raw(key, body[i]))
			}
		}
		_, err := s.Release(s.Account, members, someRules)
		var wrong field.Errors
		require.ErrorAs(t, err, &wrong, "%v", body)
		require.Len(t, wrong, 1)
		require.Equal(t, named, wrong[0].Field, "%v", body)
	}
	_, err := s.Release("other", raw("phone", `"`+phoneA+`"`), someRules)
	require.ErrorIs(t, err, ErrNotFound)
	_, err = State{Account: s.Account}.Release(s.Account, raw("phone", `"`+phoneA+`"`), someRules)
	require.ErrorIs(t, err, ErrNotFound)

	last := Evolve(State{}, leadFact(idA, someDay, event.LeadCreated{
		LeadFields: event.LeadFields{Name: "Asha", Phone: phoneA}, Source: "api",
	}))
	_, err = last.Release(last.Account, raw("phone", `"`+phoneA+`"`), someRules)
	require.ErrorIs(t, err, ErrLastContact)
	_, err = last.Release(last.Account, raw("phone", `"`+phoneB+`"`), someRules)
	require.ErrorAs(t, err, &field.Errors{}, "errors of the request take precedence")
}
