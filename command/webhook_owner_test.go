package command_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/webhook"
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

// told lists an endpoint's stream, as type and actor.
func (p process) told(t *testing.T, id string) (types []string) {
	t.Helper()
	for recorded, err := range p.store.Read(t.Context(), event.WebhookStream(id), 0) {
		require.NoError(t, err)
		require.Equal(t, "acme", recorded.Metadata.Account)
		types = append(types, recorded.Type+" "+recorded.Metadata.Actor)
	}
	return types
}

// addresses is a resolver that knows these names.
type addresses map[string][]string

func (a addresses) LookupNetIP(_ context.Context, _, host string) (found []netip.Addr, err error) {
	if a[host] == nil {
		return nil, errors.New("no such host")
	}
	for _, one := range a[host] {
		found = append(found, netip.MustParseAddr(one))
	}
	return found, nil
}

func TestAnEndpointIsDisabledOnceHoweverManySeeThatItIsGone(t *testing.T) {
	t.Parallel()
	url := database(t)
	processes := []process{start(t, url), start(t, url)}
	id := processes[0].register(t)
	for _, err := range atOnce(16, func(i int) error {
		return processes[i%2].DisableWebhookEndpoint(t.Context(), command.DisableWebhookEndpoint{
			WebhookID: id, Reason: webhook.Gone, URL: "https://hooks.example.com/in", SeenFrom: time.Now(),
		})
	}) {
		require.NoError(t, err)
	}
	require.Equal(t, []string{"webhook.registered.v1 user:owner", "webhook.disabled.v1 system:delivery"}, processes[0].told(t, id))

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

func TestAHostThatResolvesToAPrivateAddressIsRefused(t *testing.T) {
	t.Parallel()
	p := start(t, database(t))
	resolver := addresses{
		"public.example.com": {"93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"}, "private.example.com": {"10.0.0.1"},
		"mixed.example.com": {"93.184.215.14", "127.0.0.1"}, "mapped.example.com": {"::ffff:169.254.169.254"},
		"nat64.example.com": {"64:ff9b::7f00:1"}, "xn--bcher-kva.example": {"fd00::1"},
	}
	for _, private := range []bool{false, true} {
		handlers := command.NewHandlers(command.Options{
			Store: p.store, Claims: claim.NewNames(claimKey()), Directory: p.directory, Secrets: &secrets{}, Log: quiet(),
			Resolver: resolver, AllowPrivateTargets: private,
		})
		id := p.register(t)
		for host, refused := range map[string]bool{
			"public.example.com": false, "unknown.example.com": false, "93.184.215.14": false,
			"private.example.com": true, "PRIVATE.example.com.": true, "mixed.example.com": true, "mapped.example.com": true,
			"nat64.example.com": true, "bücher.example": true,
		} {
			_, created := handlers.RegisterWebhookEndpoint(t.Context(), command.RegisterWebhookEndpoint{
				Caller: owner, Registration: webhook.Registration{URL: "https://" + host + "/in"},
			})
			_, changed := handlers.UpdateWebhookEndpoint(t.Context(), command.UpdateWebhookEndpoint{
				Caller: owner, WebhookID: id, Change: webhook.Change{URL: new("https://" + host + "/in")},
			})
			for _, err := range []error{created, changed} {
				if refused && !private {
					require.EqualError(t, err, "validation failed: url "+webhook.ResolvesToPrivate, host)
				} else {
					require.NoError(t, err, host)
				}
			}
		}
	}
}

func TestARotatedSecretTakesThePlaceOfTheOneThatIsThere(t *testing.T) {
	t.Parallel()
	p := start(t, database(t))
	id := p.register(t)
	rotate := command.RotateWebhookSecret{Caller: owner, WebhookID: id}
	rotated, err := p.RotateWebhookSecret(t.Context(), rotate)
	require.NoError(t, err)
	require.Regexp(t, `^whsec_`, rotated.Secret)
	require.Equal(t, rotated.Endpoint.UpdatedAt.Add(webhook.Overlap), rotated.Rotated.PreviousUntil)
	for _, recorded := range p.told(t, id) {
		require.NotContains(t, recorded, rotated.Secret)
	}
	_, err = p.RotateWebhookSecret(t.Context(), command.RotateWebhookSecret{Caller: command.Caller{Account: "globex"}, WebhookID: id})
	require.ErrorIs(t, err, webhook.ErrNotFound)
	_, err = p.DeleteWebhookEndpoint(t.Context(), command.DeleteWebhookEndpoint{Caller: owner, WebhookID: id})
	require.NoError(t, err)
	_, err = p.RotateWebhookSecret(t.Context(), rotate)
	require.ErrorIs(t, err, webhook.ErrNotFound)
}

// deleting are secrets that are destroyed with their endpoint just when a rotation comes to them.
type deleting struct {
	*secrets
	remove func()
}

func (d deleting) Rotate(ctx context.Context, id, secret string, until time.Time) (bool, error) {
	d.remove()
	return d.secrets.Rotate(ctx, id, secret, until)
}

func TestARotationReplacesASecretThatIsLostAndNoneOfADeletedEndpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.endpoints(1)[0].ID
	w.secrets.kept.Delete(id)
	rotate := command.RotateWebhookSecret{Caller: owner, WebhookID: id}
	rotated, err := w.process(nil).RotateWebhookSecret(t.Context(), rotate)
	require.NoError(t, err)
	kept, _ := w.secrets.kept.Load(id)
	require.Equal(t, rotated.Secret, kept)

	meanwhile := func() {
		_, err := w.process(nil).DeleteWebhookEndpoint(t.Context(), command.DeleteWebhookEndpoint{Caller: owner, WebhookID: id})
		require.NoError(t, err)
	}
	late := command.NewHandlers(command.Options{Store: w.log, Secrets: deleting{w.secrets, meanwhile}, Log: quiet()})
	_, err = late.RotateWebhookSecret(t.Context(), rotate)
	require.ErrorIs(t, err, webhook.ErrNotFound)
	_, left := w.secrets.kept.Load(id)
	require.False(t, left)
}

func TestAChangeThatChangesNothingWritesNothing(t *testing.T) {
	t.Parallel()
	p := start(t, database(t))
	id := p.register(t)
	updated, err := p.UpdateWebhookEndpoint(t.Context(), command.UpdateWebhookEndpoint{
		Caller: owner, WebhookID: id, Change: webhook.Change{URL: new("https://hooks.example.com/in"), Enabled: new(true)},
	})
	require.NoError(t, err)
	require.Zero(t, updated.Position)
	require.Equal(t, "https://hooks.example.com/in", updated.Endpoint.URL)
	require.Len(t, p.told(t, id), 1)
}
