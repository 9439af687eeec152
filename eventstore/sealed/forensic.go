package sealed

import "github.com/leadlog/leadlog/eventstore"

// Forensic is the same store for who looks for damage. Its subscriptions show each event as it is stored beside what it
// opens to. One that does not open, or that is not sealed though events before it are, they show as damaged and go on, where
// all others end with ErrDamaged, since nothing may be made of such an event.
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
