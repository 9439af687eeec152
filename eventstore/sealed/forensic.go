package sealed

import "github.com/leadlog/leadlog/eventstore"

// Forensic is the same store for who looks for damage: it shows an event that does not open, or whose key does not, as
// damaged and erased. Others get ErrDamaged and nothing behind it, since nothing may be made of such an event. Its
// subscriptions show each event as it is stored too, and as damaged one that is not sealed though events before it are.
func (s *Store) Forensic() *Store {
	forensic := *s
	forensic.forensic = true
	return &forensic
}

// forensics is what a subscription that looks for damage has seen.
type forensics struct{ sealed bool } // any event

// note takes down events before they are opened.
func (f *forensics) note(items []eventstore.Item) {
	for _, item := range items {
		r := item.Event
		if r == nil {
			continue
		}
		stored := r.Event
		r.Stored = &stored
		if !About(r.Stream) || bare(r.Type) {
			continue
		}
		_, _, sealed := openEnvelope(r.Data, nil)
		r.Damaged = f.sealed && !sealed
		f.sealed = f.sealed || sealed
	}
}
