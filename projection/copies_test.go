package projection_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/view"
)

func TestCopiesOfSeveralViewsAreMadeInOneSchemaAtTheSameTime(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	for round := range 5 {
		var replays errgroup.Group
		for _, p := range []projection.Projector{view.SourceDay{}, view.Token{}, view.Account{}} {
			r := w.Replay(p)
			r.Into = fmt.Sprint("copy_", round)
			replays.Go(func() error { return r.Run(t.Context()) })
		}
		require.NoError(t, replays.Wait())
	}
}
