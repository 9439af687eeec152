package verify_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/verify"
)

func TestEveryEventThatDoesNotOpenIsNamedAndWhatElseIsWrongIsFound(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	vault, err := sealed.NewVault(w.Pool, bytes.Repeat([]byte{1}, sealed.KeySize))
	require.NoError(t, err)
	open := func() *sealed.Store { return sealed.Wrap(w.Store, vault, true, slog.New(slog.DiscardHandler)) }
	store := open()
	var streams []string
	for n := range 6 {
		lead := w.NewEvent()
		fact := event.LeadCreated{Name: "N", Phone: fmt.Sprintf("+91%d", n), Status: "new", Source: "api"}
		lead.Type, lead.Data, err = event.Encode(fact)
		require.NoError(t, err)
		lead.Metadata.Account = "acme"
		stream := event.LeadStream(lead.ID.String())
		_, err = store.Append(t.Context(), eventstore.Write{Stream: stream, Expect: eventstore.NoStream, Events: []eventstore.Event{lead}})
		require.NoError(t, err)
		w.Append(t, "acme", event.ClaimPrefix+w.NewID(), event.ClaimTaken{Kind: "phone", Holder: event.LeadID(stream)})
		streams = append(streams, stream)
	}
	runner, err := projection.New(projection.Options{URL: w.URL, Store: store, Projectors: projection.All(), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	stop := projectiontest.Run(t, runner)
	projectiontest.Await(t, runner)
	stop()
	found := func() []string {
		findings, err := verify.Verification{
			URL: w.URL, Pool: w.Pool, Store: open().Forensic(), Most: 3, Progress: func(_, _ eventstore.Position) {},
		}.Run(t.Context())
		require.NoError(t, err)
		return findings
	}
	require.Empty(t, found())

	spoil := func(sql string, streams ...string) {
		_, err := w.Pool.Exec(t.Context(), sql, streams)
		require.NoError(t, err)
	}
	const damage = `UPDATE log.event SET data = set_byte(data, length(data) - 10, CASE get_byte(data, length(data) - 10) WHEN 65 THEN 66 ELSE 65 END)
		 WHERE stream = ANY ($1)`
	_, err = w.Pool.Exec(t.Context(), `ALTER TABLE log.event DISABLE TRIGGER ALL`)
	require.NoError(t, err)
	spoil(damage, streams[0], streams[3])
	spoil(`UPDATE views.lead SET status = 'won' WHERE 'lead-' || lead_id = ANY ($1)`, streams[5])
	says := func(n int) string {
		return fmt.Sprintf("event at position %d of stream %s, revision 0, does not open: it was changed, or moved here from another place", 2*n+1, streams[n])
	}
	findings := found()
	require.Equal(t, []string{says(0), says(3)}, findings[:2])
	require.Contains(t, findings, "view lead, row "+event.LeadID(streams[5])+": is not what the log says")
	require.False(t, anyContains(findings, "cannot be read: its key is not there"), "%q", findings)

	spoil(damage, streams[1], streams[2])
	findings = found()
	require.Equal(t, []string{says(0), says(1), says(2)}, findings[:3], "at most so many of a kind")
	require.NotContains(t, findings, says(3))

	for _, err := range open().Subscribe(t.Context(), 0, eventstore.Filter{}) {
		require.ErrorIs(t, err, sealed.ErrDamaged, "who is to make something of the events gets none of these")
		break
	}
}
