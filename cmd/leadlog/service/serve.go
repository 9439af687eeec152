package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/command/worker"
	"github.com/leadlog/leadlog/command/worker/resubmit"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/projection/delivery"
)

// WatchLog stops the service when its log has lost events that this process has seen, as after a failover to a standby
// that was behind. The state of the process is then wrong: cached tokens, events that are being applied to views, and
// more.
func (a *App) WatchLog(ctx context.Context, stop context.CancelCauseFunc) {
	if a.appends.store == nil {
		return
	}
	select {
	case <-a.appends.store.Diverged():
		stop(eventstore.ErrDiverged)
	case <-ctx.Done():
	}
}

// divergedTimeout is the time in which requests may finish when the log has diverged. Requests that wait for the log
// are answered at once, and a slow client must not delay the restart for all others.
const divergedTimeout = 2 * time.Second

// Serve answers requests, brings the views forward and sends webhooks until the context ends. Then it drains, stops
// accepting connections, finishes the running requests and releases its leases. It calls listening once it accepts
// connections.
func (a *App) Serve(ctx context.Context, listening func(net.Addr)) error {
	listener, err := net.Listen("tcp", a.config.addr)
	if err != nil {
		return fmt.Errorf("%w (LEADLOG_ADDR is the address to listen on)", err)
	}
	server := httpapi.NewServer(a.config.addr, a.closeWhileDraining(a.handler))
	server.ErrorLog = slog.NewLogLogger(a.log.Handler(), slog.LevelWarn)
	group, ctx := errgroup.WithContext(ctx)
	// Background work that requests depend on continues until the last request has been answered.
	serving, endServing := context.WithCancel(context.WithoutCancel(ctx))
	defer endServing()
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		defer endServing()
		<-ctx.Done()
		timeout := divergedTimeout
		if !errors.Is(context.Cause(ctx), eventstore.ErrDiverged) {
			a.drain()
			timeout = shutdownTimeout
		}
		a.log.Info("stopping")
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		defer server.Close() // ends the requests that did not finish in time
		return server.Shutdown(stopping)
	})
	background := func(ctx context.Context, works ...func(context.Context)) {
		for _, work := range works {
			group.Go(func() error { work(ctx); return nil })
		}
	}
	background(serving, a.uses.Run, a.store.Run)
	background(ctx, a.runner.Run, a.fanOut.Run, a.courier.Run, a.fetcher.Run, a.rewrap, a.logTree.Run,
		delivery.Days{Pool: a.pool, Log: a.log}.Run,
		delivery.FilterWorker{Pool: a.pool, Leases: a.leases, Filters: a.filters, Log: a.log}.Run,
		delivery.Replayer{
			Pool: a.pool, Leases: a.leases, Store: a.store, Log: a.log, Filters: a.filters, End: a.endReplay,
			Budget: a.replayBudget,
		}.Run,
		a.watch.Run,
		resubmit.Worker{
			Queue: a.resubmissions(), Resubmit: resubmit.Commands(a.Directory, a.Handlers, a.log), Log: a.log,
		}.Run,
		a.importWorker().Run,
		worker.Expiry{Query: a.reader, Handlers: a.Handlers, Eraser: a.eraser(), Sweep: a.store.Sweep, Log: a.log}.Run,
		worker.Retention{Query: a.reader, Handlers: a.Handlers, Eraser: a.eraser(), Log: a.log, Now: time.Now}.Run,
		func(ctx context.Context) { a.secrets.Run(ctx, a.log) })
	a.log.Info("listening", "addr", listener.Addr().String())
	listening(listener.Addr())
	err = group.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// drain makes /readyz fail, and returns when the load balancer has had time to notice. Further requests are answered.
// Views and deliveries are not drained, because another process takes them over at once.
func (a *App) drain() {
	a.draining.Store(true)
	if a.config.drain > 0 {
		a.log.Info("draining", "for", a.config.drain.String())
		time.Sleep(a.config.drain)
	}
}

// closeWhileDraining closes each connection with its answer while the service drains. Idle connections stay open until
// the end: a request may be on its way on one of them, and its sender could not know whether it was carried out.
func (a *App) closeWhileDraining(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
