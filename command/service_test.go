package command_test

import (
	"context"
	"encoding/base64"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/worker/forget"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// process is one leadlog process on a database: its store, its caches, its handlers.
type process struct {
	*command.Handlers
	store     eventstore.Store
	directory *command.Directory
	eraser    forget.Eraser
}

// eraseLead erases a lead of the owner.
func (p process) eraseLead(ctx context.Context, id string) (forget.LeadErased, error) {
	return p.eraser.EraseLead(ctx, p.Erasure(owner), id)
}

// backend is where the processes of a test store.
type backend struct {
	log eventstore.Store // in memory; nil: in the database
	url string           // of the database with the keys of persons; empty: personal data are not sealed
}

// inMemory returns a backend without a database.
func inMemory() backend { return backend{log: storetest.Memory()} }

// keyDatabase returns a backend whose log is in memory and whose keys of persons are in a database.
func keyDatabase(t *testing.T) backend {
	return backend{log: storetest.Memory(), url: database(t).url}
}

// withNewLog returns a backend with another log, and the same database without keys.
func (b backend) withNewLog(t *testing.T) backend {
	t.Helper()
	deleteAllKeys(t, b)
	return backend{log: storetest.Memory(), url: b.url}
}

// database returns a backend in a database, for tests of concurrent processes.
func database(t *testing.T) backend {
	return backend{url: pgtest.DatabaseFrom(t, "log", postgres.Migrate)}
}

func start(t *testing.T, on backend) process {
	t.Helper()
	return startOn(t, on, func(store eventstore.Store) eventstore.Store { return store })
}

// startOn starts a process on a store that wrap returns.
func startOn(t *testing.T, on backend, wrap func(eventstore.Store) eventstore.Store) process {
	t.Helper()
	log := on.log
	if log == nil {
		store, err := postgres.Open(t.Context(), postgres.Options{URL: on.url, MaxReaders: 8, Log: quiet()})
		require.NoError(t, err)
		t.Cleanup(store.Close)
		log = store
	}
	log = wrap(log)
	if on.url != "" {
		box, err := sealbox.New(claimKey())
		require.NoError(t, err)
		log = sealed.Wrap(log, sealed.NewVault(pgtest.Pool(t, on.url), box), on.log == nil, quiet())
	}
	directory := command.NewDirectory(log, time.Now)
	return process{
		Handlers: command.NewHandlers(command.Options{
			Store: log, Claims: claim.NewNames(claimKey()), Directory: directory,
			Secrets: &secrets{}, Log: quiet(),
		}),
		store: log, directory: directory,
	}
}

func claimKey() []byte {
	key, _ := base64.StdEncoding.DecodeString("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
	return key
}

// secrets is an in-memory store of secrets. Revisions has that of the latest rotation or change of headers.
type secrets struct{ values, headers, revisions sync.Map }

func (s *secrets) Put(_ context.Context, id, secret string) error {
	s.values.Store(id, secret)
	return nil
}

func (s *secrets) Restore(ctx context.Context, id, secret string, _ eventstore.Revision) error {
	return s.Put(ctx, id, secret)
}

func (s *secrets) Rotate(
	_ context.Context, id, secret string, _ time.Time, revision eventstore.Revision,
) (kept bool, err error) {
	s.revisions.Store(id, revision)
	if _, kept = s.values.Load(id); kept {
		s.values.Store(id, secret)
	}
	return kept, nil
}

func (s *secrets) SetHeaders(
	_ context.Context, id, _ string, headers map[string]string, revision eventstore.Revision,
) (bool, error) {
	s.revisions.Store(id, revision)
	_, exists := s.values.Load(id)
	if exists {
		s.headers.Store(id, headers)
	}
	return exists, nil
}

func (s *secrets) Destroy(_ context.Context, id string) error {
	s.values.Delete(id)
	return nil
}

var owner = command.Caller{Account: "acme", Actor: "user:owner", Credential: "jwt:owner", RequestID: "r-1",
	ReadsLeads: true,
	IP:         "203.0.113.7", UserAgent: "a browser"}

// provision enables the API feature of the account acme.
func (p process) provision(t *testing.T) {
	t.Helper()
	p.configure(t, account.Settings{Features: []string{account.FeatureAPI}})
}

func (p process) configure(t *testing.T, settings account.Settings) {
	t.Helper()
	_, _, err := p.ConfigureAccount(t.Context(), command.ConfigureAccount{
		Caller: owner, AccountID: "acme", Settings: settings,
	})
	require.NoError(t, err)
}

// capture captures one body as the owner, by JWT.
func (p process) capture(ctx context.Context, body string) (command.LeadCaptured, error) {
	admission, err := p.directory.Admit(ctx, owner)
	if err != nil {
		return command.LeadCaptured{}, err
	}
	return p.CaptureLead(ctx, command.CaptureLead{Admission: admission, Body: members(body)})
}

// captured captures a body that must be accepted.
func (p process) captured(t *testing.T, body string) command.LeadCaptured {
	t.Helper()
	captured, err := p.capture(t.Context(), body)
	require.NoError(t, err)
	return captured
}

// issue creates an API token.
func (p process) issue(t *testing.T) command.TokenIssued {
	t.Helper()
	issued, err := p.CreateToken(t.Context(), command.CreateToken{Caller: owner, Name: "site", ExpiresInDays: 30})
	require.NoError(t, err)
	return issued
}

// captureByToken captures one body with an API token.
func (p process) captureByToken(ctx context.Context, issued command.TokenIssued, body string) error {
	caller := command.Caller{Account: "acme", Actor: "token:" + issued.ID, Credential: "token:" + issued.ID}
	admission, err := p.admit(ctx, caller, &issued)
	if err == nil {
		_, err = p.CaptureLead(ctx, command.CaptureLead{Admission: admission, Body: members(body)})
	}
	return err
}

// admit admits a caller by the value of a token or, without one, by JWT.
func (p process) admit(ctx context.Context, caller command.Caller, by *command.TokenIssued) (command.Admission, error) {
	admission, err := p.directory.Admit(ctx, caller)
	if err != nil || by == nil {
		return admission, err
	}
	cached, known := p.directory.CachedToken(by.Value)
	if !known {
		if cached, err = p.directory.ConfirmToken(ctx, by.Value); err != nil {
			return command.Admission{}, err
		}
	}
	return admission.ByToken(by.Value, cached), nil
}

func members(body string) map[string]jsontext.Value {
	m, err := lead.Members(jsontext.Value(body))
	if err != nil {
		panic(err)
	}
	return m
}

// concurrently runs n calls that start together, and returns their errors.
func concurrently(n int, call func(i int) error) []error {
	errs := make([]error, n)
	begin := make(chan struct{})
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			<-begin
			errs[i] = call(i)
		})
	}
	close(begin)
	group.Wait()
	return errs
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
