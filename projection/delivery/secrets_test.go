package delivery_test

import (
	"bytes"
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
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/schema"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var _ command.Secrets = (*delivery.Secrets)(nil)

const (
	webhookID = "01KAJ8Q6ZJ0000000000000001"
	otherID   = "01KAJ8Q6ZJ0000000000000002"
	secret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

func key(fill byte) []byte { return bytes.Repeat([]byte{fill}, sealbox.KeySize) }

func pool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.Pool(t, pgtest.DatabaseFrom(t, "views", schema.Migrate))
	return pool
}

func secrets(t *testing.T, pool *pgxpool.Pool, current []byte, earlier ...[]byte) *delivery.Secrets {
	t.Helper()
	box, err := sealbox.New(slices.Concat([][]byte{current}, earlier)...)
	require.NoError(t, err)
	return delivery.NewSecrets(pool, box)
}

func TestSecrets_Sealed(t *testing.T) {
	t.Parallel()
	pool := pool(t)
	s := secrets(t, pool, key(1))
	require.NoError(t, s.Put(t.Context(), webhookID, secret))

	got, err := s.Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{secret}, got)

	var stored []byte
	require.NoError(t, pool.QueryRow(t.Context(),
		`SELECT string_agg(convert_to(w::text, 'UTF8') || sealed, '') FROM secret.webhook AS w`).Scan(&stored))
	require.Contains(t, string(stored), webhookID)
	for part := range len(secret) - 8 {
		require.NotContains(t, string(stored), secret[part:part+8])
	}
}

func TestSecrets_Damaged(t *testing.T) {
	t.Parallel()
	pool := pool(t)
	s := secrets(t, pool, key(1))
	require.NoError(t, s.Put(t.Context(), webhookID, secret))

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
		require.NotContains(t, err.Error(), secret)
	}
}

func TestSecrets_KeyRotation(t *testing.T) {
	t.Parallel()
	pool := pool(t)
	require.NoError(t, secrets(t, pool, key(1)).Put(t.Context(), webhookID, secret))

	_, err := secrets(t, pool, key(2)).Get(t.Context(), webhookID)
	require.ErrorIs(t, err, sealbox.ErrUnknownKey)

	rotated := secrets(t, pool, key(2), key(1))
	got, err := rotated.Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{secret}, got)

	require.NoError(t, rotated.Put(t.Context(), webhookID, secret), "sealed with the current key")
	got, err = secrets(t, pool, key(2)).Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{secret}, got)
}

const (
	second = "whsec_c2Vjb25kc2Vjb25kc2Vjb25kc2Vjb25k"
	third  = "whsec_dGhpcmR0aGlyZHRoaXJkdGhpcmR0aGly"
)

func rotate(t *testing.T, s *delivery.Secrets, to string, previousUntil time.Time) {
	t.Helper()
	kept, err := s.Rotate(t.Context(), webhookID, to, previousUntil, 1)
	require.NoError(t, err)
	require.True(t, kept)
}

func TestSecrets_ReplacedExpires(t *testing.T) {
	t.Parallel()
	pool := pool(t)
	s := secrets(t, pool, key(1))
	require.NoError(t, s.Put(t.Context(), webhookID, secret))
	rotate(t, s, second, time.Now().Add(time.Hour))
	rotate(t, secrets(t, pool, key(2), key(1)), third, time.Now().Add(2*time.Hour))

	got, err := secrets(t, pool, key(2), key(1)).Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{third, second, secret}, got, "the current one first")

	pgtest.Exec(t, pool, `UPDATE secret.earlier SET until = now() - interval '1 second' WHERE until < now() + interval '90 minutes'`)
	both := secrets(t, pool, key(2), key(1))
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

func TestSecrets_MaxReplaced(t *testing.T) {
	t.Parallel()
	pool := pool(t)
	s := secrets(t, pool, key(1))
	require.NoError(t, s.Put(t.Context(), webhookID, "0"))
	for n := 1; n <= 6; n++ {
		rotate(t, s, fmt.Sprint(n), time.Now().Add(time.Duration(n)*time.Hour))
	}
	got, err := s.Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{"6", "5", "4", "3", "2"}, got)
}

