package intake

import (
	"time"

	"github.com/leadlog/leadlog/eventstore/event"
)

// failsAfter is how many arrivals in a row must be quarantined before an intake is reported as failing.
const failsAfter = 3

// Run is how an intake's arrivals end: how many of the latest were quarantined one after the other. What a pause keeps
// does not count, and an arrival counts once.
type Run struct {
	Failed     int       // arrivals in the run
	Since      time.Time // when the first of them was quarantined
	ArrivalID  string    // the latest of them
	Error      string    // why it was quarantined
	CapturedAt time.Time // when a capture ended the run before; zero: none did
}

// Quarantine adds an arrival to the run.
func (r *Run) Quarantine(id string, reasons []event.ArrivalReason, at time.Time) {
	for _, reason := range reasons {
		if reason.Field == pausedField {
			return
		}
	}
	if r.Failed == 0 {
		r.Since = at
	}
	r.Failed++
	r.ArrivalID, r.Error = id, ""
	if len(reasons) > 0 {
		r.Error = reasons[0].Field + " " + reasons[0].Message
	}
}

// Capture ends the run. The clock of the process that captured may be behind that of another.
func (r *Run) Capture(at time.Time) {
	if r.Failed > 0 {
		*r = Run{CapturedAt: latest(r.Since, at)}
	}
}

// Refuse ends a run that is too short to be reported: the intake's mapping works. It does not recover an intake that
// fails.
func (r *Run) Refuse() {
	if r.Failed > 0 && !r.Fails() {
		*r = Run{CapturedAt: r.CapturedAt}
	}
}

// Fails reports whether the run is long enough to be reported.
func (r Run) Fails() bool { return r.Failed >= failsAfter }

// ReportFailing decides whether to report now that the intake fails. A run is reported once.
func (s State) ReportFailing(r Run) (event.IntakeFailing, bool) {
	failing := event.IntakeFailing{Since: r.Since, ArrivalID: r.ArrivalID, Error: r.Error}
	return failing, s.Live() && !s.Failing && r.Fails() && r.Since.After(s.FailingSince)
}

// Recover decides whether to report that an arrival at the failing intake was captured. It is reported once.
func (s State) Recover(r Run) (event.IntakeRecovered, bool) {
	due := s.Live() && s.Failing && !r.CapturedAt.Before(s.FailingSince)
	return event.IntakeRecovered{CapturedAt: r.CapturedAt}, due
}

// Watched is an intake whose silence or failure may have begun or ended.
type Watched struct {
	ID        string
	ArrivedAt time.Time // the latest arrival; zero: there was none
	Run       *Run      // nil: it is about silence
}
