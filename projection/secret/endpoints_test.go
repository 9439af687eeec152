package secret_test

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/secret"
)

var _ command.Secrets = secret.Endpoints{}

const (
	webhookID = "01KAJ8Q6ZJ0000000000000001"
	otherID   = "01KAJ8Q6ZJ0000000000000002"
	first     = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

func endpoints(t *testing.T, pool *pgxpool.Pool, current []byte, earlier ...[]byte) secret.Endpoints {
	t.Helper()
	box, err := sealbox.New(slices.Concat([][]byte{current}, earlier)...)
	require.NoError(t, err)
	return secret.Endpoints{Store: secret.New(pool, box)}
}

func TestEndpoints_Sealed(t *testing.T) {
	t.Parallel()
	pool := database(t)
	s := endpoints(t, pool, key(1))
	require.NoError(t, s.Put(t.Context(), webhookID, first))

	got, err := s.Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{first}, got)

	var stored []byte
	require.NoError(t, pool.QueryRow(t.Context(),
		`SELECT string_agg(convert_to(w::text, 'UTF8') || sealed, '') FROM secret.webhook AS w`).Scan(&stored))
	require.Contains(t, string(stored), webhookID)
	for part := range len(first) - 8 {
		require.NotContains(t, string(stored), first[part:part+8])
	}
}

func TestEndpoints_Damaged(t *testing.T) {
	t.Parallel()
	pool := database(t)
	s := endpoints(t, pool, key(1))
	require.NoError(t, s.Put(t.Context(), webhookID, first))

	pgtest.Exec(t, pool, `INSERT INTO secret.webhook SELECT $1, revision, key_id, sealed FROM secret.webhook`, otherID)
	_, err := s.Get(t.Context(), otherID)
	require.ErrorIs(t, err, sealbox.ErrDamaged)

	for _, change := range []string{
		`set_byte(sealed, length(sealed) - 1, get_byte(sealed, length(sealed) - 1) # 1)`,
		`substr(sealed, 1, 5)`,
		`''`,
	} {
		pgtest.Exec(t, pool, `UPDATE secret.webhook SET sealed = `+change+` WHERE webhook_id = $1`, webhookID)
		_, err := s.Get(t.Context(), webhookID)
		require.ErrorIs(t, err, sealbox.ErrDamaged)
		require.NotContains(t, err.Error(), first)
	}
}

func TestEndpoints_KeyRotation(t *testing.T) {
	t.Parallel()
	pool := database(t)
	require.NoError(t, endpoints(t, pool, key(1)).Put(t.Context(), webhookID, first))

	_, err := endpoints(t, pool, key(2)).Get(t.Context(), webhookID)
	require.ErrorIs(t, err, sealbox.ErrUnknownKey)

	rotated := endpoints(t, pool, key(2), key(1))
	got, err := rotated.Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{first}, got)

	require.NoError(t, rotated.Put(t.Context(), webhookID, first), "sealed with the current key")
	got, err = endpoints(t, pool, key(2)).Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{first}, got)
}

const (
	second = "whsec_c2Vjb25kc2Vjb25kc2Vjb25kc2Vjb25k"
	third  = "whsec_dGhpcmR0aGlyZHRoaXJkdGhpcmR0aGly"
)

func rotate(t *testing.T, s secret.Endpoints, to string, previousUntil time.Time) {
	t.Helper()
	kept, err := s.Rotate(t.Context(), webhookID, to, previousUntil, 1)
	require.NoError(t, err)
	require.True(t, kept)
}

func TestEndpoints_ReplacedExpires(t *testing.T) {
	t.Parallel()
	pool := database(t)
	s := endpoints(t, pool, key(1))
	require.NoError(t, s.Put(t.Context(), webhookID, first))
	rotate(t, s, second, time.Now().Add(time.Hour))
	rotate(t, endpoints(t, pool, key(2), key(1)), third, time.Now().Add(2*time.Hour))

	got, err := endpoints(t, pool, key(2), key(1)).Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{third, second, first}, got, "the current one first")

	pgtest.Exec(t, pool,
		`UPDATE secret.earlier SET until = now() - interval '1 second' WHERE until < now() + interval '90 minutes'`)
	both := endpoints(t, pool, key(2), key(1))
	got, err = both.Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{third, second}, got, "it signs no more although it is there")
	require.NoError(t, both.DestroyExpired(t.Context()))
	require.Equal(t, 1, earlier(t, pool))
}