// Two processes may rotate concurrently. Each stores its secret after its event, possibly in the other order, and with a clock of its own.
func TestSecrets_RotationOrder(t *testing.T) {
	t.Parallel()
	pool := pool(t)
	s := secrets(t, pool, key(1))
	require.NoError(t, s.Put(t.Context(), webhookID, secret))
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
	require.ElementsMatch(t, []string{third, second, secret}, got, "what was given to anybody signs for a day")
	require.NoError(t, s.Destroy(t.Context(), webhookID))
	require.NoError(t, s.Restore(t.Context(), webhookID, third, 2))
	require.NoError(t, s.Restore(t.Context(), webhookID, second, 1))
	got, err = s.Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{third}, got)

	// The handlers of two processes rotate on one log.
	w := projectiontest.New(t)
	id := register(t, w, "acme", "https://example.com/", "*")
	kept := secrets(t, w.Pool, key(1))
	require.NoError(t, kept.Put(t.Context(), id, secret))
	var group errgroup.Group
	answers := make([]command.WebhookSecretRotated, 4)
	for i := range answers {
		handlers := command.NewHandlers(command.Options{Store: w.Store, Secrets: kept, Log: slog.New(slog.DiscardHandler)})
		group.Go(func() (err error) {
			answers[i], err = handlers.RotateWebhookSecret(t.Context(), command.RotateWebhookSecret{Caller: command.Caller{Account: "acme"}, WebhookID: id})
			return err
		})
	}
	require.NoError(t, group.Wait())
	latest := slices.MaxFunc(answers, func(a, b command.WebhookSecretRotated) int { return cmp.Compare(a.Position, b.Position) })
	got, err = kept.Get(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, got, 5)
	require.Equal(t, latest.Secret, got[0])
	require.Contains(t, got, secret)
	for _, answer := range answers {
		require.Contains(t, got, answer.Secret)
	}
}

func TestSecrets_RotateDuringDestroy(t *testing.T) {
	t.Parallel()
	pool := pool(t)
	s := secrets(t, pool, key(1))
	for range 20 {
		require.NoError(t, s.Put(t.Context(), webhookID, secret))
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
		require.ErrorIs(t, err, delivery.ErrNoSecret)
		require.Zero(t, earlier(t, pool))
	}
	kept, err := s.Rotate(t.Context(), webhookID, second, time.Now().Add(time.Hour), 1)
	require.NoError(t, err)
	require.False(t, kept, "there is none to replace")
}

func TestSecrets_Destroy(t *testing.T) {
	t.Parallel()
	s := secrets(t, pool(t), key(1))
	require.NoError(t, s.Put(t.Context(), webhookID, secret))
	require.NoError(t, s.Destroy(t.Context(), webhookID))
	_, err := s.Get(t.Context(), webhookID)
	require.ErrorIs(t, err, delivery.ErrNoSecret)
	require.NoError(t, s.Destroy(t.Context(), webhookID), "that there is none is no error")
}

func TestSecrets_DatabaseDown(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none")
	require.NoError(t, err)
	defer pool.Close()
	s := secrets(t, pool, key(1))
	require.ErrorIs(t, s.Put(t.Context(), webhookID, secret), eventstore.ErrUnavailable)
	require.ErrorIs(t, s.Destroy(t.Context(), webhookID), eventstore.ErrUnavailable)
	_, err = s.Get(t.Context(), webhookID)
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	require.NotErrorIs(t, err, delivery.ErrNoSecret)
}

// A process that is killed between the deletion and the destruction leaves an unused secret.
func TestSecrets_DestroyLeft(t *testing.T) {
	t.Parallel()
	w := begun(t)
	s := secrets(t, w.Pool, key(1))
	left, kept := target(t, w, "https://example.com/left"), target(t, w, "https://example.com/kept")
	for _, id := range []string{left, kept} {
		_, err := s.Rotate(t.Context(), id, second, time.Now().Add(time.Hour), 1)
		require.NoError(t, err)
	}
	w.Append(t, "acme", event.WebhookStream(left), event.WebhookDeleted{})
	spread(t, w)
	require.NoError(t, s.DestroyLeft(t.Context()))
	_, err := s.Get(t.Context(), left)
	require.ErrorIs(t, err, delivery.ErrNoSecret)
	require.Equal(t, 1, earlier(t, w.Pool))
	got, err := s.Get(t.Context(), kept)
	require.NoError(t, err)
	require.Equal(t, []string{second, secret}, got)
}

