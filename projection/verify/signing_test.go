package verify_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/projection/secret"
)

// fanOut queues deliveries of everything on the log.
func fanOut(t *testing.T, w *projectiontest.World) {
	t.Helper()
	epoch, err := w.Store.Epoch(t.Context())
	require.NoError(t, err)
	runner, err := projection.New(projection.Options{
		URL: w.URL, Store: w.Store, Projectors: []projection.Projector{delivery.FanOut{Epoch: epoch}},
		Schema: schema.Deliveries, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	projectiontest.CatchUp(t, runner)
}

func TestVerify_EndpointWithoutSecret(t *testing.T) {
	t.Parallel()
	w, _, _ := sound(t, ofLog...)
	require.NoError(t, delivery.Begin(t.Context(), w.Pool, w.Store))
	box, err := sealbox.New(bytes.Repeat([]byte{1}, sealbox.KeySize))
	require.NoError(t, err)
	secrets := secret.Endpoints{Store: secret.New(w.Pool, box)}
	register := func() string {
		id := w.NewID()
		w.Append(t, "acme", event.WebhookStream(id), event.WebhookRegistered{
			WebhookSettings: event.WebhookSettings{URL: "https://example.com", Events: []string{"*"}},
		})
		require.NoError(t, secrets.Put(t.Context(), id, "whsec_c2VjcmV0"))
		return id
	}
	id, deleted := register(), register()
	require.NoError(t, secrets.Destroy(t.Context(), deleted))
	project(t, w)
	fanOut(t, w)
	signed := of(w)
	signed.BrokenSecrets = secrets.Broken
	signing := func() []string {
		findings, err := signed.RunLog(t.Context())
		require.NoError(t, err)
		return findings
	}
	says := func(of, why string) []string {
		return []string{"deliveries to endpoint " + of + " cannot be signed: " + why}
	}
	require.Equal(t, says(deleted, secret.ErrNoSecret.Error()), signing())
	signed.BrokenIntakes = func(context.Context) (map[string]error, error) {
		return map[string]error{
			"1": sealbox.ErrDamaged, "2": sealbox.ErrDamaged, "3": sealbox.ErrDamaged, "4": sealbox.ErrDamaged,
		}, nil
	}
	require.Len(t, signing(), signed.Limit+1, "the limit is of each kind")
	require.Contains(t, signing(), says(deleted, secret.ErrNoSecret.Error())[0])
	signed.BrokenIntakes = nil
	w.Append(t, "acme", event.WebhookStream(deleted), event.WebhookDeleted{})
	project(t, w)
	findings, err := signed.Only(ofLog...).Run(t.Context())
	require.NoError(t, err)
	require.Empty(t, findings, "the log knows of the deletion, deliveries not yet")

	spoil := func(sql string) {
		pgtest.Exec(t, w.Pool, sql)
	}
	spoil(`UPDATE secret.webhook SET sealed = set_byte(sealed, 20, get_byte(sealed, 20) # 1)`)
	require.Len(t, signing(), 1)
	require.Contains(t, signing()[0], sealbox.ErrDamaged.Error())
	spoil(`DELETE FROM secret.webhook`)
	require.Equal(t, says(id, secret.ErrNoSecret.Error()), signing())
	require.NoError(t, secrets.Put(t.Context(), id, "whsec_c2VjcmV0"))
	require.Empty(t, signing())
	spoil(
		`INSERT INTO secret.earlier SELECT webhook_id, 'unknown', sealed, now() + interval '1 hour'
			FROM secret.webhook`,
	)
	require.Contains(t, signing()[0], sealbox.ErrUnknownKey.Error())
}
