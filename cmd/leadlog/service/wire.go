// Package service is the service of leadlog, wired by hand: settings, stores, commands, views, deliveries, HTTP,
// metrics and traces.
package service

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/command/worker"
	"github.com/leadlog/leadlog/command/worker/courier"
	"github.com/leadlog/leadlog/command/worker/fetch"
	"github.com/leadlog/leadlog/command/worker/forget"
	"github.com/leadlog/leadlog/command/worker/importer"
	"github.com/leadlog/leadlog/command/worker/resubmit"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/draft"
	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/eventstore/migration"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/httpapi/challenge"
	"github.com/leadlog/leadlog/httpapi/console"
	"github.com/leadlog/leadlog/httpapi/quota"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/projection/secret"
	"github.com/leadlog/leadlog/projection/transparency"
	"github.com/leadlog/leadlog/projection/view"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/logtree"
)

// App is the running service.
type App struct {
	config    Config
	log       *slog.Logger
	store     *SealedLog
	pool      *pgxpool.Pool
	quotas    *quota.Postgres
	leases    *schema.Leases
	tail      *eventstore.Tail   // of the log; all followers in the process share it
	runner    *projection.Runner // of the views
	fanOut    *projection.Runner // of the deliveries
	courier   *courier.Courier
	fetcher   *fetch.Fetcher
	filters   *delivery.Filters
	fetched   *fetchMetrics
	delivered *deliveryMetrics
	appends   *logMetrics
	tracing   *tracing // nil: off
	secrets   *secret.Store
	Directory *command.Directory
	uses      *command.Uses
	Handlers  *command.Handlers
	claims    claim.Names
	leads     *eventstore.Folds[lead.State]
	watch     *worker.IntakeWatch
	logTree   *transparency.Publisher
	reader    *query.Reader
	Codes     *console.Codes // in links that sign in
	handler   http.Handler
	draining  atomic.Bool // shutting down: load balancers should send no more requests
}

// Wire builds the service, from the log upwards. Views and events are the addresses of the views' database and of the
// log.
func (s Settings) Wire(ctx context.Context, c Config, views, events string, log *slog.Logger) (_ *App, err error) {
	a := &App{config: c, log: log}
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	if a.tracing, err = openTracing(ctx, log); err != nil {
		return nil, err
	}
	if err := a.wireLog(ctx, views, events); err != nil {
		return nil, err
	}
	claims := claim.NewNames(c.claimKey)
	if err := a.wireCommands(ctx, claims); err != nil {
		return nil, err
	}
	if err := a.wireViews(views, claims); err != nil {
		return nil, err
	}
	if err := a.wireDeliveries(ctx, views); err != nil {
		return nil, err
	}
	verifier, err := s.JWT.verifier(ctx, log)
	if err != nil {
		return nil, err
	}
	return a, a.wireHTTP(ctx, verifier, bodyBudget(limitMemory(log)))
}

// limitMemory sets the soft memory limit of Go's runtime to nine tenths of the memory of the container or systemd unit,
// or else of the machine, and lets the heap grow to five times what is alive, which takes a fifth off the processor
// time of a capture. GOMEMLIMIT and GOGC, if set, are left alone. It returns the limit in bytes.
func limitMemory(log *slog.Logger) int64 {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	provider := memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)
	if _, err := memlimit.SetGoMemLimitWithOpts(memlimit.WithProvider(provider)); err != nil {
		log.Warn("memory is not limited", "error", err)
	}
	limit := debug.SetMemoryLimit(-1)
	log.Info("memory is limited", "bytes", limit)
	return limit
}

// bodyBudget returns the maximum size of the bodies of all requests together under a memory limit, from 16 to 256 MiB.
// Batches have the same again. It is a small part of the limit, because decoding needs several times the memory of the
// body.
func bodyBudget(limit int64) int64 { return min(max(limit/16, 16<<20), 256<<20) }

