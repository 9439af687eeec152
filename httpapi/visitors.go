package httpapi

import (
	"net/http"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/query"
)

// recordActivity records an activity of a visitor. The caller chooses the ids of visitors.
func (ex *exchange) recordActivity() (answer, error) {
	body, err := ex.members()
	if err != nil {
		return answer{}, ex.confirmRefusal(err)
	}
	recorded, err := ex.Commands.RecordActivity(ex.ctx, command.RecordActivity{
		Admission: ex.admission, VisitorID: ex.pathID(), Body: body,
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
func (ex *exchange) deleteVisitor() (answer, error) {
	erasure := ex.Commands.Erasure(ex.caller)
	forgotten, err := ex.Eraser.DeleteVisitor(ex.ctx, erasure, erasure.VisitorStream(ex.pathID()))
	if err == nil && forgotten.Again {
		err = command.ErrNoVisitor
	}
	return done("Visitor forgotten", forgotten.Position, err)
}

// listLeadActivity lists the activities of a lead's visitors.
func (ex *exchange) listLeadActivity() (answer, error) {
	return listOf(ex, ex.params(), lead.ErrNotFound, ex.Query.LeadActivity, query.LeadView, query.VisitorActivityView)
}
