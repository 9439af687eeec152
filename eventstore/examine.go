package eventstore

import (
	"context"
	"iter"
)

// Examined is an event as verification reads it.
type Examined struct {
	Recorded          // opened
	Stored   Recorded // as it is on the log
	Damage   string   // what is wrong with it, as a predicate; empty for an intact one
}

// Examination is a page of examined events, and the position up to which the log was read.
type Examination struct {
	Events   []Examined
	Position Position
}

// Examiner is a Store whose events may be damaged.
type Examiner interface {
	// Examine is like the function Examine.
	Examine(ctx context.Context, until Position) iter.Seq2[Examination, error]
}

// Examine yields all events of a log up to a position that has an event. A damaged event is no error. Events of a store
// that is no Examiner are as they are stored.
func Examine(ctx context.Context, store Store, until Position) iter.Seq2[Examination, error] {
	if examiner, ok := store.(Examiner); ok {
		return examiner.Examine(ctx, until)
	}
	return func(yield func(Examination, error) bool) {
		for page, err := range ReadTo(ctx, store, 0, until, Filter{}) {
			if !yield(NewExamination(page), err) || err != nil {
				return
			}
		}
	}
}

// NewExamination returns a page of events as they are stored.
func NewExamination(page Page) Examination {
	examined := Examination{Events: make([]Examined, len(page.Events)), Position: page.Position}
	for i, r := range page.Events {
		examined.Events[i] = Examined{Recorded: r, Stored: r}
	}
	return examined
}
