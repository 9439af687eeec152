package leadfile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDateOrder_Parse(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"2026-09-12T15:05:13+05:30": "2026-09-12T09:35:13Z",
		"2026-09-12T15:05:13+0530":  "2026-09-12T09:35:13Z",
		"2026-09-12 15:05:13.250":   "2026-09-12T15:05:13.25Z",
		"2026-09-12":                "2026-09-12T00:00:00Z",
		"2026-09-12 15:05":          "2026-09-12T15:05:00Z",
		"2026-09-12 15:05:13 UTC":   "2026-09-12T15:05:13Z",
		"2026-09-12 15:05 IST":      "2026-09-12T09:35:00Z",
		"2026-09-12 15:05 -0700":    "2026-09-12T22:05:00Z",
		"Sep 12, 2026 3:05 PM PDT":  "2026-09-12T22:05:00Z",
		"12/09/2026":                "2026-09-12T00:00:00Z",
		"12/09/2026, 21:35":         "2026-09-12T21:35:00Z",
		"12.09.2026 21:35":          "2026-09-12T21:35:00Z",
		"9/12/26 9:35 PM":           "2026-12-09T21:35:00Z",
		"12 Sep 2026 12:05 am":      "2026-09-12T00:05:00Z",
		"Sep 12, 2026 at 9:35 PM":   "2026-09-12T21:35:00Z",
		"Sat Sep 12 2026 15:05:13 GMT+0530 (India Standard Time)": "2026-09-12T09:35:13Z",
		"1789000000":    "2026-09-10T00:26:40Z",
		"1789000000000": "2026-09-10T00:26:40Z",
		"20260912":      "2026-09-12T00:00:00Z",
	} {
		at, ok := DateOrder{}.parse(text, now.AddDate(0, 1, 0))
		require.True(t, ok, text)
		require.Equal(t, want, at.Format(time.RFC3339Nano), text)
	}
	for _, text := range []string{
		"", "soon", "1900-01-00", "01/01/1900", "2027-01-01", "32/01/2026", "2026-13-01", "12/09", "2026-09-12 25:00",
		"2026-09-12 13:00 PM", "45000", "9876543210",
		"2026-09-12 15:05 BST", "2026-09-12 15:05 XYZ",
	} {
		_, ok := DateOrder{}.parse(text, now)
		require.False(t, ok, "%q", text)
	}
	american := orderOf([]string{"9/12/2026", "9/13/2026 10:00"}, "IN")
	at, _ := american.parse("9/12/2026", now)
	require.Equal(t, time.September, at.Month())
	require.True(t, orderOf(nil, "US").MonthFirst)
	require.False(t, orderOf([]string{"13/9/2026"}, "US").MonthFirst)
}
