package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/deploy/pgdev"
)

// demoAccount is provisioned by dev.
const demoAccount = "demo"

type devCommand struct {
	service.Settings `embed:""`
}

// Run is leadlog dev.
func (d *devCommand) Run(ctx context.Context, c cli.Output, unknown unknownSettings) error {
	log, err := d.Logger(c.Err)
	if err != nil {
		return err
	}
	unknown.warn(log)
	if err := d.Fill(true); err != nil {
		return err
	}
	checked, err := d.Check(true)
	if err != nil {
		return err
	}
	views, events, private, err := d.Database.Open(ctx, log)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	supervisor := supervisor{dir: d.DataDir, log: log, ended: make(chan struct{})}
	// the database is needed until the service has stopped
	watching, end := context.WithCancel(context.WithoutCancel(ctx))
	go supervisor.watch(watching, stop, private)
	defer supervisor.wait()
	defer end()
	defer stop(nil)
	if err := service.Migrate(ctx, views, events); err != nil {
		return err
	}
	app, err := d.Wire(ctx, checked, views, events, log)
	if err != nil {
		return err
	}
	defer app.Close()
	go app.WatchLog(ctx, stop)
	welcome, err := d.demo(ctx, app)
	if err != nil {
		return err
	}
	welcome.data = "the database of LEADLOG_DATABASE_URL"
	if private != nil {
		welcome.data = private.Dir()
	}
	err = app.Serve(ctx, func(addr net.Addr) { welcome.print(c, reachable(addr)+checked.BasePath) })
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// demo provisions the demo account, unless it exists, and makes sure that it has an API token that works.
func (d *devCommand) demo(ctx context.Context, app *service.App) (welcome, error) {
	caller := command.Caller{Account: demoAccount, Actor: "system:dev", ReadsLeads: true}
	found, err := app.Directory.ConfirmAccount(ctx, demoAccount)
	if err != nil {
		return welcome{}, err
	}
	if !found.State.Provisioned {
		settings := account.Settings{Name: "Demo", Features: []string{account.FeatureAPI}}
		configure := command.ConfigureAccount{Caller: caller, AccountID: demoAccount, Settings: settings}
		if _, _, err := app.Handlers.ConfigureAccount(ctx, configure); err != nil {
			return welcome{}, err
		}
	}
	var w welcome
	if w.apiToken, err = d.demoToken(ctx, app, caller); err != nil {
		return w, err
	}
	if d.JWTJWKSURL == "" {
		if w.jwt, err = d.Mint(demoAccount, "demo", "", 24*time.Hour); err == nil {
			w.code = app.Codes.Issue(w.jwt)
		}
	}
	return w, err
}

// demoToken returns the API token of the last start if it is still valid, or else a new one. It is empty if the account
// has the maximum number of tokens.
func (d *devCommand) demoToken(ctx context.Context, app *service.App, caller command.Caller) (string, error) {
	keys := d.KeyDir()
	kept, err := keys.Get(service.APITokenFile)
	if err != nil {
		return "", err
	}
	if value, err := token.ParseValue(kept); err == nil {
		_, err := app.Directory.ConfirmToken(ctx, value)
		if err == nil {
			return kept, nil
		}
		if !errors.Is(err, command.ErrUnauthorized) {
			return "", err
		}
	}
	issued, err := app.Handlers.CreateToken(ctx, command.CreateToken{
		Caller: caller, Name: "leadlog dev", ExpiresInDays: token.MaxDays,
	})
	if errors.Is(err, token.ErrLimit) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return issued.Value.Reveal(), keys.Put(service.APITokenFile, issued.Value.Reveal())
}

// welcome is the text that dev prints once it is ready.
type welcome struct{ data, apiToken, jwt, code string }

func (w welcome) print(c cli.Output, base string) {
	fmt.Fprintf(c.Out, "\nleadlog is ready at %s for account %s. Ctrl-C stops it; its data are in %s.\n\n",
		base, demoAccount, w.data)
	bearer := w.apiToken
	if w.apiToken == "" {
		bearer = w.jwt
		fmt.Fprintf(c.Out, "API token  none: the account holds %d already, delete one and start again\n",
			token.MaxPerAccount)
	} else {
		fmt.Fprintf(c.Out, "API token  %s\n", w.apiToken)
	}
	if w.jwt != "" {
		fmt.Fprintf(c.Out, "JWT        %s\n           (good for 24 hours; another: %s jwt --account %s)\n",
			w.jwt, os.Args[0], demoAccount)
		fmt.Fprintf(c.Out,
			"Console    %s/console/sign-in?code=%s\n           (signs in once, within 10 minutes; afterwards "+
				"with the JWT)\n", base, w.code)
	}
	fmt.Fprintf(c.Out, "API        %s/docs\n           (every call, with a curl line to try)\n", base)
	fmt.Fprintf(c.Out, "\nCapture a lead:\n\n"+
		"curl -sS %s/api/v1/crm/leads -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' -d '%s'\n\n",
		base, bearer, `{"name":"Asha Rao","phone":"98765 43210","metadata":{"source":"website"}}`)
}

// reachable returns a URL by which a listener can be reached from this machine.
func reachable(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || tcp.IP.IsUnspecified() {
		_, port, _ := net.SplitHostPort(addr.String())
		return "http://127.0.0.1:" + port
	}
	return "http://" + tcp.String()
}

// supervisor restarts the private PostgreSQL when it dies while the service runs, and stops it at the end.
type supervisor struct {
	dir   string
	log   *slog.Logger
	ended chan struct{}
}

// watch owns the private server, nil when there is none, until the context ends. It stops the service when PostgreSQL
// cannot be restarted.
func (s *supervisor) watch(ctx context.Context, stop context.CancelCauseFunc, private *pgdev.Server) {
	defer close(s.ended)
	for private != nil && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-private.Done():
			again, err := s.restart(ctx, private)
			if err != nil {
				stop(fmt.Errorf("private PostgreSQL: %w", err))
				<-ctx.Done()
				break
			}
			private = again
		}
	}
	service.StopPrivate(private, s.log)
}

func (s *supervisor) restart(ctx context.Context, died *pgdev.Server) (*pgdev.Server, error) {
	s.log.Error("the private PostgreSQL ended and is started again")
	again, err := pgdev.Start(ctx, pgdev.Options{Dir: s.dir, Log: s.log})
	if err != nil {
		return nil, err
	}
	if again.URL() != died.URL() {
		service.StopPrivate(again, s.log)
		return nil, errors.New("the server has another address after its restart")
	}
	service.StopPrivate(died, s.log) // no longer counts as a user; the new one keeps PostgreSQL running
	return again, nil
}

// wait returns when watch has ended.
func (s *supervisor) wait() { <-s.ended }
