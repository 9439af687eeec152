// Package view has the views of the log, one per file. A view is a [projection.Projector]: a fold of events into tables
// of its own. Package projection updates, rebuilds and compares them.
package view

import (
	"errors"

	"github.com/leadlog/leadlog/projection"
)

// All returns all views of the service.
func All() []projection.Projector {
	return []projection.Projector{
		Lead{}, SourceDay{}, Touch{}, Token{}, TokenEvent{}, Account{}, Endpoint{}, Intake{},
		VisitorActivity{}, Refused{}, Arrival{}, Trail{}, LogIndex{},
	}
}

// errGap is returned by a fold that did not get every event of a stream.
var errGap = errors.New("the view does not have every event before this one")
