package outbound

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// DefaultSchedule returns the delays between a failed attempt and the next one. There is no retry after the last.
func DefaultSchedule() []time.Duration {
	return []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
		10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

const (
	longestRetryAfter = 24 * time.Hour
	overloadFloor     = time.Minute // minimum delay of a retry at an overloaded endpoint
	jitter            = 0.2
)

// Failure describes a failed attempt.
type Failure struct {
	Status     int    // 0: no response
	RetryAfter string // the header
	TimedOut   bool
}

// Next returns the delay after a failed attempt, numbered from 1. Random is a number from 0 to 1. Ok is false after the
// last attempt.
func Next(
	schedule []time.Duration, number int, f Failure, now time.Time, random float64,
) (wait time.Duration, ok bool) {
	if number > len(schedule) {
		return 0, false
	}
	wait = schedule[number-1]
	wait += time.Duration(float64(wait) * jitter * (2*random - 1))
	switch {
	case f.TimedOut, f.Status == http.StatusTooManyRequests, f.Status == http.StatusBadGateway,
		f.Status == http.StatusGatewayTimeout:
		wait = max(wait, overloadFloor)
	}
	return max(wait, min(retryAfter(f.RetryAfter, now), longestRetryAfter)), true
}

// retryAfter parses the Retry-After header: seconds, or a date. It returns 0 if it is neither.
func retryAfter(header string, now time.Time) time.Duration {
	header = strings.TrimSpace(header)
	if header != "" && strings.Trim(header, "0123456789") == "" {
		seconds, err := strconv.ParseInt(header, 10, 32)
		if err != nil { // too large
			return longestRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
