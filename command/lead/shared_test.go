package lead

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/eventstore/event"
)

// owning returns a lead with so many phones and emails.
func owning(id string, phones, emails int) *State {
	s := leadB("website")
	s.ID, s.Phones, s.Emails = id, nil, nil
	for i := range phones {
		s.Phones = append(s.Phones, fmt.Sprintf("+9198765%05d", i))
	}
	for i := range emails {
		s.Emails = append(s.Emails, fmt.Sprintf("p%d@example.com", i))
	}
	return s
}

func TestShared(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		kind  claim.Kind
		owner *State
		after int
		want  bool
	}{
		{"a free email", claim.Email, nil, 10, false},
		{"an email of a lead with one phone", claim.Email, owning(idA, 1, 1), 10, false},
		{"an email of a lead with fewer phones", claim.Email, owning(idA, 9, 1), 10, false},
		{"an email of a lead with as many phones", claim.Email, owning(idA, 10, 1), 10, true},
		{"a phone of that lead", claim.Phone, owning(idA, 10, 1), 10, false},
		{"a phone of a lead with as many emails", claim.Phone, owning(idA, 1, 10), 10, true},
		{"an email of that lead", claim.Email, owning(idA, 1, 10), 10, false},
		{"after one", claim.Email, owning(idA, 1, 1), 1, true},
		{"after one, without a phone", claim.Email, owning(idA, 0, 1), 1, false},
		{"never", claim.Email, owning(idA, 1000, 1), 0, false},
	} {
		require.Equal(t, c.want, Shared(c.kind, c.owner, c.after), c.name)
	}
}

func TestDecide_SharedContact(t *testing.T) {
	t.Parallel()
	rules := someRules
	rules.SharedAfter = 10
	manyPhones, manyEmails := owning(idB, 10, 1), owning(idB, 1, 10)
	a := leadA("website")
	for _, c := range []struct {
		name                     string
		phone, email, source     string
		byPhone, byEmail         *State
		want                     string // id of the lead; empty: a new one
		shared                   claim.Kind
		claimsPhone, claimsEmail bool
	}{
		{"a new phone opens a lead", phoneNew, emailB, "website", nil, manyPhones, "", claim.Email, true, false},
		{"also from a curated source", phoneNew, emailB, "api", nil, manyPhones, "", claim.Email, true, false},
		{"a new email opens a lead", phoneB, emailNew, "website", manyEmails, nil, "", claim.Phone, false, true},
		{"the phone of another lead decides", phoneA, emailB, "website", a, manyPhones, idA, claim.Email, false, false},
		{"and does not clash", phoneA, emailB, "api", a, manyPhones, idA, claim.Email, false, false},
		{"the email of another lead decides", phoneB, emailA, "website", manyEmails, a, idA, claim.Phone, false, false},
		{
			"a phone of the same lead decides", phoneB, emailB, "website", manyPhones, manyPhones, idB, claim.Email,
			false, false,
		},
		{"an only email finds its lead", "", emailB, "website", nil, manyPhones, idB, "", false, false},
		{"an only phone finds its lead", phoneB, "", "website", manyEmails, nil, idB, "", false, false},
		{
			"two shared ones decide as always", phoneB, emailB, "website", owning(idB, 10, 10), owning(idB, 10, 10),
			idB, "", false, false,
		},
	} {
		arrival := Arrival{LeadFields: event.LeadFields{Phone: c.phone, Email: c.email}, Source: c.source}
		decision, err := Decide(arrival, rules, c.byPhone, c.byEmail, someIDs)
		require.NoError(t, err, c.name)
		require.Equal(t, c.want != "", decision.Merged, c.name)
		require.Equal(t, c.shared, decision.Shared, c.name)
		require.Equal(t, [2]bool{c.claimsPhone, c.claimsEmail},
			[2]bool{decision.ClaimsPhone, decision.ClaimsEmail}, c.name)
		if created, is := decision.Fact.(event.LeadCreated); is {
			require.Equal(t, [2]string{c.phone, c.email}, [2]string{created.Phone, created.Email},
				"%s: a new lead shows both", c.name)
			s := Evolve(State{}, leadFact(idNew, someDay, created))
			require.Equal(t, c.claimsPhone, s.Phones != nil, c.name)
			require.Equal(t, c.claimsEmail, s.Emails != nil, c.name)
			continue
		}
		require.Equal(t, c.want, decision.LeadID, c.name)
		merged := decision.Fact.(event.LeadMerged)
		require.Equal(t, string(c.shared), merged.Shared)
		require.Empty(t, merged.EmailHeldBy, c.name)
		switch c.shared {
		case claim.Email:
			require.Empty(t, merged.Email, c.name)
		case claim.Phone:
			require.Empty(t, merged.Phone, c.name)
		}
	}
}

func TestRelease_SharedContactThatIsShown(t *testing.T) {
	t.Parallel()
	s := Evolve(State{}, leadFact(idA, someDay, event.LeadCreated{
		LeadFields: event.LeadFields{Name: "Asha", Phone: phoneA, Email: emailB, Status: "new"}, Source: "website",
		Shared: "email",
	}))
	_, err := s.Release(s.Account, raw("phone", `"`+phoneA+`"`), someRules)
	require.ErrorIs(t, err, ErrLastContact, "the shown email does not find the lead")
	released, err := s.Release(s.Account, raw("email", `"`+emailB+`"`), someRules)
	require.NoError(t, err)
	s = Evolve(s, leadFact(idA, someDay, released))
	require.Empty(t, s.Email)
	require.Equal(t, []string{phoneA}, s.Phones)
}