// After a rotation of the sealing key the earlier key is kept until nothing needs it.
func TestSecrets_Rewrap(t *testing.T) {
	t.Parallel()
	pool := pool(t)
	for _, id := range []string{webhookID, otherID} {
		require.NoError(t, secrets(t, pool, key(1)).Put(t.Context(), id, secret))
	}
	for n, replaced := range []string{second, third} {
		kept, err := secrets(t, pool, key(1)).Rotate(t.Context(), otherID, replaced, time.Now().Add(time.Duration(n+1)*time.Hour), 1)
		require.NoError(t, err)
		require.True(t, kept)
	}
	const flip = `UPDATE secret.webhook SET sealed = set_byte(sealed, 0, get_byte(sealed, 0) # 1) WHERE webhook_id = $1`
	pgtest.Exec(t, pool, flip, webhookID)
	rotated := secrets(t, pool, key(2), key(1))
	err := rotated.Rewrap(t.Context())
	require.ErrorIs(t, err, sealbox.ErrDamaged)
	require.ErrorContains(t, err, webhookID)
	got, err := secrets(t, pool, key(2)).Get(t.Context(), otherID)
	require.NoError(t, err, "it needs the earlier key no more")
	require.Equal(t, []string{third, second, secret}, got, "nor do those that were replaced")

	pgtest.Exec(t, pool, flip, webhookID)
	require.NoError(t, rotated.Rewrap(t.Context()))
	got, err = secrets(t, pool, key(2)).Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{secret}, got)
}

// A golden value: later versions must be able to open stored secrets.
func TestSecrets_Golden(t *testing.T) {
	t.Parallel()
	pool := pool(t)
	const id = "01KAHQ5V8M3N6R9T2W4Y7Z0B1C"
	_, err := pool.Exec(t.Context(), `INSERT INTO secret.webhook (webhook_id, key_id, sealed) VALUES ($1, '72cd6e84', decode(
		'5YVvcLsxK1CcmsD3tPpUi0khfxrFpFPRSV7s1neTHpKQJiugkybaCLMmldU2hBm2oQJU+q9IkOTpygv4CY/4Kpx8', 'base64'))`, id)
	require.NoError(t, err)
	kept, err := secrets(t, pool, key(1)).Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []string{secret}, kept)
}

// If the key is lost, an endpoint rotates its secret. Deliveries once still waited for the earlier secret, which cannot be opened.
func TestSecrets_RotationDropsUnreadable(t *testing.T) {
	t.Parallel()
	pool := pool(t)
	before, after := secrets(t, pool, key(1)), secrets(t, pool, key(2))
	rotate := func(s *delivery.Secrets, secret string) {
		kept, err := s.Rotate(t.Context(), webhookID, secret, time.Now().Add(time.Hour), 1)
		require.NoError(t, err)
		require.True(t, kept)
	}
	require.NoError(t, before.Put(t.Context(), webhookID, secret))
	rotate(before, "whsec_second")
	_, err := after.Get(t.Context(), webhookID)
	require.ErrorIs(t, err, sealbox.ErrUnknownKey)
	rotate(after, "whsec_third")
	rotate(after, "whsec_fourth")
	kept, err := after.Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{"whsec_fourth", "whsec_third"}, kept)
}

func TestSecrets_RotationOfOneEndpoint(t *testing.T) {
	t.Parallel()
	s := secrets(t, pool(t), key(1))
	require.NoError(t, s.Put(t.Context(), otherID, "0"))
	for n := 1; n <= 4; n++ {
		_, err := s.Rotate(t.Context(), otherID, fmt.Sprint(n), time.Now().Add(time.Duration(n)*time.Hour), 1)
		require.NoError(t, err)
	}
	kept, err := s.Rotate(t.Context(), webhookID, second, time.Now().Add(time.Minute), 1)
	require.NoError(t, err)
	require.False(t, kept, "it has none, although another has")
	require.NoError(t, s.Put(t.Context(), webhookID, secret))
	rotate(t, s, second, time.Now().Add(time.Minute)) // for which an endpoint has a later one
	got, err := s.Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{second, secret}, got)
	got, err = s.Get(t.Context(), otherID)
	require.NoError(t, err)
	require.Equal(t, []string{"4", "3", "2", "1", "0"}, got)
}