func earlier(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM secret.earlier`).Scan(&n))
	return n
}

func TestEndpoints_MaxReplaced(t *testing.T) {
	t.Parallel()
	pool := database(t)
	s := endpoints(t, pool, key(1))
	require.NoError(t, s.Put(t.Context(), webhookID, "0"))
	for n := 1; n <= 6; n++ {
		rotate(t, s, fmt.Sprint(n), time.Now().Add(time.Duration(n)*time.Hour))
	}
	got, err := s.Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{"6", "5", "4", "3", "2"}, got)
}

// Two processes may rotate concurrently. Each stores its secret after its event, possibly in the other order, and with
// a clock of its own.
func TestEndpoints_RotationOrder(t *testing.T) {
	t.Parallel()
	pool := database(t)
	s := endpoints(t, pool, key(1))
	require.NoError(t, s.Put(t.Context(), webhookID, first))
	at := time.Now().Add(webhook.Overlap)
	for _, rotation := range []struct {
		secret   string
		until    time.Time
		revision eventstore.Revision
	}{{third, at, 2}, {second, at.Add(time.Minute), 1}} {
		kept, err := s.Rotate(t.Context(), webhookID, rotation.secret, rotation.until, rotation.revision)
		require.NoError(t, err)
		require.True(t, kept)
	}
	got, err := s.Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, third, got[0])
	require.ElementsMatch(t, []string{third, second, first}, got, "what was given to anybody signs for a day")
	require.NoError(t, s.Destroy(t.Context(), webhookID))
	require.NoError(t, s.Restore(t.Context(), webhookID, third, 2))
	require.NoError(t, s.Restore(t.Context(), webhookID, second, 1))
	got, err = s.Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{third}, got)

	// The handlers of two processes rotate on one log.
	w := projectiontest.New(t)
	id := w.NewID()
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookRegistered{
		WebhookSettings: event.WebhookSettings{URL: "https://example.com/", Events: []string{"*"}},
	})
	kept := endpoints(t, w.Pool, key(1))
	require.NoError(t, kept.Put(t.Context(), id, first))
	var group errgroup.Group
	answers := make([]command.WebhookSecretRotated, 4)
	for i := range answers {
		handlers := command.NewHandlers(command.Options{
			Store: w.Store, Secrets: kept, Log: slog.New(slog.DiscardHandler),
		})
		group.Go(func() (err error) {
			answers[i], err = handlers.RotateWebhookSecret(t.Context(), command.RotateWebhookSecret{
				Caller: command.Caller{Account: "acme"}, WebhookID: id,
			})
			return err
		})
	}
	require.NoError(t, group.Wait())
	latest := slices.MaxFunc(answers, func(a, b command.WebhookSecretRotated) int {
		return cmp.Compare(a.Position, b.Position)
	})
	got, err = kept.Get(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, got, 5)
	require.Equal(t, latest.Secret, got[0])
	require.Contains(t, got, first)
	for _, answer := range answers {
		require.Contains(t, got, answer.Secret)
	}
}

func TestEndpoints_RotateDuringDestroy(t *testing.T) {
	t.Parallel()
	pool := database(t)
	s := endpoints(t, pool, key(1))
	for range 20 {
		require.NoError(t, s.Put(t.Context(), webhookID, first))
		var group errgroup.Group
		for range 3 {
			group.Go(func() error {
				_, err := s.Rotate(t.Context(), webhookID, second, time.Now().Add(time.Hour), 1)
				return err
			})
		}
		group.Go(func() error { return s.Destroy(t.Context(), webhookID) })
		require.NoError(t, group.Wait())
		_, err := s.Get(t.Context(), webhookID)
		require.ErrorIs(t, err, secret.ErrNoSecret)
		require.Zero(t, earlier(t, pool))
	}
	kept, err := s.Rotate(t.Context(), webhookID, second, time.Now().Add(time.Hour), 1)
	require.NoError(t, err)
	require.False(t, kept, "there is none to replace")
}

func TestEndpoints_Destroy(t *testing.T) {
	t.Parallel()
	s := endpoints(t, database(t), key(1))
	require.NoError(t, s.Put(t.Context(), webhookID, first))
	require.NoError(t, s.Destroy(t.Context(), webhookID))
	_, err := s.Get(t.Context(), webhookID)
	require.ErrorIs(t, err, secret.ErrNoSecret)
	require.NoError(t, s.Destroy(t.Context(), webhookID), "that there is none is no error")
}

func TestEndpoints_DatabaseDown(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none")
	require.NoError(t, err)
	defer pool.Close()
	s := endpoints(t, pool, key(1))
	require.ErrorIs(t, s.Put(t.Context(), webhookID, first), eventstore.ErrUnavailable)
	require.ErrorIs(t, s.Destroy(t.Context(), webhookID), eventstore.ErrUnavailable)
	_, err = s.Get(t.Context(), webhookID)
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	require.NotErrorIs(t, err, secret.ErrNoSecret)
}

// A process that is killed between the deletion and the destruction leaves an unused secret.
func TestEndpoints_DestroyLeft(t *testing.T) {
	t.Parallel()
	pool := database(t)
	s := endpoints(t, pool, key(1))
	left, kept := webhookID, otherID
	for _, id := range []string{left, kept} {
		require.NoError(t, s.Put(t.Context(), id, first))
		_, err := s.Rotate(t.Context(), id, second, time.Now().Add(time.Hour), 1)
		require.NoError(t, err)
	}
	pgtest.Exec(t, pool,
		`INSERT INTO delivery.endpoint (webhook_id, account, url, events, filter, ordering, rate_limit, header_names,
			deleted, disabled)
		VALUES ($1, 'acme', 'https://example.com/', '{*}', '', '', 0, '{}', true, false),
		  ($2, 'acme', 'https://example.com/', '{*}', '', '', 0, '{}', false, false)`, left, kept)
	require.NoError(t, s.DestroyLeft(t.Context()))
	_, err := s.Get(t.Context(), left)
	require.ErrorIs(t, err, secret.ErrNoSecret)
	require.Equal(t, 1, earlier(t, pool))
	got, err := s.Get(t.Context(), kept)
	require.NoError(t, err)
	require.Equal(t, []string{second, first}, got)
}

// After a rotation of the sealing key the earlier key is kept until nothing needs it.
func TestEndpoints_Rewrap(t *testing.T) {
	t.Parallel()
	pool := database(t)
	for _, id := range []string{webhookID, otherID} {
		require.NoError(t, endpoints(t, pool, key(1)).Put(t.Context(), id, first))
	}
	for n, replaced := range []string{second, third} {
		kept, err := endpoints(t, pool, key(1)).Rotate(t.Context(), otherID, replaced,
			time.Now().Add(time.Duration(n+1)*time.Hour), 1)
		require.NoError(t, err)
		require.True(t, kept)
	}
	const flip = `UPDATE secret.webhook SET sealed = set_byte(sealed, 0, get_byte(sealed, 0) # 1) WHERE webhook_id = $1`
	pgtest.Exec(t, pool, flip, webhookID)
	rotated := endpoints(t, pool, key(2), key(1))
	err := rotated.Rewrap(t.Context())
	require.ErrorIs(t, err, sealbox.ErrDamaged)
	require.ErrorContains(t, err, webhookID)
	got, err := endpoints(t, pool, key(2)).Get(t.Context(), otherID)
	require.NoError(t, err, "it needs the earlier key no more")
	require.Equal(t, []string{third, second, first}, got, "nor do those that were replaced")

	pgtest.Exec(t, pool, flip, webhookID)
	require.NoError(t, rotated.Rewrap(t.Context()))
	got, err = endpoints(t, pool, key(2)).Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{first}, got)
}

