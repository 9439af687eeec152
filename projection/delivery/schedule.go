package delivery

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// DefaultSchedule returns how long after each failed attempt the next one is made. After the last there is none.
func DefaultSchedule() []time.Duration {
	return []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
		10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

const (
	longestRetryAfter = 24 * time.Hour
	overloadFloor     = time.Minute // before the next attempt at one that says, or shows, that it is overloaded
	jitter            = 0.2
)

// next returns how long to wait after a failed attempt, numbered from 1. Random is a number from 0 to 1. Ok is false after the last
// attempt.
func next(schedule []time.Duration, number int, o outcome, now time.Time, random float64) (wait time.Duration, ok bool) {
	if number > len(schedule) || o.status == http.StatusGone {
		return 0, false
	}
	wait = schedule[number-1]
	wait += time.Duration(float64(wait) * jitter * (2*random - 1))
	switch {
	case o.timedOut, o.status == http.StatusTooManyRequests, o.status == http.StatusBadGateway, o.status == http.StatusGatewayTimeout:
		wait = max(wait, overloadFloor)
	}
	return max(wait, min(retryAfter(o.retryAfter, now), longestRetryAfter)), true
}

// later postpones a delivery whose attempt failed, if the schedule has another attempt.
func (c *Courier) later(done result) result {
	wait, again := next(c.schedule, done.attempts+1, done.outcome, time.Now(), rand.Float64())
	if done.state, done.wait = failed, wait; again {
		done.state = queued
	}
	return done
}

// retryAfter reads the header: seconds, or a date. 0 when it is neither.
func retryAfter(header string, now time.Time) time.Duration {
	header = strings.TrimSpace(header)
	if header != "" && strings.Trim(header, "0123456789") == "" {
		seconds, err := strconv.ParseInt(header, 10, 32)
		if err != nil { // more than anybody waits
			return longestRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
