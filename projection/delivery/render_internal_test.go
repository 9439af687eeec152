package delivery

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
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

func TestBody_Intake(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	id := w.NewID()
	settings := event.IntakeSettings{Name: "Site", Kind: "form", Source: "website", Enabled: true, ExpectEvery: "1h"}
	w.Append(t, "acme", event.IntakeStream(id), event.IntakeCreated{IntakeSettings: settings, Slot: 1},
		event.IntakeSilent{Since: projectiontest.Start.Add(time.Hour)}, event.IntakeResumed{ArrivedAt: projectiontest.Start.Add(3 * time.Hour)})
	for revision, c := range map[int64]struct{ kind, state, arrived string }{
		1: {"intake.silent", "silent", written(projectiontest.Start.Add(time.Hour))},
		2: {"intake.resumed", "active", written(projectiontest.Start.Add(3 * time.Hour))},
	} {
		r := row{kind: c.kind, stream: event.IntakeStream(id), revision: revision, position: revision + 1, renderer: rendererVersion}
		body, err := render(t.Context(), w.Store, eventstore.NewFolds(subjects), r)
		require.NoError(t, err)
		var sent struct {
			Type string
			Data map[string]any
		}
		require.NoError(t, json.Unmarshal(body.body, &sent, json.MatchCaseInsensitiveNames(true)))
		require.Equal(t, c.kind, sent.Type)
		require.Equal(t, id, sent.Data["intakeId"])
		require.Equal(t, "/in/"+id, sent.Data["url"])
		require.Equal(t, c.state, sent.Data["state"])
		require.Equal(t, c.arrived, sent.Data["lastArrivalAt"])
		require.NotContains(t, sent.Data, "secret")
	}
}
