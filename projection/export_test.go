package projection

import "time"

// ShortenIntervals shortens the intervals of a runner.
func (r *Runner) ShortenIntervals() {
	r.pace.stall = 50 * time.Millisecond
	r.pace.takeover, r.pace.stale = 10*time.Millisecond, 10*time.Millisecond
	r.pace.retry, r.pace.maxRetry = time.Millisecond, 20*time.Millisecond
}

// AnalyzeAfter sets the number of events after which a runner analyzes tables.
func (r *Runner) AnalyzeAfter(events int) {
	r.pace.bulk = events
}

// DisableRetries makes a runner's backoff endless.
func (r *Runner) DisableRetries() {
	r.pace.maxRetry = 1000 * time.Hour
}

// AcquireLeaseOnce makes a replay fail at once while another one runs.
func (r Replay) AcquireLeaseOnce() Replay {
	r.leaseAttempts = 1
	return r
}

// TerminateReadersAtOnce makes a replay terminate the sessions that read a view at its first attempt to replace it.
func (r Replay) TerminateReadersAtOnce() Replay {
	r.terminateAfter = 1
	return r
}
