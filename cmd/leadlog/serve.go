package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/projection/delivery"
)

type serveCommand struct {
	service `embed:""`
}

// Run is leadlog serve.
func (s *serveCommand) Run(ctx context.Context, c console, unknown unknownSettings) error {
	log, err := s.logger(c.err)
	if err != nil {
		return err
	}
	unknown.warn(log)
	if err := s.fill(false); err != nil {
		return err
	}
	checked, err := s.check(false)
	if err != nil {
		return err
	}
	views, events, private, err := s.database.open(ctx, log)
	if err != nil {
		return err
	}
	defer stopPrivate(private, log)
	for {
		err := s.once(ctx, checked, views, events, log)
		diverged := errors.Is(err, eventstore.ErrDiverged)
		switch {
		case ctx.Err() != nil && (diverged || errors.Is(err, context.Canceled)):
			return nil // it was stopped while it began, or was to begin again
		case !diverged:
			return err
		}
		log.Warn("starting again, to remember nothing that the log has lost", "error", err)
	}
}

// once wires the service and runs it until the context ends or its log has lost what it has seen there: then the error is
// eventstore.ErrDiverged.
func (s *serveCommand) once(ctx context.Context, c config, views, events string, log *slog.Logger) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	app, err := s.wire(ctx, c, views, events, log)
	if err != nil {
		return err
	}
	defer app.close()
	go app.watchLog(ctx, stop)
	err = app.serve(ctx, func(net.Addr) {})
	if cause := context.Cause(ctx); errors.Is(cause, eventstore.ErrDiverged) {
		return cause
	}
	return err
}

// watchLog stops the service when its log has lost what it has seen there: tokens that it believes in, events on their way to
// the views, and whatever else it remembers.
func (a *app) watchLog(ctx context.Context, stop context.CancelCauseFunc) {
	if a.appends.store == nil {
		return
	}
	select {
	case <-a.appends.store.Diverged():
		stop(eventstore.ErrDiverged)
	case <-ctx.Done():
	}
}

// divergedTimeout is how long requests may take to finish when the log has lost what was seen on it: those that wait for it are
// answered at once, and whoever sends or reads slowly keeps the others from a service that starts again.
const divergedTimeout = 2 * time.Second

// serve answers requests, keeps the views and sends to webhooks until the context ends. Then it drains, stops accepting,
// finishes what runs and leaves its leases. It calls listening once it accepts.
func (a *app) serve(ctx context.Context, listening func(net.Addr)) error {
	listener, err := net.Listen("tcp", a.config.addr)
	if err != nil {
		return fmt.Errorf("%w (LEADLOG_ADDR is the address to listen on)", err)
	}
	server := httpapi.NewServer(a.config.addr, a.closeWhileDraining(a.handler))
	server.ErrorLog = slog.NewLogLogger(a.log.Handler(), slog.LevelWarn)
	group, ctx := errgroup.WithContext(ctx)
	// What requests depend on goes on while requests are still taken.
	taking, taken := context.WithCancel(context.WithoutCancel(ctx))
	defer taken()
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		defer taken()
		<-ctx.Done()
		patience := divergedTimeout
		if !errors.Is(context.Cause(ctx), eventstore.ErrDiverged) {
			a.drain()
			patience = shutdownTimeout
		}
		a.log.Info("stopping")
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		defer server.Close() // nobody who is still there goes on with what has ended
		return server.Shutdown(stopping)
	})
	background := func(ctx context.Context, works ...func(context.Context)) {
		for _, work := range works {
			group.Go(func() error { work(ctx); return nil })
		}
	}
	background(taking, a.uses.Run, a.store.Run)
	background(ctx, a.runner.Run, a.fanOut.Run, a.courier.Run, a.reseal,
		delivery.Days{Pool: a.pool, Log: a.log}.Run,
		delivery.Replayer{Pool: a.pool, Store: a.store, Log: a.log}.Run,
		expiry{query: a.reader, handlers: a.handlers, log: a.log}.run,
		func(ctx context.Context) { a.secrets.Run(ctx, a.log) })
	a.log.Info("listening", "addr", listener.Addr().String())
	listening(listener.Addr())
	err = group.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
