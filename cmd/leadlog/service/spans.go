package service

import (
	"context"
	"net/http"
	"path"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/delivery"
)

// tracing follows a request through its append into the views and the deliveries. They are joined by the traceparent in the
// metadata of the events, because other processes may project and deliver them. A nil tracing is off.
//
// Spans contain no more than the access log: no personal data and no secrets, and neither the URLs of endpoints nor their
// answers.
type tracing struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// requests, log, batches and attempts return the hooks that trace each of them; without tracing, hooks that do nothing.
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

func (t *tracing) attempts() func(context.Context, delivery.Attempt) (context.Context, string, func(int, error)) {
	if t == nil {
		return nil
	}
	return t.attempt
}

const traceParentHeader = "traceparent"

// under returns a context whose spans belong to the trace of a traceparent.
func under(ctx context.Context, traceParent string) context.Context {
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
	ctx, span := t.tracer.Start(under(r.Context(), r.Header.Get(traceParentHeader)), "request", trace.WithSpanKind(trace.SpanKindServer))
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

// tracedAge is how old an event may be for its projection to join its trace. Without it, a replay would add a span to every trace
// there ever was.
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
		ctx := under(context.Background(), parent)
		if !trace.SpanContextFromContext(ctx).IsSampled() {
			continue
		}
		_, span := t.tracer.Start(ctx, "project "+a.Projector, trace.WithTimestamp(a.Began), trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithAttributes(
				attribute.Int64("leadlog.position", int64(e.Position)), attribute.Int("leadlog.batch.events", len(a.Events)),
			))
		span.End(trace.WithTimestamp(a.Ended))
	}
}

// attempt starts the span of one attempt of a delivery.
func (t *tracing) attempt(ctx context.Context, a delivery.Attempt) (_ context.Context, traceParent string, end func(status int, err error)) {
	ctx, span := t.tracer.Start(under(ctx, a.TraceParent), "deliver "+a.Type, trace.WithSpanKind(trace.SpanKindClient),
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
