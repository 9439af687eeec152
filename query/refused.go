package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// RefusedArrival is an arrival that was answered with a conflict. It has nothing of the person who arrived.
type RefusedArrival struct {
	At          Timestamp  `json:"at"`
	Source      string     `json:"source"`
	Code        string     `json:"code"`
	LeadID      string     `json:"leadId"`      // the lead that is there
	OtherLeadID *string    `json:"otherLeadId"` // a second one, when phone and email belong to two
	Credential  Credential `json:"credential"`
	RequestID   string     `json:"requestId"`
}

// RefusedFilter selects refused arrivals. Empty fields select all.
type RefusedFilter struct {
	Source string
	Code   string
	Since  time.Time // inclusive
	Until  time.Time // exclusive
}

// Refused lists an account's refused arrivals, oldest first. The error is ErrCursor for a cursor of another list.
func (r *Reader) Refused(ctx context.Context, account string, filter RefusedFilter, p Page) (List[RefusedArrival], error) {
	s := selection{
		from:  `SELECT position, at, source, code, lead_id, nullif(other_lead_id, ''), credential, request_id FROM views.refused`,
		order: `position`,
	}
	s.and(`account = ?`, account)
	s.equal(`source`, filter.Source)
	s.equal(`code`, filter.Code)
	if err := r.happened(ctx, &s, `views.refused`, account, filter.Since, filter.Until); err != nil {
		return List[RefusedArrival]{}, err
	}
	if err := s.goOn(`>`, cursorOf(refusedCursor, account), p.Cursor); err != nil {
		return List[RefusedArrival]{}, err
	}
	return pageByPosition(ctx, r, s, cursorOf(refusedCursor, account), p.Limit, scanRefused)
}

func scanRefused(row pgx.CollectableRow) (placed[RefusedArrival], error) {
	var a placed[RefusedArrival]
	err := row.Scan(&a.position, &a.item.At, &a.item.Source, &a.item.Code, &a.item.LeadID, &a.item.OtherLeadID,
		&a.item.Credential, &a.item.RequestID)
	return a, err
}
