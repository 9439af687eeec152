package projection

import "time"

// ShortenIntervals shortens the intervals of a runner.
func (r *Runner) ShortenIntervals() {
	for _, w := range r.workers {
		w.pace.stall = 50 * time.Millisecond
		w.pace.takeover, w.pace.stale = 10*time.Millisecond, 10*time.Millisecond
		w.pace.retry, w.pace.maxRetry = time.Millisecond, 20*time.Millisecond
	}
}

// AnalyzeAfter sets the number of events after which a runner analyzes tables.
func (r *Runner) AnalyzeAfter(events int) {
	for _, w := range r.workers {
		w.pace.bulk = events
	}
}

// DisableRetries makes a runner's backoff endless.
func (r *Runner) DisableRetries() {
	for _, w := range r.workers {
		w.pace.maxRetry = 1000 * time.Hour
	}
}

// TakeLeaseOnce makes a replay fail at once while another one runs.
func (r Replay) TakeLeaseOnce() Replay {
	r.leaseAttempts = 1
	return r
}

// TerminateReadersAtOnce makes a replay terminate the sessions that read a view at its first attempt to replace it.
func (r Replay) TerminateReadersAtOnce() Replay {
	r.terminateAfter = 1
	return r
}
