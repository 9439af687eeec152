package delivery

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

func TestChanges_Defers(t *testing.T) {
	t.Parallel()
	var plain, filtered, inLanes endpoint
	filtered.Filter, inLanes.WebhookSettings = "true", event.WebhookSettings{Ordering: "lead"}
	o := changes{behind: map[string]bool{"earlier": true}, spent: map[string]uint64{}}
	defers := func(account string) []bool {
		return []bool{o.defers(account, plain), o.defers(account, inLanes), o.defers(account, filtered)}
	}
	require.Equal(t, []bool{false, true, true}, defers("earlier"))
	o.spend("a", accountSteps-1)
	require.Equal(t, []bool{false, false, false}, defers("a"))
	o.spend("a", 1)
	require.Equal(t, []bool{false, true, true}, defers("a"))
	o.spend("b", batchSteps-accountSteps-1)
	require.Equal(t, []bool{false, false, false}, defers("c"))
	o.spend("d", 1)
	require.Equal(t, []bool{false, false, true}, defers("c"), "the batch has no steps left")
	require.Equal(t, []bool{false, true, true}, defers("c"), "later events come after the one that was deferred")
}
