package attribution

import (
	"cmp"
	"slices"
)

// WonStep is the step after the last touch of a path: the conversion.
const WonStep = "(won)"

// Step counts how often a touch with one key was followed by one with another, or by the conversion.
type Step struct {
	From, To string // To: WonStep for the conversion
	Count    int64
}

// Paths counts the steps between the eligible touches of conversions.
type Paths struct {
	rules Rules
	steps map[[2]string]int64
}

// NewPaths returns empty paths. They do not depend on the model.
func NewPaths(rules Rules) *Paths { return &Paths{rules: rules, steps: map[[2]string]int64{}} }

// Add adds a conversion, if it counts. It may reorder the touches.
func (p *Paths) Add(c Conversion) {
	if !p.rules.Counts(c.At) {
		return
	}
	touches := p.rules.Eligible(c)
	for i := range touches {
		to := WonStep
		if i+1 < len(touches) {
			to = cmp.Or(touches[i+1].Key, None)
		}
		p.steps[[2]string{cmp.Or(touches[i].Key, None), to}]++
	}
}

// Steps returns at most so many steps, the most frequent first.
func (p *Paths) Steps(most int) []Step {
	steps := make([]Step, 0, len(p.steps))
	for of, count := range p.steps {
		steps = append(steps, Step{of[0], of[1], count})
	}
	slices.SortFunc(steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	return steps[:min(len(steps), most)]
}
