package lead

import "github.com/leadlog/leadlog/eventstore/event"

// erase leaves of a lead whose person is forgotten that it was there, and nothing that it was. It is the same whether the fact
// is the erasure itself, or one before it that is not to be read any more.
func (s *State) erase(fact *event.Fact) {
	gone := State{
		Phase: Erased, ID: event.LeadID(fact.Stream), Account: fact.Metadata.Account, ContactUID: s.ContactUID,
		Revision: s.Revision, CreatedAt: s.CreatedAt, UpdatedAt: fact.At,
	}
	if created, ok := fact.Data.(event.LeadCreated); ok {
		gone.ContactUID, gone.CreatedAt = created.ContactUID, fact.At
	}
	*s = gone
}
