package lead

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// ErrNotDue means that a lead is not erased, because it arrived or was changed since it was found.
var ErrNotDue = errors.New("the lead is not due")

// Retention is how long an account keeps its leads.
type Retention struct {
	Before time.Time // leads that were last active before are erased
	Exempt []string  // stages whose leads are kept
}

// Due reports whether a lead is to be erased. A lead that was joined into another is erased with that one.
func (r Retention) Due(s State) bool {
	kept := slices.ContainsFunc(r.Exempt, func(stage string) bool { return strings.EqualFold(stage, s.Status) })
	return s.Phase == Live && s.ActiveAt().Before(r.Before) && !kept
}
