package lead

import (
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// ErrLastContact means that a lead would be left without any phone or email.
var ErrLastContact = errors.New("the lead's last contact")

// Release decides that a phone or email which the lead has, or ever had, is no longer this person's; the body names one
// of them. If it is the current one, the latest remaining phone or email replaces it.
//
// The error is ErrNotFound, a *JoinedError, field.Errors or ErrLastContact.
func (s State) Release(account string, body map[string]jsontext.Value, rules Rules) (event.LeadReleased, error) {
	if err := s.Present(account); err != nil {
		return event.LeadReleased{}, err
	}
	r := reader{body: body}
	field.Only(&r.wrong, "", body, "phone", "email")
	released := r.contact(rules)
	if r.wrong == nil && released.Phone != "" &&
		!slices.Contains(append(slices.Clip(s.Phones), contact.FoldPhone(s.Phone)), contact.FoldPhone(released.Phone)) {
		r.wrong.Add("phone", notOfThisLead)
	}
	if r.wrong == nil && released.Email != "" &&
		!slices.Contains(append(slices.Clip(s.Emails), s.Email), released.Email) {
		r.wrong.Add("email", notOfThisLead)
	}
	if r.wrong != nil {
		return event.LeadReleased{}, r.wrong
	}
	if len(except(s.Phones, contact.FoldPhone(released.Phone)))+len(except(s.Emails, released.Email)) == 0 {
		return event.LeadReleased{}, ErrLastContact
	}
	s.fillAfter(&released)
	return released, nil
}

const notOfThisLead = "is not one that this lead has or ever had"

// contact reads the one phone or email that a body names.
func (r *reader) contact(rules Rules) (named event.LeadReleased) {
	phone, email := r.phone(rules), r.email(rules)
	switch {
	case r.wrong != nil:
	case phone != "" && email == "":
		named.Field, named.Phone = "phone", phone
	case email != "" && phone == "":
		named.Field, named.Email = "email", email
	default:
		r.wrong.Add("body", "must have either phone or email")
	}
	return named
}

// fillAfter sets what the lead has after the release: its current phone or email, and its name if that was derived from
// the released one.
func (s State) fillAfter(released *event.LeadReleased) {
	left := Arrival{LeadFields: event.LeadFields{Phone: s.Phone, Email: s.Email}}
	switch {
	case released.Phone != "":
		left.Phone = remaining(s.Phones, s.Phone, contact.FoldPhone(s.Phone), contact.FoldPhone(released.Phone))
		released.Current = left.Phone
	default:
		left.Email = remaining(s.Emails, s.Email, s.Email, released.Email)
		released.Current = left.Email
	}
	if left.Phone != s.Phone {
		released.Changed = append(released.Changed, "phone")
	}
	if left.Email != s.Email {
		released.Changed = append(released.Changed, "email")
	}
	if s.NameDerived && contact.FoldPhone(s.Name) == derivedName(Arrival{
		LeadFields: event.LeadFields{Phone: contact.FoldPhone(released.Phone), Email: released.Email},
	}) {
		released.Name = derivedName(left)
		released.Changed = append([]string{"name"}, released.Changed...)
	}
}

// remaining returns the current value after gone is removed from the list. Key is the entry of the current value in the
// list.
func remaining(all []string, current, key, gone string) string {
	if key != gone {
		return current
	}
	if left := except(all, gone); len(left) > 0 {
		return left[len(left)-1]
	}
	return ""
}

func (s *State) release(fact *event.Fact, data *event.LeadReleased) {
	s.unsee(contact.FoldPhone(data.Phone) + data.Email)
	if data.Phone != "" {
		s.Phones, s.Phone = except(s.Phones, contact.FoldPhone(data.Phone)), data.Current
	} else {
		s.Emails, s.Email = except(s.Emails, data.Email), data.Current
	}
	replace(&s.Name, data.Name)
	s.active(fact, fact.At)
}

// except returns a copy of a list without a value; nil if that leaves no value.
func except(list []string, gone string) (left []string) {
	for _, value := range list {
		if value != gone {
			left = append(left, value)
		}
	}
	return left
}
