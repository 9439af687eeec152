package secret_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/projection/secret"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var _ command.IntakeSecrets = secret.Intakes{}

const intakeID = "01KAJ8Q6ZJ0000000000000001"

func key(fill byte) []byte { return bytes.Repeat([]byte{fill}, sealbox.KeySize) }

func intakes(t *testing.T, pool *pgxpool.Pool, current []byte, earlier ...[]byte) secret.Intakes {
	t.Helper()
	box, err := sealbox.New(slices.Concat([][]byte{current}, earlier)...)
	require.NoError(t, err)
	return secret.Intakes{Store: secret.New(pool, box)}
}

func database(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return pgtest.Pool(t, pgtest.DatabaseFrom(t, "views", schema.Migrate))
}

func TestIntakes_Sealed(t *testing.T) {
	t.Parallel()
	pool := database(t)
	s := intakes(t, pool, key(1))
	want := intake.Secrets{Secret: "hunter2", AppSecret: "a", VerifyToken: "v", AccessToken: "t", Challenge: "c"}
	require.NoError(t, s.Put(t.Context(), intakeID, "e1", want))
	got, err := s.Get(t.Context(), intakeID, "e1")
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NotContains(t, string(pgtest.Value[[]byte](t, pool, `SELECT sealed FROM secret.intake`)), "hunter2")
	for _, of := range [][2]string{{intakeID, "e2"}, {"other", "e1"}} {
		_, err := s.Get(t.Context(), of[0], of[1])
		require.ErrorIs(t, err, intake.ErrNoSecrets)
	}
	_, err = intakes(t, pool, key(2)).Get(t.Context(), intakeID, "e1")
	require.ErrorIs(t, err, intake.ErrNoSecrets)
	require.ErrorIs(t, err, sealbox.ErrUnknownKey)
	pgtest.Exec(t, pool, `UPDATE secret.intake SET event_id = 'e2'`)
	_, err = s.Get(t.Context(), intakeID, "e2")
	require.ErrorIs(t, err, sealbox.ErrDamaged, "copied to another event")
}

func TestIntakes_Rewrap(t *testing.T) {
	t.Parallel()
	pool := database(t)
	require.NoError(t, intakes(t, pool, key(1)).Put(t.Context(), intakeID, "e1", intake.Secrets{Secret: "one"}))
	require.NoError(t, intakes(t, pool, key(2), key(1)).Put(t.Context(), intakeID, "e2", intake.Secrets{Secret: "two"}))
	require.NoError(t, intakes(t, pool, key(2), key(1)).Rewrap(t.Context()))
	for event, want := range map[string]string{"e1": "one", "e2": "two"} {
		got, err := intakes(t, pool, key(2)).Get(t.Context(), intakeID, event)
		require.NoError(t, err)
		require.Equal(t, want, got.Secret)
	}
	require.ErrorIs(t, intakes(t, pool, key(3)).Rewrap(t.Context()), sealbox.ErrUnknownKey)
	require.EqualValues(t, 2, pgtest.Value[int](t, pool, `SELECT count(*) FROM secret.intake`),
		"what does not open stays")
}

func TestIntakes_DestroysReplaced(t *testing.T) {
	t.Parallel()
	pool := database(t)
	s := intakes(t, pool, key(1))
	left := func() []string {
		return pgtest.Rows[string](t, pool, `SELECT event_id FROM secret.intake ORDER BY ordinal`)
	}
	for _, of := range [][2]string{{intakeID, "e1"}, {"other", "o1"}, {intakeID, "e2"}, {intakeID, "e3"}} {
		require.NoError(t, s.Put(t.Context(), of[0], of[1], intake.Secrets{}))
	}
	require.NoError(t, s.DestroyBefore(t.Context(), intakeID, "e2"))
	require.Equal(t, []string{"o1", "e2", "e3"}, left(), "what was stored later may count already")
	require.NoError(t, s.Drop(t.Context(), intakeID, "e3"))
	require.Equal(t, []string{"o1", "e2"}, left())
	require.NoError(t, s.Destroy(t.Context(), intakeID))
	require.NoError(t, s.Destroy(t.Context(), intakeID))
	require.Equal(t, []string{"o1"}, left())
}

// Processes are killed before they destroy the replaced secrets, and before they append the fact of the stored ones.
func TestIntakes_DestroysLeft(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	s := intakes(t, w.Pool, key(1))
	created := event.IntakeCreated{
		IntakeSettings: event.IntakeSettings{Name: "Survey", Kind: "typeform", Source: "website", Enabled: true},
		Slot:           1,
	}
	id, gone := w.NewID(), w.NewID()
	form := event.IntakeCreated{
		IntakeSettings: event.IntakeSettings{Name: "Form", Kind: "form", Source: "website", Enabled: true}, Slot: 2,
	}
	w.Append(t, "acme", event.IntakeStream(w.NewID()), form)
	challenged := w.NewID()
	form.Challenge, form.Slot = "turnstile", 3
	w.Append(t, "acme", event.IntakeStream(challenged), form)
	w.Append(t, "acme", event.IntakeStream(id), created, event.IntakeRotated{})
	w.Append(t, "acme", event.IntakeStream(gone), created, event.IntakeDeleted{})
	w.Project(t)
	current := pgtest.Value[string](t, w.Pool, `SELECT secret_id FROM views.intake WHERE intake_id = '`+id+`'`)
	broken, err := s.Broken(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]error{id: intake.ErrNoSecrets, challenged: intake.ErrNoSecrets}, broken)
	for _, of := range [][2]string{{gone, "g1"}, {id, "before"}, {id, current}, {id, "not appended yet"}} {
		require.NoError(t, s.Put(t.Context(), of[0], of[1], intake.Secrets{}))
	}
	require.NoError(t, s.DestroyLeft(t.Context()))
	require.Equal(t, []string{current, "not appended yet"},
		pgtest.Rows[string](t, w.Pool, `SELECT event_id FROM secret.intake ORDER BY ordinal`))
	broken, err = s.Broken(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]error{challenged: intake.ErrNoSecrets}, broken)
	broken, err = intakes(t, w.Pool, key(2)).Broken(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, broken[id], sealbox.ErrUnknownKey)
}
