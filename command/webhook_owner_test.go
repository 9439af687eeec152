package command_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

func (p process) register(t *testing.T) (id string) {
	t.Helper()
	registered, err := p.RegisterWebhookEndpoint(t.Context(), command.RegisterWebhookEndpoint{
		Caller: owner, Registration: webhook.Registration{URL: "https://hooks.example.com/in"},
	})
	require.NoError(t, err)
	return registered.ID
}

// history returns type and actor of an endpoint's events.
func (p process) history(t *testing.T, id string) (types []string) {
	t.Helper()
	for recorded, err := range p.store.Read(t.Context(), event.WebhookStream(id), 0) {
		require.NoError(t, err)
		require.Equal(t, "acme", recorded.Metadata.Account)
		types = append(types, recorded.Type+" "+recorded.Metadata.Actor)
	}
	return types
}

func TestDisableWebhook_Once(t *testing.T) {
	t.Parallel()
	on := inMemory()
	processes := []process{start(t, on), start(t, on)}
	id := processes[0].register(t)
	for _, err := range concurrently(16, func(i int) error {
		return processes[i%2].DisableWebhookEndpoint(t.Context(), command.DisableWebhookEndpoint{
			WebhookID: id, Reason: webhook.Gone, URL: "https://hooks.example.com/in", SeenFrom: time.Now(),
		})
	}) {
		require.NoError(t, err)
	}
	require.Equal(t, []string{"webhook.registered.v1 user:owner", "webhook.disabled.v1 system:delivery"},
		processes[0].history(t, id))

	test := command.TestWebhookEndpoint{Caller: owner, WebhookID: id}
	_, err := processes[1].TestWebhookEndpoint(t.Context(), test)
	require.ErrorIs(t, err, webhook.ErrDisabled)
	updated, err := processes[1].UpdateWebhookEndpoint(t.Context(), command.UpdateWebhookEndpoint{
		Caller: owner, WebhookID: id, Change: webhook.Change{Enabled: new(true)},
	})
	require.NoError(t, err)
	require.Empty(t, updated.Endpoint.DisabledReason)
	accepted, err := processes[0].TestWebhookEndpoint(t.Context(), test)
	require.NoError(t, err)
	require.NotZero(t, accepted.Position)
}

func TestReplay_TwoProcessesAtOnce(t *testing.T) {
	t.Parallel()
	on := inMemory()
	processes := []process{start(t, on), start(t, on)}
	id := processes[0].register(t)
	for generation := 1; generation <= 3; generation++ {
		accepted := 0
		for _, err := range concurrently(8, func(i int) error {
			_, err := processes[i%2].ReplayWebhookEndpoint(t.Context(), command.ReplayWebhookEndpoint{
				Caller: owner, WebhookID: id, Since: time.Now().Add(-time.Hour),
			})
			return err
		}) {
			if err == nil {
				accepted++
			} else {
				require.ErrorIs(t, err, webhook.ErrReplayRunning)
			}
		}
		require.Equal(t, 1, accepted)
		for _, err := range concurrently(4, func(i int) error {
			return processes[i%2].EndReplay(t.Context(), command.EndReplay{WebhookID: id, Generation: generation})
		}) {
			require.NoError(t, err)
		}
	}
	require.Len(t, processes[0].history(t, id), 1+3*2)
}

func TestRotateSecret_ReplacesCurrent(t *testing.T) {
	t.Parallel()
	p := start(t, inMemory())
	id := p.register(t)
	rotate := command.RotateWebhookSecret{Caller: owner, WebhookID: id}
	rotated, err := p.RotateWebhookSecret(t.Context(), rotate)
	require.NoError(t, err)
	require.Regexp(t, `^whsec_`, rotated.Secret)
	require.Equal(t, rotated.Endpoint.UpdatedAt.Add(webhook.Overlap), rotated.Rotated.PreviousUntil)
	for _, recorded := range p.history(t, id) {
		require.NotContains(t, recorded, rotated.Secret)
	}
	_, err = p.RotateWebhookSecret(t.Context(), command.RotateWebhookSecret{
		Caller: command.Caller{Account: "globex"}, WebhookID: id,
	})
	require.ErrorIs(t, err, webhook.ErrNotFound)
	_, err = p.DeleteWebhookEndpoint(t.Context(), command.DeleteWebhookEndpoint{Caller: owner, WebhookID: id})
	require.NoError(t, err)
	_, err = p.RotateWebhookSecret(t.Context(), rotate)
	require.ErrorIs(t, err, webhook.ErrNotFound)
}

