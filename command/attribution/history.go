package attribution

import (
	"slices"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/eventstore/event"
)

// History is the stages, values and touches of a lead over the whole log, so that a conversion can be computed as of
// any position. It has no personal data, so an erasure does not change it.
type History struct {
	Stages  []Stage // in the order of the log
	Values  []Value // likewise
	Touches []Seen  // that it has or had, by joins and splits too
}

// NoStage is the stage of a lead that became part of another. No account has it, because it is a control character.
const NoStage = "\x01"

// Stage sets the stage of a lead, which may have been the same before.
type Stage struct {
	Position int64
	At       int64  // Unix milliseconds
	Name     string // folded
}

// Value sets the opportunity value of a lead from a position on.
type Value struct {
	Position int64
	Units    uint64
}

// Seen is a touch and the position since which it belongs to the lead: its own, that of a later join or split, or that
// of the arrival that linked its visitor. It belongs to the lead before Until; 0 is for good.
type Seen struct {
	Touch
	Since, Until int64
	Visit        bool
}

// Has reports whether the touch belongs to the lead as of a position.
func (t Seen) Has(position int64) bool {
	return t.Since <= position && (t.Until == 0 || position < t.Until)
}

// Won has the stages that count as a conversion, by the position since which they do.
type Won []WonStages

// WonStages are those that one setting of an account names, folded.
type WonStages struct {
	Position int64
	Stages   []string
}

// NewWonStages folds the stages of a setting.
func NewWonStages(position int64, stages []string) WonStages {
	won := WonStages{Position: position}
	for _, stage := range stages {
		won.Stages = append(won.Stages, account.FoldStage(stage))
	}
	return won
}

// AsOf returns the stages that count as of a position, for all history before it.
func (w Won) AsOf(position int64) []string {
	stages := event.DefaultWonStages() // which are their own folds
	for _, setting := range w {
		if setting.Position <= position {
			stages = setting.Stages
		}
	}
	return stages
}

// Moment is the time and value of a conversion.
type Moment struct {
	At    int64 // Unix milliseconds
	Value uint64
}

// AsOf returns the last change of the lead from another stage to a won stage, if it is at a won stage as of a position.
func (h *History) AsOf(position int64, won []string) (m Moment, converted bool) {
	for _, s := range h.Stages {
		if s.Position > position {
			break
		}
		is := slices.Contains(won, s.Name)
		if is && !converted {
			m.At = s.At
		}
		converted = is
	}
	if !converted {
		return Moment{}, false
	}
	for _, v := range h.Values {
		if v.Position <= position {
			m.Value = v.Units
		}
	}
	return m, true
}

// Conversion returns the lead's conversion as of a position, if it has one, with all touches known by then. With
// visits, visits count too.
func (h *History) Conversion(lead string, position int64, won []string, visits bool) (c Conversion, converted bool) {
	m, converted := h.AsOf(position, won)
	if !converted {
		return c, false
	}
	return Conversion{Lead: lead, At: m.At, Value: m.Value, Touches: Known(h.Touches, position, visits)}, true
}

// Known returns the touches that are known as of a position. With visits, visits count too.
func Known(touches []Seen, position int64, visits bool) []Touch {
	known := make([]Touch, 0, len(touches))
	for _, t := range touches {
		if t.Has(position) && (visits || !t.Visit) {
			known = append(known, t.Touch)
		}
	}
	return known
}

// Span is a conversion as of the positions from Since on and before Until.
type Span struct {
	Moment
	Since, Until int64
}

// Forever is the end of a span that has none yet.
const Forever = 1<<63 - 1

// Spans returns the lead's conversions over the whole log, in order. Their touches are those of the history; none ends
// within a span.
func (h *History) Spans(won Won) (spans []Span) {
	var changes []int64
	for _, s := range h.Stages {
		changes = append(changes, s.Position)
	}
	for _, v := range h.Values {
		changes = append(changes, v.Position)
	}
	for _, w := range won {
		changes = append(changes, w.Position)
	}
	ends := map[int64]bool{} // of touches
	for _, t := range h.Touches {
		if t.Until > 0 {
			ends[t.Until], changes = true, append(changes, t.Until)
		}
	}
	slices.Sort(changes)
	for _, position := range slices.Compact(changes) {
		m, converted := h.AsOf(position, won.AsOf(position))
		if n := len(spans) - 1; n >= 0 && spans[n].Until == Forever {
			if converted && spans[n].Moment == m && !ends[position] {
				continue
			}
			spans[n].Until = position
		}
		if converted {
			spans = append(spans, Span{m, position, Forever})
		}
	}
	return spans
}
