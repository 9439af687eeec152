package projection

import "time"

// Hasten makes a runner of a test do soon what it would do in its own time.
func (r *Runner) Hasten() {
	for _, w := range r.workers {
		w.pace.takeover, w.pace.retry, w.pace.longest = 10*time.Millisecond, time.Millisecond, 20*time.Millisecond
	}
}

// Batches sets the most events of a transaction.
func (r *Runner) Batches(size int) {
	for _, w := range r.workers {
		w.pace.batch = size
	}
}

// AppendState is how a lead's row holds it.
var AppendState = appendState

// WithoutFilling keeps what is made behind the rows from being made.
func (r *Runner) WithoutFilling() {
	for _, w := range r.workers {
		w.projector = plain{w.projector}
	}
}

// plain is a Projector and nothing more.
type plain struct{ Projector }
