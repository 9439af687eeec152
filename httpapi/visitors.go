package httpapi

import (
	"net/http"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/query"
)

// recordActivity records an activity of a visitor. The caller chooses the ids of visitors.
func (x *exchange) recordActivity() (answer, error) {
	body, err := x.members()
	if err != nil {
		return answer{}, x.confirmRefusal(err)
	}
	recorded, err := x.Commands.RecordActivity(x.ctx, command.RecordActivity{
		Admission: x.admission, VisitorID: x.pathID(), Body: body,
	})
	if err != nil {
		return answer{}, err
	}
	return answer{
		status: http.StatusAccepted, position: recorded.Position,
		body: envelope{Success: true, Data: query.NewActivity(recorded.ID, recorded.Activity, recorded.At)},
	}, nil
}

// deleteVisitor forgets a visitor. A visitor who was forgotten already, without an activity since, is not found; an
// incomplete earlier erasure is completed all the same.
func (x *exchange) deleteVisitor() (answer, error) {
	erasure := x.Commands.Erasure(x.caller)
	forgotten, err := x.Eraser.DeleteVisitor(x.ctx, erasure, erasure.VisitorStream(x.pathID()))
	if err == nil && forgotten.Again {
		err = command.ErrNoVisitor
	}
	return done("Visitor forgotten", forgotten.Position, err)
}

// listLeadActivity lists the activities of a lead's visitors.
func (x *exchange) listLeadActivity() (answer, error) {
	return listOf(x, x.params(), lead.ErrNotFound, x.Query.LeadActivity, query.LeadView, query.VisitorActivityView)
}