// racingSecrets calls remove before each rotation.
type racingSecrets struct {
	*secrets
	remove func()
}

func (d racingSecrets) Rotate(
	ctx context.Context, id, secret string, until time.Time, revision eventstore.Revision,
) (bool, error) {
	d.remove()
	return d.secrets.Rotate(ctx, id, secret, until, revision)
}

func TestRotateSecret_LostSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.process().register(t)
	w.secrets.values.Delete(id)
	rotate := command.RotateWebhookSecret{Caller: owner, WebhookID: id}
	rotated, err := w.process().RotateWebhookSecret(t.Context(), rotate)
	require.NoError(t, err)
	kept, _ := w.secrets.values.Load(id)
	require.Equal(t, rotated.Secret, kept)

	remove := func() {
		_, err := w.process().DeleteWebhookEndpoint(t.Context(), command.DeleteWebhookEndpoint{
			Caller: owner, WebhookID: id,
		})
		require.NoError(t, err)
	}
	handlers := command.NewHandlers(command.Options{
		Store: w.log, Secrets: racingSecrets{w.secrets, remove}, Log: quiet(),
	})
	_, err = handlers.RotateWebhookSecret(t.Context(), rotate)
	require.ErrorIs(t, err, webhook.ErrNotFound)
	_, exists := w.secrets.values.Load(id)
	require.False(t, exists)
}

// Two facts may have one time: the store orders what they set by their revisions.
func TestWebhookSecrets_HaveRevisions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process()
	id := p.register(t)
	setHeaders := func(enabled *bool) {
		t.Helper()
		_, err := p.UpdateWebhookEndpoint(t.Context(), command.UpdateWebhookEndpoint{
			Caller: owner, WebhookID: id,
			Change: webhook.Change{Headers: map[string]string{"X-Shop": "7"}, Enabled: enabled},
		})
		require.NoError(t, err)
	}
	expect := func(want eventstore.Revision) {
		t.Helper()
		got, _ := w.secrets.revisions.Load(id)
		require.Equal(t, want, got)
		require.Len(t, p.history(t, id), int(want)+1)
	}
	setHeaders(nil)
	expect(1)
	setHeaders(new(false)) // two facts
	expect(3)
	_, err := p.RotateWebhookSecret(t.Context(), command.RotateWebhookSecret{Caller: owner, WebhookID: id})
	require.NoError(t, err)
	expect(4)
}

func TestUpdateWebhook_NoChange(t *testing.T) {
	t.Parallel()
	p := start(t, inMemory())
	id := p.register(t)
	updated, err := p.UpdateWebhookEndpoint(t.Context(), command.UpdateWebhookEndpoint{
		Caller: owner, WebhookID: id,
		Change: webhook.Change{URL: new("https://hooks.example.com/in"), Enabled: new(true)},
	})
	require.NoError(t, err)
	head, err := p.store.Head(t.Context())
	require.NoError(t, err)
	require.Equal(t, head, updated.Position)
	require.Equal(t, "https://hooks.example.com/in", updated.Endpoint.URL)
	require.Len(t, p.history(t, id), 1)
}

// failingSecrets fails to destroy secrets while fails is set.
type failingSecrets struct {
	secrets
	fails bool
}

func (s *failingSecrets) Destroy(ctx context.Context, id string) error {
	if s.fails {
		return errors.New("not now")
	}
	return s.secrets.Destroy(ctx, id)
}

