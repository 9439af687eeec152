package service

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/command/worker/courier"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/projection"
)

// openTracing starts tracing as OpenTelemetry's own environment variables configure it. Unless they name an endpoint or
// the exporter otlp, it returns nil, and nothing is traced. OpenTelemetry itself reads the other variables, such as the
// sampler.
func openTracing(ctx context.Context, log *slog.Logger) (*tracing, error) {
	on, err := tracingWanted(os.Getenv)
	if err != nil || !on {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, cli.Usagef("OTEL_EXPORTER_OTLP_*: the exporter does not start; check the endpoint and the " +
			"certificates")
	}
	version, commit := Build()
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "leadlog"), attribute.String("service.version", version+" "+commit),
	), resource.WithTelemetrySDK(), resource.WithFromEnv()) // the last one wins
	if err != nil {
		return nil, cli.Usagef("OTEL_RESOURCE_ATTRIBUTES: must be NAME=VALUE,…")
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("traces were not sent", slog.Any("error", err))
	}))
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	log.Info("requests are traced")
	return &tracing{provider, provider.Tracer("leadlog")}, nil
}

// samplers are the names that OpenTelemetry knows. For any other it would only print a warning, and trace everything.
var samplers = []string{
	"always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off",
	"parentbased_traceidratio",
}

// tracingWanted reports whether OpenTelemetry's variables ask for traces. It refuses an exporter, a protocol or a
// sampler that leadlog does not have.
func tracingWanted(env func(string) string) (bool, error) {
	var c cli.Checker
	var endpoint string
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		given := env(name)
		endpoint += given
		if u, err := url.Parse(given); given != "" &&
			(err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "") {
			c.Refuse(name, given, "an https or http URL") // the exporter would use its default instead
		}
	}
	exporter := env("OTEL_TRACES_EXPORTER")
	if exporter != "" && exporter != "otlp" && exporter != "none" {
		c.Refuse("OTEL_TRACES_EXPORTER", exporter, "otlp or none")
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if protocol := env(name); protocol != "" && protocol != "http/protobuf" {
			c.Refuse(name, protocol, "http/protobuf")
		}
	}
	if sampler := strings.ToLower(strings.TrimSpace(env("OTEL_TRACES_SAMPLER"))); sampler != "" &&
		!slices.Contains(samplers, sampler) {
		c.Refuse("OTEL_TRACES_SAMPLER", sampler, "one of "+strings.Join(samplers, ", "))
	} else if share := env("OTEL_TRACES_SAMPLER_ARG"); share != "" && strings.HasSuffix(sampler, "traceidratio") {
		if ratio, err := strconv.ParseFloat(strings.TrimSpace(share), 64); err != nil || !(ratio >= 0 && ratio <= 1) {
			c.Refuse("OTEL_TRACES_SAMPLER_ARG", share, "a number from 0 to 1")
		}
	}
	on := exporter == "otlp" || exporter == "" && endpoint != ""
	return on && !strings.EqualFold(env("OTEL_SDK_DISABLED"), "true"), c.Err()
}

// tracingGrace is the time in which the last spans may be sent when the service ends.
const tracingGrace = 5 * time.Second

// Close sends the last spans.
func (t *tracing) close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tracingGrace)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // the error handler logs a failure
}

// tracing follows a request through its append into the views and the deliveries. They are joined by the traceparent in
// the metadata of the events, because other processes may project and deliver them. A nil tracing is off.
//
// Spans contain no more than the access log: no personal data and no secrets, and neither the URLs of endpoints nor
// their answers.
type tracing struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// requests, log, batches and attempts return the hooks that trace each of them. Without tracing the hooks do nothing.
func (t *tracing) requests() httpapi.Trace {
	if t == nil {
		return nil
	}
	return t.request
}

func (t *tracing) log(l EventLog) EventLog {
	if t == nil {
		return l
	}
	return tracedLog{l, t.tracer}
}

func (t *tracing) batches() func(projection.Applied) {
	if t == nil {
		return nil
	}
	return t.projected
}

