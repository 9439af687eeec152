// Package view has the views of the log, one file each. A view is a [projection.Projector]: a fold of events into tables of its own.
// Package projection keeps them up to date, rebuilds and compares them.
package view

import (
	"errors"

	"github.com/leadlog/leadlog/projection"
)

// All returns every view that a service serves.
func All() []projection.Projector {
	return []projection.Projector{
		Lead{}, SourceDay{}, Touch{}, Token{}, TokenEvent{}, Account{}, Endpoint{}, Intake{},
		VisitorActivity{}, Refused{}, Arrival{}, Trail{}, Place{},
	}
}

// errGap is returned by a fold that was not given every event of a stream.
var errGap = errors.New("the view does not have every event before this one")