// world is a log of leads: which lead has which phone and email, as claims do.
type world struct {
	rules          Rules
	leads          map[string]State
	phones, emails map[string]string
}

func newWorld(after int) *world {
	rules := someRules
	rules.SharedAfter = after
	return &world{rules, map[string]State{}, map[string]string{}, map[string]string{}}
}

func (w *world) owner(of map[string]string, value string) *State {
	id, known := of[value]
	if !known || value == "" {
		return nil
	}
	s := w.leads[id]
	return &s
}

// arrive decides on an arrival and applies the decision.
func (w *world) arrive(t require.TestingT, phone, email string) (Decision, *State, *State) {
	byPhone, byEmail := w.owner(w.phones, phone), w.owner(w.emails, email)
	id := fmt.Sprintf("01KAHQ5V8M3N6R9T2W4Y7Z%04d", len(w.leads))
	decision, err := Decide(Arrival{LeadFields: event.LeadFields{Phone: phone, Email: email}, Source: "website"},
		w.rules, byPhone, byEmail,
		NewIDs{Lead: id, Contact: id, Opportunity: id})
	require.NoError(t, err)
	w.leads[decision.LeadID] = Evolve(w.leads[decision.LeadID], leadFact(decision.LeadID, someDay, decision.Fact))
	if decision.ClaimsPhone {
		require.NotContains(t, w.phones, phone)
		w.phones[phone] = decision.LeadID
	}
	if decision.ClaimsEmail {
		require.NotContains(t, w.emails, email)
		w.emails[email] = decision.LeadID
	}
	return decision, byPhone, byEmail
}

// A person is a lead by a contact that is not shared, or by the only one of the arrival.
func TestDecide_StrangersStayStrangers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		after := rapid.IntRange(1, 4).Draw(t, "after")
		w := newWorld(after)
		for range rapid.IntRange(1, 40).Draw(t, "arrivals") {
			phone := rapid.SampledFrom(
				[]string{
					"", "+919876500000", "+919876500001", "+919876500002", "+919876500003", "+919876500004",
					"+919876500005",
				},
			).Draw(t, "phone")
			email := rapid.SampledFrom(
				[]string{"", "test@example.com", "a@example.com", "b@example.com", "c@example.com"},
			).Draw(t, "email")
			if phone == "" && email == "" {
				continue
			}
			decision, byPhone, byEmail := w.arrive(t, phone, email)
			sharedPhone, sharedEmail := Shared(claim.Phone, byPhone, after), Shared(claim.Email, byEmail, after)
			byTarget := func(owner *State, shared bool) bool {
				return owner != nil && owner.ID == decision.LeadID && !shared
			}
			only := phone == "" || email == "" || sharedPhone && sharedEmail
			require.True(t,
				!decision.Merged || only || byTarget(byPhone, sharedPhone) || byTarget(byEmail, sharedEmail))
			for id, s := range w.leads {
				require.LessOrEqual(t, len(s.Phones), max(after, 1))
				require.LessOrEqual(t, len(s.Emails), max(after, 1))
				for _, value := range s.Phones {
					require.Equal(t, id, w.phones[value], "a lead has what it claims")
				}
				for _, value := range s.Emails {
					require.Equal(t, id, w.emails[value])
				}
			}
		}
	})
}

// Persons with phones of their own, some of whom give the same email, in any order: it is shared or not, and there are
// as many leads.
func TestDecide_OrderDoesNotMatterForSharing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		after, persons := rapid.IntRange(0, 5).Draw(t, "after"), rapid.IntRange(1, 15).Draw(t, "persons")
		junk := rapid.SliceOfN(rapid.Bool(), persons, persons).Draw(t, "junk")
		order := make([]int, persons)
		for i := range order {
			order[i] = i
		}
		many := 0
		for _, is := range junk {
			if is {
				many++
			}
		}
		for range 2 {
			w := newWorld(after)
			for _, i := range order {
				email := fmt.Sprintf("p%d@example.com", i)
				if junk[i] {
					email = "test@example.com"
				}
				w.arrive(t, fmt.Sprintf("+9198765%05d", i), email)
			}
			merged := many
			if after > 0 {
				merged = min(many, after)
			}
			require.Len(t, w.leads, persons-max(merged-1, 0))
			require.Equal(t, after > 0 && many >= after,
				Shared(claim.Email, w.owner(w.emails, "test@example.com"), after))
			order = rapid.Permutation(slices.Clone(order)).Draw(t, "order")
		}
	})
}

func TestDecide_ContactLimitOnlyWithoutSharing(t *testing.T) {
	t.Parallel()
	for _, after := range []int{0, 1000} {
		w := newWorld(after)
		for i := range MaxContacts {
			w.arrive(t, fmt.Sprintf("+9198765%05d", i), "test@example.com")
		}
		owner := w.owner(w.emails, "test@example.com")
		require.Len(t, owner.Phones, MaxContacts)
		_, err := Decide(Arrival{
			LeadFields: event.LeadFields{Phone: phoneNew, Email: "test@example.com"}, Source: "website",
		}, w.rules, nil, owner, someIDs)
		if after == 0 {
			require.ErrorContains(t, err, tooManyContacts)
		} else {
			require.NoError(t, err)
		}
	}
}