func (t *tracing) attempts() func(context.Context, courier.Attempt) (context.Context, string, func(int, error)) {
	if t == nil {
		return nil
	}
	return t.attempt
}

const traceParentHeader = "traceparent"

// withTraceParent returns a context whose spans belong to the trace of a traceparent.
func withTraceParent(ctx context.Context, traceParent string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceParentHeader: traceParent})
}

func traceParentOf(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceParentHeader]
}

// request starts the span of a request. Those of probes and of Prometheus are not traced.
func (t *tracing) request(r *http.Request) (*http.Request, string, func(httpapi.Traced)) {
	switch path.Base(r.URL.Path) {
	case "healthz", "readyz", "metrics":
		return r, "", func(httpapi.Traced) {}
	}
	ctx, span := t.tracer.Start(withTraceParent(r.Context(), r.Header.Get(traceParentHeader)), "request",
		trace.WithSpanKind(trace.SpanKindServer))
	return r.WithContext(ctx), traceParentOf(ctx), func(done httpapi.Traced) {
		span.SetName(done.Method + " " + done.Route)
		span.SetAttributes(
			attribute.String("http.request.method", done.Method), attribute.String("http.route", done.Route),
			attribute.Int("http.response.status_code", done.Status),
			attribute.String("leadlog.request_id", done.RequestID), attribute.String("leadlog.account", done.Account),
		)
		if done.Status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// tracedLog is a log that adds a span for each append to the trace of its request.
type tracedLog struct {
	EventLog
	tracer trace.Tracer
}

func (l tracedLog) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return l.EventLog.Append(ctx, writes...)
	}
	ctx, span := l.tracer.Start(ctx, "append")
	defer span.End()
	events := 0
	for _, w := range writes {
		events += len(w.Events)
	}
	span.SetAttributes(attribute.Int("leadlog.events", events))
	position, err := l.EventLog.Append(ctx, writes...)
	switch {
	case err == nil:
		span.SetAttributes(attribute.Int64("leadlog.position", int64(position)))
	case eventstore.Conflict(err) != nil:
		span.SetAttributes(attribute.Bool("leadlog.conflict", true))
	default:
		span.SetStatus(codes.Error, "")
	}
	return position, err
}

func (l tracedLog) ReadRange(
	ctx context.Context, r eventstore.Range,
) ([]eventstore.Recorded, eventstore.Position, error) {
	return eventstore.ReadRange(ctx, l.EventLog, r)
}

// tracedAge is how old an event may be for its projection to join its trace. Without it, a replay would add a span to
// every trace there ever was.
const tracedAge = time.Hour

// projected adds a span to each trace that has events in the batch.
func (t *tracing) projected(a projection.Applied) {
	seen := map[string]bool{"": true}
	for _, e := range a.Events {
		parent := e.Metadata.TraceParent
		if seen[parent] || a.Ended.Sub(e.At) > tracedAge {
			continue
		}
		seen[parent] = true
		ctx := withTraceParent(context.Background(), parent)
		if !trace.SpanContextFromContext(ctx).IsSampled() {
			continue
		}
		_, span := t.tracer.Start(ctx, "project "+a.Projector, trace.WithTimestamp(a.Began),
			trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithAttributes(
				attribute.Int64("leadlog.position", int64(e.Position)),
				attribute.Int("leadlog.batch.events", len(a.Events)),
			))
		span.End(trace.WithTimestamp(a.Ended))
	}
}

// attempt starts the span of one attempt of a delivery.
func (t *tracing) attempt(
	ctx context.Context, a courier.Attempt,
) (_ context.Context, traceParent string, end func(status int, err error)) {
	ctx, span := t.tracer.Start(withTraceParent(ctx, a.TraceParent), "deliver "+a.Type,
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(
			attribute.String("leadlog.webhook_id", a.WebhookID), attribute.String("leadlog.delivery_id", a.DeliveryID),
			attribute.Int("leadlog.attempt", a.Number),
		))
	return ctx, traceParentOf(ctx), func(status int, err error) {
		span.SetAttributes(attribute.Int("http.response.status_code", status))
		if err != nil || status < 200 || status > 299 {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}