// A golden value: later versions must be able to open stored secrets.
func TestEndpoints_Golden(t *testing.T) {
	t.Parallel()
	pool := database(t)
	const id = "01KAHQ5V8M3N6R9T2W4Y7Z0B1C"
	_, err := pool.Exec(t.Context(),
		`INSERT INTO secret.webhook (webhook_id, key_id, sealed) VALUES ($1, '72cd6e84', decode(
		'5YVvcLsxK1CcmsD3tPpUi0khfxrFpFPRSV7s1neTHpKQJiugkybaCLMmldU2hBm2oQJU+q9IkOTpygv4CY/4Kpx8', 'base64'))`, id)
	require.NoError(t, err)
	kept, err := endpoints(t, pool, key(1)).Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []string{first}, kept)
}

// If the key is lost, an endpoint rotates its secret. Deliveries once still waited for the earlier secret, which cannot
// be opened.
func TestEndpoints_RotationDropsUnreadable(t *testing.T) {
	t.Parallel()
	pool := database(t)
	before, after := endpoints(t, pool, key(1)), endpoints(t, pool, key(2))
	rotate := func(s secret.Endpoints, to string) {
		kept, err := s.Rotate(t.Context(), webhookID, to, time.Now().Add(time.Hour), 1)
		require.NoError(t, err)
		require.True(t, kept)
	}
	require.NoError(t, before.Put(t.Context(), webhookID, first))
	rotate(before, "whsec_second")
	_, err := after.Get(t.Context(), webhookID)
	require.ErrorIs(t, err, sealbox.ErrUnknownKey)
	rotate(after, "whsec_third")
	rotate(after, "whsec_fourth")
	kept, err := after.Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{"whsec_fourth", "whsec_third"}, kept)
}

func TestEndpoints_RotationOfOneEndpoint(t *testing.T) {
	t.Parallel()
	s := endpoints(t, database(t), key(1))
	require.NoError(t, s.Put(t.Context(), otherID, "0"))
	for n := 1; n <= 4; n++ {
		_, err := s.Rotate(t.Context(), otherID, fmt.Sprint(n), time.Now().Add(time.Duration(n)*time.Hour), 1)
		require.NoError(t, err)
	}
	kept, err := s.Rotate(t.Context(), webhookID, second, time.Now().Add(time.Minute), 1)
	require.NoError(t, err)
	require.False(t, kept, "it has none, although another has")
	require.NoError(t, s.Put(t.Context(), webhookID, first))
	rotate(t, s, second, time.Now().Add(time.Minute)) // for which an endpoint has a later one
	got, err := s.Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{second, first}, got)
	got, err = s.Get(t.Context(), otherID)
	require.NoError(t, err)
	require.Equal(t, []string{"4", "3", "2", "1", "0"}, got)
}
