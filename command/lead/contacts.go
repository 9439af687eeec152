package lead

import (
	"maps"
	"slices"
	"time"

	"github.com/leadlog/leadlog/command/contact"
)

// Contact is a phone or email that finds a lead.
type Contact struct {
	Value       string
	FirstSeenAt time.Time
	Current     bool
}

// Contacts returns the phones and emails that find the lead, in the order in which it got them.
func (s *State) Contacts() (phones, emails []Contact) {
	for _, phone := range s.Phones {
		found := Contact{phone, s.firstSeen(phone), phone == contact.FoldPhone(s.Phone)}
		if found.Current {
			found.Value = s.Phone
		}
		phones = append(phones, found)
	}
	for _, email := range s.Emails {
		emails = append(emails, Contact{email, s.firstSeen(email), email == s.Email})
	}
	return phones, emails
}

func (s *State) firstSeen(value string) time.Time {
	if at, later := s.FirstSeen[value]; later {
		return at
	}
	return s.CreatedAt
}

// addContacts adds the folded phone and the email of an arrival, which may be empty or known.
func (s *State) addContacts(at time.Time, phone, email string) {
	phones, emails := len(s.Phones), len(s.Emails)
	s.Phones, s.Emails = with(s.Phones, phone), with(s.Emails, email)
	s.see(at, s.Phones[phones:], s.Emails[emails:])
}

// see sets when new contacts came first. It copies the map, which other states share.
func (s *State) see(at time.Time, phones, emails []string) {
	if at.Equal(s.CreatedAt) || len(phones)+len(emails) == 0 {
		return
	}
	if s.FirstSeen = maps.Clone(s.FirstSeen); s.FirstSeen == nil {
		s.FirstSeen = make(map[string]time.Time)
	}
	for _, value := range slices.Concat(phones, emails) {
		s.FirstSeen[value] = at
	}
}

// unsee forgets when a contact came first.
func (s *State) unsee(value string) {
	if _, later := s.FirstSeen[value]; !later {
		return
	}
	if s.FirstSeen = maps.Clone(s.FirstSeen); len(s.FirstSeen) == 1 {
		s.FirstSeen = nil
		return
	}
	delete(s.FirstSeen, value)
}
