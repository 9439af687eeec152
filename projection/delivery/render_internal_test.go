package delivery

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// A body is the same bytes whether its stream was read whole, or read on from what it had come to.
func TestBody_CachedFold(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	w.WriteHistory(t, 7, 600)
	remembers := subjects
	remembers.Long = 1
	remembering := eventstore.NewFolds(remembers)
	head, err := w.Store.Head(t.Context())
	require.NoError(t, err)
	compared := 0
	for item, err := range w.Store.Subscribe(t.Context(), 0, eventstore.Filter{StreamPrefixes: []string{event.LeadPrefix}}) {
		require.NoError(t, err)
		if e := item.Event; e != nil {
			kind, _ := strings.CutSuffix(e.Type, ".v1")
			r := row{kind: kind, stream: e.Stream, revision: int64(e.Revision), position: int64(e.Position), renderer: rendererVersion}
			whole, err := render(t.Context(), w.Store, eventstore.NewFolds(subjects), r)
			require.NoError(t, err)
			again, err := render(t.Context(), w.Store, remembering, r)
			require.NoError(t, err)
			require.Equal(t, string(whole.body), string(again.body))
			if r.revision > 0 {
				compared++
			}
		}
		if item.Position >= head {
			break
		}
	}
	require.Greater(t, compared, 100)
}
