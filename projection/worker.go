package projection

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

// State is what a process does with a projector.
type State string

const (
	// Running: this process keeps the view up to date.
	Running State = "running"
	// Standby: another process keeps it up to date, or this one is about to.
	Standby State = "standby"
	// Failed: the last attempt failed, and another will follow.
	Failed State = "failed"
	// Stale: the view must not be written until somebody acts. Err says what to do.
	Stale State = "stale"
)

// Status is how a projector is doing.
type Status struct {
	Name     string
	State    State
	Position eventstore.Position // how far the view has come, as last seen by this process
	Lag      uint64              // positions from there to the head of the log
	Err      error               // why it is failed or stale
	Failures uint64              // since the process began
	Stalled  bool                // the view has not moved for a minute or more, as far as was asked, although the log goes on
}

// Applied is a batch of events whose rows and checkpoint have been written. Events is valid only during the call.
type Applied struct {
	Projector    string
	Events       []Event
	Began, Ended time.Time
}

// worker runs one projector.
type worker struct {
	projector Projector
	store     eventstore.Store
	tail      *Tail
	schema    string
	config    *pgx.ConnConfig
	log       *slog.Logger
	watch     func(Applied) // nil: nobody does
	pace      pace

	// limit is how many events the next transaction has. It falls to one after a failure and doubles with every success, so that
	// all events before the one that fails are applied, and the error names that one.
	limit int
	pause time.Duration // after the next failure

	mu       sync.Mutex
	status   Status
	behindAt eventstore.Position // where the view was when the status was read last,
	behind   time.Time           // and since when it is known to be there, behind the log; zero when it was not behind
}

// run calls serve, again and again, until the context ends.
func (w *worker) run(ctx context.Context) {
	w.limit, w.pause = w.pace.batch, w.pace.retry
	for {
		err := w.serve(ctx)
		if ctx.Err() != nil {
			return
		}
		if eventstore.Sleep(ctx, w.failed(err)) != nil {
			return
		}
	}
}

// failed notes an error and says how long to wait before the next attempt.
func (w *worker) failed(err error) time.Duration {
	if errors.Is(err, errOvertaken) {
		w.log.Info("projector starts again: somebody moved its checkpoint, as a replay does that replaces the view")
		w.update(func(s *Status) { s.State, s.Err = Standby, nil })
		return w.pace.retry
	}
	err = schema.Unavailable(err)
	w.limit = 1
	pause := w.pause/2 + rand.N(w.pause/2+1)
	w.pause = min(2*w.pause, w.pace.longest)
	state := Failed
	if stale(err) {
		state, pause = Stale, w.pace.stale
	}

	w.mu.Lock()
	again := w.status.State == state && w.status.Err != nil && w.status.Err.Error() == err.Error()
	w.status.State, w.status.Err = state, err
	w.status.Failures++
	w.mu.Unlock()

	level := slog.LevelError
	if again {
		level = slog.LevelDebug // said once
	}
	w.log.Log(context.Background(), level, "projector stopped", slog.String("state", string(state)),
		slog.Any("error", err), slog.String("retryIn", pause.String()))
	return pause
}

// opened notes that this process has the lock. After a failure the state stays Failed while events wait to be applied: one of them
// may fail again.
func (w *worker) opened(position, head eventstore.Position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Position = position
	if w.status.State == Failed && position < head {
		return
	}
	if w.status.State != Running {
		w.log.Info("projector runs here", slog.Uint64("position", uint64(position)))
	}
	w.status.State, w.status.Err = Running, nil
}

// applied notes a success: whatever failed before is over.
func (w *worker) applied(position eventstore.Position) {
	w.limit, w.pause = min(2*w.limit, w.pace.batch), w.pace.retry
	w.update(func(s *Status) { s.State, s.Position, s.Err = Running, position, nil })
}

func (w *worker) standby(position eventstore.Position) {
	w.update(func(s *Status) { s.State, s.Position, s.Err = Standby, position, nil })
}

func (w *worker) update(change func(*Status)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.status)
}

func (w *worker) snapshot() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// stalled reports whether a view with this status stays behind the log without moving, whichever process has its lease.
func (w *worker) stalled(s Status) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case s.Lag == 0:
		w.behind = time.Time{}
		return false
	case w.behind.IsZero() || s.Position != w.behindAt:
		w.behindAt, w.behind = s.Position, time.Now()
	}
	return time.Since(w.behind) >= w.pace.stall
}