// wireLog opens the log and the database of the views. The views must belong to that log, and both schemas must be of
// this program's version.
func (a *App) wireLog(ctx context.Context, views, events string) (err error) {
	if a.pool, err = openPool(ctx, views); err != nil {
		return fmt.Errorf("LEADLOG_DATABASE_URL: %w", err)
	}
	a.quotas = quota.NewPostgres(a.pool)
	a.leases = schema.NewLeases(a.pool.Config().ConnConfig)
	raw, appends, err := openMeasuredLog(ctx, events, a.log)
	if err != nil {
		return err
	}
	a.appends = appends
	if a.store, err = sealLog(ctx, a.tracing.log(raw), events, a.pool, a.config.sealKeys, a.log); err != nil {
		return err
	}
	a.tail = eventstore.NewTail(a.store, projection.Union(append(view.All(), delivery.FanOut{})))
	if err := schema.Current(ctx, a.pool); err != nil {
		return err
	}
	if err := a.store.Vault.Known(ctx); err != nil {
		return err
	}
	// After copy-log has moved the views, further appends to the old log would never be read.
	return projection.CheckLog(ctx, a.pool, a.store)
}

func (a *App) wireCommands(ctx context.Context, claims claim.Names) (err error) {
	a.secrets = secret.New(a.pool, a.store.Box)
	endpoints, intakes := secret.Endpoints{Store: a.secrets}, secret.Intakes{Store: a.secrets}
	a.claims, a.leads = claims, command.NewLeads()
	a.Directory, a.uses = command.NewDirectory(a.store, time.Now), command.NewUses(a.store, time.Now, a.log)
	a.Directory.ServeIntakes(intakes)
	a.Handlers = command.NewHandlers(command.Options{
		Store: a.store, Claims: claims, Directory: a.Directory, Secrets: endpoints, IntakeSecrets: intakes,
		Leads: a.leads, Log: a.log,
		AllowPrivateTargets: a.config.allowPrivateTargets,
	})
	if err := a.Handlers.FixClaimKey(ctx); err != nil {
		return err
	}
	return a.wireLogTree(ctx)
}

// wireLogTree builds the publisher of the tree of the whole log, whose leaves are events in stored form.
func (a *App) wireLogTree(ctx context.Context) error {
	origin, err := a.Handlers.FixOrigin(ctx, a.config.logOrigin)
	if err != nil {
		return err
	}
	signer, err := merkle.NewSigner(origin, a.config.treeKey)
	if err != nil {
		return fmt.Errorf("LEADLOG_TREE_KEY: %w", err)
	}
	a.log.Info("checkpoints are signed here", "publicKey", signer.PublicKey())
	a.logTree = transparency.New(transparency.Options{
		Pool: a.pool, Log: a.store.raw, Tail: a.tail, Signer: signer, Witnesses: a.config.witnesses,
		Quorum: a.config.witnessQuorum,
		Logger: a.log,
	})
	return nil
}

// eraser erases persons in these stores.
func (a *App) eraser() forget.Eraser {
	return forget.Eraser{Keys: a.store, Views: forget.Database{Pool: a.pool}}
}

func (a *App) wireViews(views string, claims claim.Names) (err error) {
	a.runner, err = projection.New(projection.Options{
		URL: views, Store: a.store, Tail: a.tail, Leases: a.leases, Projectors: view.All(), Log: a.log,
		Watch: a.tracing.batches(),
	})
	a.reader = query.New(a.pool, a.store, query.WithTail(a.tail), query.WithLeads(a.leads), query.WithClaims(claims),
		query.WithErasedForm(sealed.AsErased))
	a.watch = &worker.IntakeWatch{Query: a.reader, Handlers: a.Handlers, Store: a.store, Log: a.log, Now: time.Now}
	return err
}