func TestDeleteWebhook_RetriesSecret(t *testing.T) {
	t.Parallel()
	p := start(t, inMemory())
	kept := &failingSecrets{}
	handlers := command.NewHandlers(command.Options{
		Store: p.store, Claims: claim.NewNames(claimKey()), Directory: p.directory, Secrets: kept, Log: quiet(),
	})
	registered, err := handlers.RegisterWebhookEndpoint(t.Context(), command.RegisterWebhookEndpoint{
		Caller: owner, Registration: webhook.Registration{URL: "https://hooks.example.com/in"},
	})
	require.NoError(t, err)
	exists := func() bool { _, ok := kept.values.Load(registered.ID); return ok }
	require.True(t, exists())

	kept.fails = true
	del := command.DeleteWebhookEndpoint{Caller: owner, WebhookID: registered.ID}
	_, err = handlers.DeleteWebhookEndpoint(t.Context(), del)
	require.NoError(t, err)
	require.True(t, exists())
	kept.fails = false
	_, err = handlers.DeleteWebhookEndpoint(t.Context(), command.DeleteWebhookEndpoint{
		Caller: command.Caller{Account: "other"}, WebhookID: registered.ID,
	})
	require.ErrorIs(t, err, webhook.ErrNotFound)
	require.True(t, exists(), "another account destroys nothing")
	_, err = handlers.DeleteWebhookEndpoint(t.Context(), del)
	require.ErrorIs(t, err, webhook.ErrNotFound)
	require.False(t, exists())
}

// A caller with webhooks:write changed an endpoint's URL and retried a delivery of a lead, which arrived there.
func TestRetryDelivery_LeadNeedsLeadsRead(t *testing.T) {
	t.Parallel()
	p := newWorld(t).process()
	id := p.register(t)
	reader, writer := owner, owner
	writer.ReadsLeads = false
	delivery := webhook.DeliveryID(ulid.Make(), ulid.Make(), 0, id, 0)
	for name, c := range map[string]struct {
		caller command.Caller
		of     string
		want   error
	}{
		"a lead, by a reader": {reader, "lead.created", nil},
		"a lead":              {writer, "lead.created", command.ErrLeadsHidden},
		"an erasure":          {writer, "lead.erased", command.ErrLeadsHidden},
		"a token":             {writer, "token.created", nil},
		"a test":              {writer, "webhook.test", nil},
	} {
		_, err := p.RetryDelivery(t.Context(), command.RetryDelivery{
			Caller: c.caller, WebhookID: id, DeliveryID: delivery, Type: c.of,
		})
		require.ErrorIs(t, err, c.want, name)
	}
}

// The URL that a caller sets got the headers of the one before.
func TestUpdateWebhook_NewURLRemovesHeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process()
	id := p.register(t)
	update := func(change webhook.Change) command.WebhookUpdated {
		updated, err := p.UpdateWebhookEndpoint(t.Context(), command.UpdateWebhookEndpoint{
			Caller: owner, WebhookID: id, Change: change,
		})
		require.NoError(t, err)
		return updated
	}
	stored := func() any {
		headers, _ := w.secrets.headers.Load(id)
		return headers
	}
	key := map[string]string{"Authorization": "key"}
	require.Empty(t, update(webhook.Change{Headers: key}).Warnings)
	require.Empty(t, update(webhook.Change{URL: new("https://hooks.example.com/in"), RateLimit: new(3.0)}).Warnings,
		"the same URL")
	require.Equal(t, key, stored())
	moved := update(webhook.Change{URL: new("https://hooks.example.com/other")})
	require.Equal(t, "headers", moved.Warnings[0].Field)
	require.Empty(t, moved.Endpoint.HeaderNames)
	require.Empty(t, stored())
	require.Empty(t, update(webhook.Change{URL: new("https://hooks.example.com/third"), Headers: key}).Warnings)
	require.Equal(t, key, stored())
}
