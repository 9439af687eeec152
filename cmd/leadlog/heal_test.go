package main

import (
	"encoding/base64"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// killed runs a command on the log of a service, one write after another, and stops it before it writes for the nth time,
// counted from 0, on a stream that begins with this.
func killed(t *testing.T, settings map[string]string, prefix string, n int, ask func(*command.Handlers, *command.Directory) error) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	store, err := postgres.Open(t.Context(), postgres.Options{URL: settings["LEADLOG_DATABASE_URL"], Log: log})
	require.NoError(t, err)
	defer store.Close()
	dead := errors.New("killed")
	ordered := &storetest.Ordered{Store: store, Before: func(step storetest.Step) error {
		if step.Writes && strings.HasPrefix(step.Stream, prefix) {
			n--
		}
		if n < 0 {
			return dead
		}
		return nil
	}}
	key, err := base64.StdEncoding.DecodeString(settings["LEADLOG_CLAIM_KEY"])
	require.NoError(t, err)
	sealing, err := base64.StdEncoding.DecodeString(settings["LEADLOG_SEAL_KEY"])
	require.NoError(t, err)
	pool, err := pgxpool.New(t.Context(), settings["LEADLOG_DATABASE_URL"])
	require.NoError(t, err)
	defer pool.Close()
	vault, err := sealed.NewVault(pool, sealing)
	require.NoError(t, err)
	whole := sealed.Wrap(ordered, vault, true, log)
	directory := command.NewDirectory(whole, time.Now)
	handlers := command.NewHandlers(command.Options{Store: whole, Claims: claim.NewNames(key), Directory: directory, Log: log})
	require.ErrorIs(t, ask(handlers, directory), dead)
}

func TestVerifyNotesWhatKilledProcessesLeftAndHealsIt(t *testing.T) {
	t.Parallel()
	settings, jwt, base := served(t)
	asha := mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"email":"asha@example.com"}`).is(t, 201)
	caller := command.Caller{Account: "acme", Actor: "user:owner", Credential: "jwt:owner"}
	for n, body := range []string{
		`{"phone":"9876543210"}`,
		`{"phone":"9876543211","email":"asha@example.com","metadata":{"source":"website"}}`, // abandons a lead, then merges
	} {
		killed(t, settings, "lead-", n, func(h *command.Handlers, d *command.Directory) error {
			admission, err := d.Admit(t.Context(), caller)
			require.NoError(t, err)
			members, err := lead.Members(jsontext.Value(body))
			require.NoError(t, err)
			_, err = h.CaptureLead(t.Context(), command.CaptureLead{Admission: admission, Body: members, IdempotencyKey: body})
			return err
		})
	}
	killed(t, settings, "token-", 0, func(h *command.Handlers, _ *command.Directory) error {
		_, err := h.CreateToken(t.Context(), command.CreateToken{Caller: caller, Name: "CI", ExpiresInDays: 3})
		return err
	})
	twin := mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"9876543219"}`)
	for n, stream := range []string{"lead-", "claim-"} { // is not there yet where it departed into; then it is, and its claim not moved
		killed(t, settings, stream, []int{2, 0}[n], func(h *command.Handlers, _ *command.Directory) error {
			members, err := lead.Members(jsontext.Value(`{"from":"` + twin.data()["leadId"].(string) + `"}`))
			require.NoError(t, err)
			_, err = h.JoinLeads(t.Context(), command.JoinLeads{Caller: caller, LeadID: asha.data()["leadId"].(string), Body: members})
			return err
		})
	}
	latest := mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"email":"ravi@example.com"}`)
	mustCall(t, "GET", base+"/api/v1/crm/leads?minPosition="+latest.header.Get("X-Log-Position"), jwt, "")

	noted := launch(t, settings, "verify").ends(t, 0)
	require.Regexp(t, `note: claim-\w+: the phone is claimed for lead-\w+, which is not there`, noted.out.String())
	require.Regexp(t, `note: lead-\w+ has 1 values of kind phone, and claims on 2: claim-`, noted.out.String())
	require.Regexp(t, `note: claim-\w+: the token-slot is claimed for token-`, noted.out.String())
	require.Regexp(t, `note: claim-\w+: the idempotency key is bound to lead-`, noted.out.String())
	require.Contains(t, noted.out.String(), "is finished by leadlog verify --heal")

	stranger := maps.Clone(settings)
	stranger["LEADLOG_CLAIM_KEY"] = base64.StdEncoding.EncodeToString([]byte("another key of thirty-two bytes!"))
	refused := launch(t, stranger, "verify", "--heal").ends(t, 1)
	require.Contains(t, refused.err.String(), "not the claim key")
	require.NotContains(t, refused.out.String(), "healed")
	stranger["LEADLOG_CLAIM_KEY"] = ""
	launch(t, stranger, "verify", "--heal").ends(t, 2)

	healed := launch(t, settings, "verify", "--heal").ends(t, 0)
	require.Regexp(t, `healed: claim-\w+: released the phone claimed for lead-\w+, which (was never born|was abandoned)`, healed.out.String())
	require.Regexp(t, `healed: claim-\w+: released the phone claimed for lead-\w+, which does not have it`, healed.out.String())
	require.Regexp(t, `healed: claim-\w+: released the token-slot claimed for token-\w+, which was never born`, healed.out.String())
	require.Regexp(t, `healed: claim-\w+: moved the phone claimed for lead-\w+ to lead-\w+, which it was joined into`, healed.out.String())
	require.NotContains(t, healed.out.String(), "9876543")

	latest = mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"9876543211"}`)
	require.Equal(t, 201, latest.status, "a phone that nobody has is a new lead's")
	mustCall(t, "GET", base+"/api/v1/crm/leads?minPosition="+latest.header.Get("X-Log-Position"), jwt, "")
	clean := launch(t, settings, "verify").ends(t, 0)
	require.Equal(t, "the log and the views agree\n", clean.out.String())
}
