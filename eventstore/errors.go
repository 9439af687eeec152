package eventstore

import (
	"errors"
	"fmt"
)

var (
	// ErrUnavailable means that the engine could not be reached or did not answer in time. It is unknown whether an
	// append that fails with it was stored; the same append may be retried.
	ErrUnavailable = errors.New("event store unavailable")

	// ErrInvalid means that writes are not well formed: a stream named twice, an empty name, a time out of range.
	// Nothing was written.
	ErrInvalid = errors.New("invalid append")

	// ErrUnknownPosition means that this log never returned the position. An engine that can read only from positions
	// of events returns it for all others. Callers reject positions beyond the end of the log.
	ErrUnknownPosition = errors.New("not a position of this log")

	// ErrDiverged means that the log has lost events that this process has seen, for example because a standby was
	// promoted that had not received them. The process's caches are wrong; it must restart with a new Store.
	ErrDiverged = errors.New("the log has lost events that were read from it")
)

// ConflictError says that a stream was not in the expected state. Nothing of the append was written.
type ConflictError struct {
	Stream   string
	Expected Expected
	Actual   Expected // the revision of the stream's last event, or NoStream
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("stream %s is at %s, expected %s", e.Stream, e.Actual, e.Expected)
}

// String formats an expectation: a revision, "no stream" or "any".
func (e Expected) String() string {
	switch e {
	case NoStream:
		return "no stream"
	case Any:
		return "any"
	}
	return fmt.Sprintf("revision %d", int64(e))
}

// Conflict returns the ConflictError in an error's chain, or nil.
func Conflict(err error) *ConflictError {
	conflict, _ := errors.AsType[*ConflictError](err)
	return conflict
}
