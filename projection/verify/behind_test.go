package verify_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/view"
)

// Events after the position of the views are no difference, at any position: a batch may end within an append.
func TestVerify_ViewsBehind(t *testing.T) {
	t.Parallel()
	type fact struct {
		stream string
		data   event.Data
	}
	for what, happen := range map[string]func(first, second, claim, id string) []fact{
		"a phone more": func(first, _, _, id string) []fact {
			return []fact{
				{event.ClaimPrefix + id, event.ClaimTaken{Kind: "phone", Holder: first}},
				{event.LeadStream(first), event.LeadMerged{
					Source: "website", LeadFields: event.LeadFields{Phone: "+913"},
				}},
			}
		},
		"a phone less": func(_, second, claim, _ string) []fact {
			return []fact{
				{event.LeadStream(second), event.LeadReleased{Field: "phone", Phone: "+912"}},
				{claim, event.ClaimReleased{Kind: "phone", Holder: second}},
			}
		},
		"a phone less, its claim first": func(_, second, claim, _ string) []fact {
			return []fact{
				{claim, event.ClaimReleased{Kind: "phone", Holder: second}},
				{event.LeadStream(second), event.LeadReleased{Field: "phone", Phone: "+912"}},
			}
		},
		"one lead of two": func(first, second, claim, _ string) []fact {
			return []fact{
				{claim, event.ClaimTaken{Kind: "phone", Holder: first}},
				{event.LeadStream(second), event.LeadJoinedInto{Into: first}},
				{event.LeadStream(first), event.LeadJoined{
					From: second, Was: event.LeadSnapshot{Phones: []string{"+912"}},
				}},
			}
		},
		"a lead more": func(_, _, _, id string) []fact {
			return []fact{
				{event.ClaimPrefix + id, event.ClaimTaken{Kind: "phone", Holder: id}},
				{event.LeadStream(id), event.LeadCreated{
					LeadFields: event.LeadFields{Name: "N", Phone: "+913", Status: "new"}, Source: "api",
				}},
			}
		},
		"a lead less": func(_, second, claim, _ string) []fact {
			return []fact{
				{event.LeadStream(second), event.LeadErased{Claims: []string{claim}}},
				{claim, event.ClaimReleased{Kind: "phone", Holder: second}},
			}
		},
	} {
		for seen := range len(happen("", "", "", "")) + 1 {
			t.Run(fmt.Sprint(what, ", of which they have seen ", seen), func(t *testing.T) {
				t.Parallel()
				w, first, second := sound(t, ofLog...)
				claim := storetest.Events(t, w.Store, eventstore.Filter{})[3].Stream
				facts := happen(first, second, claim, w.NewID())
				for i, f := range facts {
					if i == seen {
						project(t, w)
					}
					w.Append(t, "acme", f.stream, f.data)
				}
				if seen == len(facts) {
					project(t, w)
				}
				require.Empty(t, runLog(t, w))
			})
		}
	}
}

func TestVerify_ViewsAtDifferentPositions(t *testing.T) {
	t.Parallel()
	projectors := []projection.Projector{view.Lead{}, view.TokenEvent{}, view.Touch{}}
	w, first, _ := sound(t, projectors...)
	w.Append(t, "acme", event.LeadStream(first), event.LeadMerged{
		Source: "website", LeadFields: event.LeadFields{Name: "M"},
	})
	projectiontest.CatchUp(t, w.Runner(t, view.Touch{}))
	require.Empty(t, run(t, w, projectors...))
}

// PostgreSQL cannot store the NUL of the last event, so views that need its name are stuck before it.
func TestVerify_StuckView(t *testing.T) {
	t.Parallel()
	projectors := []projection.Projector{view.Lead{}, view.TokenEvent{}, view.Account{}}
	w := projectiontest.NewOnPostgres(t)
	first, _ := writeSound(t, w, projectors...)
	position := w.Append(t, "acme", event.LeadStream(first), event.LeadMerged{
		Source: "website", LeadFields: event.LeadFields{Name: "M"},
	})
	pgtest.Exec(t, w.Pool, `ALTER TABLE log.event DISABLE TRIGGER ALL`)
	pgtest.Exec(t, w.Pool,
		`UPDATE log.event SET data = convert_to(replace(convert_from(data, 'UTF8'), '"M"', '"\u0000"'), 'UTF8')
			WHERE position = $1`, position)
	pgtest.Exec(t, w.Pool, `UPDATE views.lead SET status = 'won' WHERE phone = '+911'`)
	found := run(t, w, projectors...)
	stuck := fmt.Sprintf("view lead: the view cannot apply the events after its checkpoint, which is at position %d: ",
		position-1)
	require.True(t, anyContains(found, stuck), "%q", found)
	require.Contains(t, found, "view lead, row "+first+": differs from the log", "its rows are compared nevertheless")
	require.False(t, anyContains(found, "view account"), "%q", found)
}