// wireHTTP builds the handler. Budget is the maximum size of the bodies of all requests together; batches have the same
// budget again.
func (a *App) wireHTTP(ctx context.Context, verifier *httpapi.Verifier, budget int64) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		viewMetrics{a.runner, a.fanOut}, useMetrics{a.uses}, a.delivered, a.fetched, a.appends,
		poolMetrics{a.pool, a.appends.store}, buildMetric(), silentMetric(a.watch), failingMetric(a.watch),
		treeMetrics{a.logTree})
	a.Codes = console.NewCodes(time.Now)
	a.handler = httpapi.New(httpapi.Options{
		Commands: a.Handlers, Eraser: a.eraser(), Resubmissions: a.resubmissions(), Imports: a.imports(),
		Directory: a.Directory,
		Query:     a.reader, Uses: a.uses, Tree: a.logTree.Signer,
		LogTree: logtree.Reader{
			Pool: a.pool, Log: a.store.raw, Origin: a.logTree.Origin(), Open: a.store.OpenWithNonce,
		}, JWT: verifier, Log: a.log,
		RateLimit: a.config.rateLimit, RateBurst: a.config.rateBurst, Quotas: a.quotas,
		TrustedProxies: a.config.trustedProxies, CORSOrigins: a.config.corsOrigins, BasePath: a.config.BasePath,
		PreviewFilter: a.previewFilter, Ready: a.ready, Metrics: registry, Trace: a.tracing.requests(),
		Stopping: ctx.Done(), ConsoleKey: a.config.consoleKey, ConsoleCodes: a.Codes,
		ConsoleProvider: a.config.provider, BodyBytes: budget, BatchBytes: budget,
		Challenges: challenge.New(a.config.turnstileURL, a.config.hcaptchaURL, time.Now),
	})
	return nil
}

// openPool prepares connections for the short queries of requests.
func openPool(ctx context.Context, address string) (*pgxpool.Pool, error) {
	return newPool(ctx, address, schema.Bound)
}

// OpenLong opens a pool for commands that people run by hand. Its statements have no timeout.
func OpenLong(ctx context.Context, address string) (*pgxpool.Pool, error) {
	return newPool(ctx, address, schema.Session)
}

func newPool(ctx context.Context, address string, session func(*pgx.ConnConfig)) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	session(config.ConnConfig)
	// without it, a connection to an unreachable server would stay in the pool forever
	config.PingTimeout = connectSeconds * time.Second
	return migration.NewPool(ctx, config)
}

// deliveryInterval is the least time between two batches of the fan-out of webhooks. It is shorter than that of the
// views, because a receiver waits for the event.
const deliveryInterval = 5 * time.Millisecond

// wireDeliveries builds the fan-out and the courier of webhooks. It also fixes the position of the log at which
// deliveries begin, before the first request is answered.
func (a *App) wireDeliveries(ctx context.Context, views string) error {
	if err := delivery.Begin(ctx, a.pool, a.store); err != nil {
		return err
	}
	epoch, err := a.store.Epoch(ctx)
	if err != nil {
		return err
	}
	bodies := delivery.NewBodies()
	a.filters = delivery.NewFilters(a.store, bodies)
	a.fanOut, err = projection.New(projection.Options{
		URL: views, Store: a.store, Tail: a.tail, Leases: a.leases,
		Projectors: []projection.Projector{delivery.FanOut{Epoch: epoch, Bodies: bodies, Filters: a.filters}},
		Schema:     schema.Deliveries, MinInterval: deliveryInterval, Log: a.log, Watch: a.tracing.batches(),
	})
	if err != nil {
		return err
	}
	a.delivered = newDeliveryMetrics()
	watcher := a.delivered.watcher()
	watcher.Begin = a.tracing.attempts()
	a.courier = courier.New(courier.Options{
		Watcher: watcher, Disable: a.Handlers.DisableWebhookEndpoint, Pace: a.paceEndpoint,
		Pool: a.pool, Store: a.store, Secrets: secret.Endpoints{Store: a.secrets}, Log: a.log, Bodies: bodies,
		Grace: shutdownTimeout - 5*time.Second, AllowPrivateTargets: a.config.allowPrivateTargets,
		Schedule: a.config.retrySchedule, Timeout: a.config.webhookTimeout,
	})
	a.delivered.courier = a.courier
	a.fetched = newFetchMetrics()
	a.fetcher = fetch.New(fetch.Options{
		Pool: a.pool, Leases: a.leases, Store: a.store, Secrets: secret.Intakes{Store: a.secrets}.Get,
		Finish: a.Handlers.FinishArrival, Log: a.log, AllowPrivateTargets: a.config.allowPrivateTargets,
		Schedule: a.config.retrySchedule, Timeout: a.config.webhookTimeout,
		Attempted: a.fetched.attempted,
	})
	a.fetched.fetcher = a.fetcher
	return nil
}

