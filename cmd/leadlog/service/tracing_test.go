package service

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
)

func TestTracing_RejectsUnsupportedSettings(t *testing.T) {
	t.Parallel()
	for _, bad := range [][2]string{
		{"OTEL_TRACES_EXPORTER", "zipkin"}, {"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
		{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"}, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "::bad"},
		{"OTEL_TRACES_SAMPLER", "bogus"}, {"OTEL_TRACES_SAMPLER_ARG", "2"}, {"OTEL_TRACES_SAMPLER_ARG", "NaN"},
	} {
		set := map[string]string{"OTEL_TRACES_SAMPLER": "traceidratio"}
		set[bad[0]] = bad[1]
		_, err := tracingWanted(func(name string) string { return set[name] })
		var usage *cli.UsageError
		require.ErrorAs(t, err, &usage)
		require.ErrorContains(t, err, bad[0]+`="`+bad[1]+`"`)
	}
	for _, c := range []struct {
		set  map[string]string
		want bool
	}{
		{nil, false},
		{map[string]string{"OTEL_SERVICE_NAME": "leads"}, false},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "True"}, false},
	} {
		on, err := tracingWanted(func(name string) string { return c.set[name] })
		require.NoError(t, err)
		require.Equal(t, c.want, on, "%v", c.set)
	}
}
