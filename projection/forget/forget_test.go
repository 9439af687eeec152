package forget_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/forget"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestAwait_LeadSearch(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	id := w.NewID()
	w.Append(t, "acme", event.LeadStream(id), event.LeadCreated{Name: "Asha", Status: "new", Source: "api"})
	w.Project(t)
	erased := w.Append(t, "acme", event.LeadStream(id), event.LeadErased{})
	var others []projection.Projector
	for _, p := range projection.All() {
		if p != projection.Projector(projection.LeadSearch{}) {
			others = append(others, p)
		}
	}
	projectiontest.CatchUp(t, w.Runner(t, others...))
	err := forget.Forgetter{Pool: w.Pool, Patience: 100 * time.Millisecond}.Await(t.Context(), erased)
	require.ErrorIs(t, err, forget.ErrBehind)
	projectiontest.CatchUp(t, w.Runner(t, projection.LeadSearch{}))
	require.NoError(t, forget.Forgetter{Pool: w.Pool, Patience: projectiontest.Soon}.Await(t.Context(), erased))
}