func (a *App) endReplay(ctx context.Context, ended delivery.EndedReplay) error {
	return a.Handlers.EndReplay(ctx, command.EndReplay(ended))
}

// resubmissions is the queue of requests to capture arrivals again.
func (a *App) resubmissions() resubmit.Queue { return resubmit.Queue{Pool: a.pool, Store: a.store} }

// imports are the files that people upload in the console.
func (a *App) imports() importer.Runs { return importer.Runs{Pool: a.pool} }

// importWorker imports uploaded files.
func (a *App) importWorker() importer.Worker {
	return importer.Worker{
		Runs: a.imports(), Store: a.store, Handlers: a.Handlers, Directory: a.Directory, Eraser: a.eraser(), Log: a.log,
		Now: time.Now,
		Draft: func() (*command.Handlers, *command.Directory) {
			store := draft.On(a.store)
			directory := command.NewDirectory(store, time.Now)
			return command.NewHandlers(command.Options{
				Store: store, Claims: a.claims, Directory: directory, Log: a.log,
			}), directory
		},
	}
}

// replayShare is how many deliveries of replays an account has for each capture that its limits allow.
const replayShare = 10

// replayBudget takes deliveries of a replay out of the account's bucket for replays, which all processes share.
func (a *App) replayBudget(
	ctx context.Context, account string, wanted int,
) (granted int, again time.Duration, err error) {
	settings, err := a.Directory.ConfirmAccount(ctx, account)
	if err != nil {
		return 0, 0, err
	}
	limit := quota.LimitOf(settings.State.RateLimit, settings.State.RateBurst, a.config.rateLimit,
		a.config.rateBurst).Times(replayShare)
	if limit.Rate == 0 {
		return wanted, 0, nil
	}
	lease, err := a.quotas.Lend(ctx, "delivery "+account, limit, wanted)
	if err != nil {
		return 0, 0, schema.Unavailable(err)
	}
	missing := min(wanted-lease.Granted, max(1, limit.Burst/2)) // half a bucket at a time
	return lease.Granted, time.Duration(float64(missing) / limit.Rate * float64(time.Second)), nil
}

// paceEndpoint takes attempts out of the bucket of an endpoint, which all processes share.
func (a *App) paceEndpoint(ctx context.Context, webhookID string, rate float64, wanted int) (int, error) {
	limit := quota.Limit{Rate: rate, Burst: max(1, int(rate))}
	lease, err := a.quotas.Lend(ctx, "webhook "+webhookID, limit, wanted)
	return lease.Granted, schema.Unavailable(err)
}

// previewFilter applies a filter to events that endpoints get, in turns.
func (a *App) previewFilter(
	ctx context.Context, events []query.FeedEvent, types []string, filter string,
	turn func(context.Context) (end func(), err error),
) (query.FilterPreview, error) {
	sources := make([]delivery.Source, len(events))
	for i, e := range events {
		sources[i] = delivery.Source{
			Stream: e.Stream, Revision: e.Revision, Position: e.Position, Message: webhook.Message{Type: e.Type},
		}
	}
	preview, err := a.filters.Preview(ctx, sources, types, filter, turn)
	return query.FilterPreview(preview), err
}

func (t JWT) verifier(ctx context.Context, log *slog.Logger) (*httpapi.Verifier, error) {
	options := httpapi.VerifierOptions{
		Issuer: t.JWTIssuer, Audience: t.JWTAudience, AccountClaim: t.JWTAccountClaim, AdminScope: t.JWTAdminScope,
		DefaultScope: t.JWTDefaultScope,
	}
	if t.JWTJWKSURL != "" {
		return httpapi.NewJWKS(ctx, t.JWTJWKSURL, options, log)
	}
	return httpapi.NewHS256([]byte(t.JWTSecret), options)
}

// Close closes what Wire has opened.
func (a *App) Close() {
	a.tracing.close()
	if a.store != nil {
		a.store.Close()
	}
	if a.pool != nil {
		a.leases.Close()
		a.pool.Close()
	}
}
