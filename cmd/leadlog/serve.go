package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/eventstore"
)

type serveCommand struct {
	service.Settings `embed:""`
}

// Run is leadlog serve.
func (s *serveCommand) Run(ctx context.Context, c cli.Output, unknown unknownSettings) error {
	log, err := s.Logger(c.Err)
	if err != nil {
		return err
	}
	unknown.warn(log)
	if err := s.Fill(false); err != nil {
		return err
	}
	checked, err := s.Check(false)
	if err != nil {
		return err
	}
	views, events, private, err := s.Database.Open(ctx, log)
	if err != nil {
		return err
	}
	defer service.StopPrivate(private, log)
	for {
		err := s.once(ctx, checked, views, events, log)
		diverged := errors.Is(err, eventstore.ErrDiverged)
		switch {
		case ctx.Err() != nil && (diverged || errors.Is(err, context.Canceled)):
			return nil // stopped while starting, or before starting again
		case !diverged:
			return err
		}
		// a fresh service has empty caches
		log.Warn("restarting with empty caches, because the log has lost events", "error", err)
	}
}

// once wires the service and runs it until the context ends, or until the log turns out to have lost events that this
// process has seen: then the error is eventstore.ErrDiverged.
func (s *serveCommand) once(ctx context.Context, c service.Config, views, events string, log *slog.Logger) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	app, err := s.Wire(ctx, c, views, events, log)
	if err != nil {
		return err
	}
	defer app.Close()
	go app.WatchLog(ctx, stop)
	err = app.Serve(ctx, func(net.Addr) {})
	if cause := context.Cause(ctx); errors.Is(cause, eventstore.ErrDiverged) {
		return cause
	}
	return err
}

// unknownSettings are environment variables that begin with LEADLOG_ and are not settings: misspelt, or of another
// version.
type unknownSettings []string

// serviceLink matches the variables that Kubernetes sets in every container for a Service named leadlog.
var serviceLink = regexp.MustCompile(`^LEADLOG_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_\w+)?)$`)

func findUnknownSettings(model *kong.Application, environment []string) (names unknownSettings) {
	settings := settingsOf(model)
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "LEADLOG_") && !slices.Contains(settings, name) && !serviceLink.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// settingsOf returns the environment variables that the commands read.
func settingsOf(model *kong.Application) (names []string) {
	_ = kong.Visit(model, func(node kong.Visitable, next kong.Next) error { // fails only when this function does
		if flag, is := node.(*kong.Flag); is {
			names = append(names, flag.Envs...)
		}
		return next(nil)
	})
	return names
}

// warn logs their names, and not their values, which may be secret.
func (u unknownSettings) warn(log *slog.Logger) {
	for _, name := range u {
		log.Warn("the environment has a variable that is not a setting of leadlog", "variable", name)
	}
}
