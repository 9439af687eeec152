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

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/projection/delivery"
)

type serveCommand struct {
	service `embed:""`
}

// Run is leadlog serve.
func (s *serveCommand) Run(ctx context.Context, c cli.Output, unknown unknownSettings) error {
	log, err := s.logger(c.Err)
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
			return nil // stopped while starting, or before starting again
		case !diverged:
			return err
		}
		log.Warn("starting again, to remember nothing that the log has lost", "error", err) // a fresh service has empty caches
	}
}

// once wires the service and runs it until the context ends, or until the log turns out to have lost events that this process
// has seen: then the error is eventstore.ErrDiverged.
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

// watchLog stops the service when its log has lost events that this process has seen, as after a failover to a standby that
// was behind. What the process remembers of them is wrong then: cached tokens, events on their way to the views, and more.
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

// divergedTimeout is how long requests may take to finish when the log has diverged. Those that wait for the log are answered
// at once, and a client that sends or reads slowly must not delay the restart that all others wait for.
const divergedTimeout = 2 * time.Second

// serve answers requests, brings the views forward and sends webhooks until the context ends. Then it drains, stops accepting
// connections, finishes the requests that are running and gives up its leases. It calls listening once it accepts connections.
func (a *app) serve(ctx context.Context, listening func(net.Addr)) error {
	listener, err := net.Listen("tcp", a.config.addr)
	if err != nil {
		return fmt.Errorf("%w (LEADLOG_ADDR is the address to listen on)", err)
	}
	server := httpapi.NewServer(a.config.addr, a.closeWhileDraining(a.handler))
	server.ErrorLog = slog.NewLogLogger(a.log.Handler(), slog.LevelWarn)
	group, ctx := errgroup.WithContext(ctx)
	// Background work that requests depend on continues until the last request has been answered.
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
		defer server.Close() // ends the requests that did not finish in time
		return server.Shutdown(stopping)
	})
	background := func(ctx context.Context, works ...func(context.Context)) {
		for _, work := range works {
			group.Go(func() error { work(ctx); return nil })
		}
	}
	background(taking, a.uses.Run, a.store.Run)
	background(ctx, a.runner.Run, a.fanOut.Run, a.courier.Run, a.rewrap,
		delivery.Days{Pool: a.pool, Log: a.log}.Run,
		delivery.Replayer{Pool: a.pool, Store: a.store, Log: a.log, End: a.endReplay, Budget: a.replayBudget}.Run,
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
