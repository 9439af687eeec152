package command_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/webhook"
)

func TestCapture_RemovedStageStaysValid(t *testing.T) {
	t.Parallel()
	p := start(t, database(t))
	p.configure(t, account.Settings{Features: []string{account.FeatureAPI}, Stages: []string{"New", "Sold"}})
	p.captured(t, `{"phone":"9876543210","status":"Sold"}`)
	p.configure(t, account.Settings{Features: []string{account.FeatureAPI}, Stages: []string{"New"}})
	for range 3 {
		captured := p.captured(t, `{"phone":"9876543210","status":"sold","metadata":{"source":"website"}}`)
		require.Equal(t, "Sold", captured.Lead.Status)
		_, err := p.capture(t.Context(), `{"phone":"9876543219","status":"sold"}`)
		require.ErrorAs(t, err, &field.Errors{}, "a new lead cannot have a removed stage")
	}
}

func TestCapture_CustomFieldsTooLarge(t *testing.T) {
	t.Parallel()
	p := start(t, database(t))
	p.provision(t)
	// A Hangul syllable of three code points of three bytes counts as one character: fifty of the longest fields exceed any event.
	syllables := strings.Repeat("\u1112\u1161\u11ab", 2000)
	fields := make([]string, 50)
	for i := range fields {
		fields[i] = `"k` + strings.Repeat("x", i%40) + string(rune('a'+i/40)) + `":"` + syllables + `"`
	}
	_, err := p.capture(t.Context(), `{"phone":"9876543210","customFields":{`+strings.Join(fields, ",")+`}}`)
	var wrong field.Errors
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, "customFields", wrong[0].Field)
	p.captured(t, `{"phone":"9876543210","customFields":{`+strings.Join(fields[:30], ",")+`}}`)
}

func TestCapture_LargestArrival(t *testing.T) {
	t.Parallel()
	p := start(t, database(t))
	p.provision(t)
	syllables := strings.Repeat("\u1112\u1161\u11ab", 2000) // nine bytes per character
	fields := make([]string, 39)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"k%d":"%s"`, i, syllables)
	}
	for _, agent := range []int{1 << 10, 31 << 10} {
		body := fmt.Sprintf(`{"email":"p%d@example.com","name":"%s","customFields":{%s,"last":"%s"},"metadata":{"userAgent":"%s"}}`, agent,
			syllables[:200*9], strings.Join(fields, ","), syllables[:13_500], strings.Repeat("x", agent))
		p.captured(t, body)
	}
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
	p := start(t, database(t))
	kept := &failingSecrets{}
	handlers := command.NewHandlers(command.Options{
		Store: p.store, Claims: claim.NewNames(claimKey()), Directory: p.directory, Secrets: kept, Log: quiet(),
	})
	registered, err := handlers.RegisterWebhookEndpoint(t.Context(), command.RegisterWebhookEndpoint{
		Caller: owner, Registration: webhook.Registration{URL: "https://hooks.example.com/in"},
	})
	require.NoError(t, err)
	exists := func() bool { _, ok := kept.kept.Load(registered.ID); return ok }
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

func TestFixClaimKey_RefusesOtherKey(t *testing.T) {
	t.Parallel()
	url := database(t)
	one, same := start(t, url), start(t, url)
	for _, err := range concurrently(8, func(i int) error { return []process{one, same}[i%2].FixClaimKey(t.Context()) }) {
		require.NoError(t, err)
	}
	other := command.NewHandlers(command.Options{Store: one.store, Claims: claim.NewNames([]byte("another")), Log: quiet()})
	require.ErrorIs(t, other.FixClaimKey(t.Context()), command.ErrOtherClaimKey)
}
