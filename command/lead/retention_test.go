package lead

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

func TestState_ActiveAt(t *testing.T) {
	t.Parallel()
	hour := func(n int) time.Time { return someDay.Add(time.Duration(n) * time.Hour) }
	received := func(at time.Time) event.ArrivalRef { return event.ArrivalRef{ReceivedAt: at} }
	for name, c := range map[string]struct {
		facts []event.Data // one an hour, from hour 0
		want  time.Time
	}{
		"created":                   {[]event.Data{event.LeadCreated{}}, hour(0)},
		"created by an old arrival": {[]event.Data{event.LeadCreated{ArrivalRef: received(hour(-9))}}, hour(-9)},
		"merged":                    {[]event.Data{event.LeadCreated{}, event.LeadMerged{}}, hour(1)},
		"an older arrival merged": {
			[]event.Data{event.LeadCreated{}, event.LeadMerged{ArrivalRef: received(hour(-9))}}, hour(0),
		},
		"two old arrivals": {
			[]event.Data{
				event.LeadCreated{ArrivalRef: received(hour(-9))}, event.LeadMerged{ArrivalRef: received(hour(-5))},
			}, hour(-5),
		},
		"a change": {
			[]event.Data{event.LeadCreated{ArrivalRef: received(hour(-9))}, event.LeadUpdated{}}, hour(1),
		},
		"an arrival after a change": {
			[]event.Data{event.LeadCreated{}, event.LeadUpdated{}, event.LeadMerged{ArrivalRef: received(hour(-9))}},
			hour(1),
		},
	} {
		var s State
		for i, fact := range c.facts {
			s = Evolve(s, leadFact(idNew, hour(i), fact))
		}
		require.Equal(t, c.want, s.ActiveAt(), name)
		require.Equal(t, hour(len(c.facts)-1), s.UpdatedAt, name)
	}
}

func TestRetention_Due(t *testing.T) {
	t.Parallel()
	inactive := State{Phase: Live, LeadFields: event.LeadFields{Status: "New"}, UpdatedAt: someDay}
	by := Retention{Before: someDay.Add(time.Millisecond), Exempt: []string{"won", "KEPT"}}
	require.True(t, by.Due(inactive))
	require.False(t, Retention{Before: someDay}.Due(inactive))
	for name, change := range map[string]func(*State){
		"a stage that is kept": func(s *State) { s.Status = "Kept" },
		"joined":               func(s *State) { s.Phase = Joined },
		"erased":               func(s *State) { s.Phase = Erased },
		"active since":         func(s *State) { s.UpdatedAt = s.UpdatedAt.Add(time.Millisecond) },
	} {
		s := inactive
		change(&s)
		require.False(t, by.Due(s), name)
	}
}
