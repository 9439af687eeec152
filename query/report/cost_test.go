package report_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/attribution"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/report"
)

func TestFile_KeepsUnknownCosts(t *testing.T) {
	t.Parallel()
	f := report.New(report.Parameters{Account: "acme", AttributionFilter: query.AttributionFilter{
		Rules: attribution.Rules{
			Model: attribution.Last, Window: attribution.DefaultWindow, HalfLife: attribution.DefaultHalfLife,
		},
		By: attribution.BySource, Cost: true,
	}})
	f.Rows = []report.Row{{Key: "api", Conversions: "0.000000", Value: "0.0000", AttributionCost: query.AttributionCost{
		Cost: "1.0000", CostPerConversion: query.Unknown, ReturnOnCost: "0.0000",
	}}}
	text, err := f.Encode()
	require.NoError(t, err)
	require.Contains(t, string(text), `"costPerConversion": null`)
	read, err := report.Parse(text)
	require.NoError(t, err)
	require.Equal(t, f, read)
}
