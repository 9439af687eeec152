package attribution

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

func TestReport_Costs(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	report := NewReport(Rules{
		Model: Linear, Window: Day, Since: since, Until: since.AddDate(0, 0, 2),
	})
	at := since.Add(time.Hour).UnixMilli()
	touch := func(position int64, key string) Touch { return Touch{at, position, key} }
	report.Add(Conversion{
		At: at, Value: 2_000_000, Touches: []Touch{touch(1, "a"), touch(2, "b"), touch(3, "free")},
	})
	costs := Costs{}
	row := func(day, campaign, amount string) event.SpendRow {
		return event.SpendRow{Day: day, SpendKey: event.SpendKey{UTMCampaign: campaign}, Amount: amount}
	}
	costs.Set(event.SpendSet{Rows: []event.SpendRow{
		row("2026-11-26", "a", "7"), row("2026-11-27", "a", "9"), row("2026-11-28", "a", "20.0001"),
		row("2026-11-29", "a", "7"), row("2026-11-27", "b", "0"), row("2026-11-27", "idle", "1"),
		{Day: "2026-11-27", SpendKey: event.SpendKey{Source: "google_ad"}, Amount: "99999999999.9999"},
	}})
	costs.Set(event.SpendSet{Rows: []event.SpendRow{row("2026-11-27", "a", "10")}})
	report.AddCosts(ByCampaign, costs)
	var lines []string
	for _, row := range append(report.Rows(), report.Total()) {
		line := row.Key + " " + row.Conversions.Decimal(6)
		if row.HasCost {
			line += " " + row.Cost.Decimal(4)
		}
		if each, known := row.CostPerConversion(); known {
			line += " each " + each
		}
		if back, known := row.ReturnOnCost(); known {
			line += " return " + back
		}
		lines = append(lines, line)
	}
	require.Equal(t, []string{
		"(none) 0.000000 99999999999.9999 return 0.0000",
		"a 0.333334 30.0001 each 90.0001 return 2.2222", // 66.6667 by 30.0001
		"b 0.333333 0.0000 each 0.0000",
		"free 0.333333",
		"idle 0.000000 1.0000 return 0.0000",
		" 1.000000 100000000031.0000 each 100000000031.0000 return 0.0000",
	}, lines)
	report.AddCosts(ByIntake, costs)
	require.Equal(t, "100000000031.0000", report.Total().Cost.Decimal(4), "intakes have no costs")
}
