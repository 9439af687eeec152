package service

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
)

// openTracing sends spans to where OpenTelemetry's own environment variables say. Unless they name an endpoint or the exporter
// otlp, it returns nil, and nothing is traced. Everything else, such as the sampler, is read from them by OpenTelemetry itself.
func openTracing(ctx context.Context, log *slog.Logger) (*tracing, error) {
	on, err := tracingWanted(os.Getenv)
	if err != nil || !on {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, cli.Usagef("OTEL_EXPORTER_OTLP_*: the exporter does not start; look at the endpoint and the certificates")
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
	"always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio",
}

// tracingWanted reports whether OpenTelemetry's variables ask for traces. It refuses an exporter, a protocol or a sampler that
// leadlog does not have.
func tracingWanted(env func(string) string) (bool, error) {
	var c cli.Checker
	var endpoint string
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		given := env(name)
		endpoint += given
		if u, err := url.Parse(given); given != "" && (err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "") {
			c.Refuse(name, given, "an https or http URL") // the exporter would take its default instead
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
	if sampler := strings.ToLower(strings.TrimSpace(env("OTEL_TRACES_SAMPLER"))); sampler != "" && !slices.Contains(samplers, sampler) {
		c.Refuse("OTEL_TRACES_SAMPLER", sampler, "one of "+strings.Join(samplers, ", "))
	} else if share := env("OTEL_TRACES_SAMPLER_ARG"); share != "" && strings.HasSuffix(sampler, "traceidratio") {
		if ratio, err := strconv.ParseFloat(strings.TrimSpace(share), 64); err != nil || !(ratio >= 0 && ratio <= 1) {
			c.Refuse("OTEL_TRACES_SAMPLER_ARG", share, "a number from 0 to 1")
		}
	}
	on := exporter == "otlp" || exporter == "" && endpoint != ""
	return on && !strings.EqualFold(env("OTEL_SDK_DISABLED"), "true"), c.Err()
}

// tracingGrace is how long the last spans may take to be sent when the service ends.
const tracingGrace = 5 * time.Second

// Close sends the last spans.
func (t *tracing) close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tracingGrace)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // the error handler logs what could not be sent
}
