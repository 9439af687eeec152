package client_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// The examples call a service of this process. They read its address and their credentials from the environment, like a
// caller's program.
func TestMain(m *testing.M) { os.Exit(pgtest.Run(withService{m})) }

type withService struct{ tests *testing.M }

// Run runs the tests while the service runs.
func (w withService) Run() (code int) {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	ready, ended := make(chan string), make(chan error, 1)
	go func() { ended <- serve(ctx, func(addr net.Addr) { ready <- "http://" + addr.String() }) }()
	select {
	case base := <-ready:
		_ = os.Setenv("LEADLOG_URL", base)
		code = w.tests.Run()
		stop()
	case err := <-ended:
		stop()
		ended <- err
	}
	if err := <-ended; err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// serve serves the account acme on a new database, and sets its credentials in the environment.
func serve(ctx context.Context, listening func(net.Addr)) (err error) {
	on, drop, err := database(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	var settings struct {
		service.Settings `embed:""`
	}
	key := base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))
	flags, err := kong.New(&settings)
	if err != nil {
		return err
	}
	if _, err = flags.Parse([]string{
		"--addr=127.0.0.1:0", "--database-url=" + on, "--jwt-secret=" + key, "--claim-key=" + key, "--seal-key=" + key,
		"--tree-key=" + key, "--webhook-allow-private=true", "--rate-limit=0",
	}); err != nil {
		return err
	}
	config, err := settings.Check(false)
	if err != nil {
		return err
	}
	if err := service.Migrate(ctx, on, on); err != nil {
		return err
	}
	app, err := settings.Wire(ctx, config, on, on, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer app.Close()
	caller := command.Caller{Account: "acme", Actor: "system:test", ReadsLeads: true}
	if _, _, err := app.Handlers.ConfigureAccount(ctx, command.ConfigureAccount{
		Caller: caller, AccountID: "acme", Settings: account.Settings{Features: []string{account.FeatureAPI}},
	}); err != nil {
		return err
	}
	issued, err := app.Handlers.CreateToken(ctx, command.CreateToken{
		Caller: caller, Name: "examples", ExpiresInDays: 1,
	})
	if err != nil {
		return err
	}
	jwt, err := settings.Mint("acme", "examples", "", time.Hour)
	if err != nil {
		return err
	}
	_ = os.Setenv("LEADLOG_TOKEN", issued.Value.Reveal())
	_ = os.Setenv("LEADLOG_JWT", jwt)
	return app.Serve(ctx, listening)
}

// database creates a database beside that of pgtest.URLVariable.
func database(ctx context.Context) (_ string, drop func() error, err error) {
	server, err := pgx.ParseConfig(os.Getenv(pgtest.URLVariable))
	if err != nil {
		return "", nil, err
	}
	name := "leadlog_test_client_" + strings.ToLower(rand.Text())
	execute := func(ctx context.Context, statement string) error {
		conn, err := pgx.ConnectConfig(ctx, server)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, statement)
		return err
	}
	address, err := url.Parse(os.Getenv(pgtest.URLVariable))
	if err != nil {
		return "", nil, err
	}
	address.Path = "/" + name
	drop = func() error { return execute(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)") }
	return address.String(), drop, execute(ctx, "CREATE DATABASE "+name+" TEMPLATE template0")
}
