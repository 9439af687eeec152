package outbound

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var judged = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)

func TestSchedule_Jitter(t *testing.T) {
	t.Parallel()
	broken := Failure{Status: http.StatusInternalServerError}
	for i, planned := range DefaultSchedule() {
		for random, want := range map[float64]time.Duration{0: planned * 8 / 10, 0.5: planned, 1: planned * 12 / 10} {
			wait, ok := Next(DefaultSchedule(), i+1, broken, judged, random)
			require.True(t, ok)
			require.InDelta(t, want, wait, float64(time.Microsecond), "attempt %d, random %v", i+1, random)
		}
	}
	_, ok := Next(DefaultSchedule(), len(DefaultSchedule())+1, broken, judged, 0.5)
	require.False(t, ok, "after the last there is none")
}

func TestSchedule_Overload(t *testing.T) {
	t.Parallel()
	schedule := []time.Duration{5 * time.Second, time.Hour}
	for name, c := range map[string]struct {
		failure Failure
		floor   bool
	}{
		"429":                       {Failure{Status: 429}, true},
		"502":                       {Failure{Status: 502}, true},
		"504":                       {Failure{Status: 504}, true},
		"timeout":                   {Failure{TimedOut: true}, true},
		"500":                       {Failure{Status: 500}, false},
		"503":                       {Failure{Status: 503}, false},
		"404":                       {Failure{Status: 404}, false},
		"a redirect":                {Failure{Status: 302}, false},
		"no answer, and no timeout": {Failure{}, false},
	} {
		wait, ok := Next(schedule, 1, c.failure, judged, 0.5)
		require.True(t, ok, name)
		if c.floor {
			require.Equal(t, time.Minute, wait, name)
		} else {
			require.Equal(t, 5*time.Second, wait, name)
		}
		wait, _ = Next(schedule, 2, c.failure, judged, 0.5)
		require.Equal(t, time.Hour, wait, "%s: a floor, not a ceiling", name)
	}
}

func TestSchedule_RetryAfter(t *testing.T) {
	t.Parallel()
	schedule := []time.Duration{5 * time.Second}
	for header, want := range map[string]time.Duration{
		"":                               5 * time.Second,
		"0":                              5 * time.Second,
		"3":                              5 * time.Second, // shorter than the schedule
		"120":                            2 * time.Minute,
		" 120 ":                          2 * time.Minute,
		"86400":                          24 * time.Hour,
		"86401":                          24 * time.Hour,
		"99999999999999999999":           24 * time.Hour,
		"-5":                             5 * time.Second,
		"1.5":                            5 * time.Second,
		"soon":                           5 * time.Second,
		"Sun, 01 Mar 2026 09:10:00 GMT":  10 * time.Minute,
		"Sunday, 01-Mar-26 09:10:00 GMT": 10 * time.Minute,
		"Sun Mar  1 09:10:00 2026":       10 * time.Minute,
		"Sun, 01 Mar 2026 08:00:00 GMT":  5 * time.Second, // in the past
		"Tue, 03 Mar 2026 09:00:00 GMT":  24 * time.Hour,
	} {
		for _, status := range []int{http.StatusServiceUnavailable, http.StatusInternalServerError} {
			wait, ok := Next(schedule, 1, Failure{Status: status, RetryAfter: header}, judged, 0.5)
			require.True(t, ok)
			require.Equal(t, want, wait, "%q", header)
		}
	}
	wait, _ := Next(schedule, 1, Failure{Status: http.StatusTooManyRequests, RetryAfter: "5"}, judged, 0.5)
	require.Equal(t, time.Minute, wait, "nor is it below the floor")
}

func FuzzRetryAfter(f *testing.F) {
	for _, header := range []string{
		"", "0", "120", " 7 ", "-1", "1e9", "99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT",
		"Sun, 06 Nov 1994 08:49:37 GMT",
	} {
		f.Add(header)
	}
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, header string) {
		wait, again := Next(DefaultSchedule(), 1, Failure{
			Status: http.StatusServiceUnavailable, RetryAfter: header,
		}, now, 0.5)
		require.True(t, again)
		require.GreaterOrEqual(t, wait, 5*time.Second)
		require.LessOrEqual(t, wait, 24*time.Hour)
	})
}
