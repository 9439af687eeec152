package query

import (
	"context"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
)

// Reveal says that somebody asked to see personal data. It contains none of them.
type Reveal struct {
	At        Timestamp `json:"at"`
	Actor     string    `json:"actor"`
	What      string    `json:"what"`   // lead, or what was exported: leads or sources
	LeadID    *string   `json:"leadId"` // null: of many
	IP        string    `json:"ip"`     // of the one who looked
	UserAgent string    `json:"userAgent"`
	RequestID string    `json:"requestId"`
}

// RevealFilter selects reveals. Empty fields select all.
type RevealFilter struct {
	Since time.Time // inclusive
	Until time.Time // exclusive
}

// Reveals lists who asked to see personal data of an account, newest first. The error is ErrCursor for a cursor of another list.
func (r *Reader) Reveals(ctx context.Context, account string, filter RevealFilter, p Page) (List[Reveal], error) {
	s := selection{
		from:  `SELECT position, at, actor, what, nullif(lead_id, ''), ip, user_agent, request_id FROM views.reveal`,
		order: `position DESC`,
	}
	s.and(`account = ?`, account)
	s.within(`at`, filter.Since, filter.Until)
	if err := s.goOn(`<`, cursorOf(revealCursor, account), p.Cursor); err != nil {
		return List[Reveal]{}, err
	}
	return pageByPosition(ctx, r, s, cursorOf(revealCursor, account), p.Limit, scanReveal)
}

// RevealsAll yields everything that Reveals lists, in constant memory. It ends after yielding an error.
func (r *Reader) RevealsAll(ctx context.Context, account string, filter RevealFilter) iter.Seq2[Reveal, error] {
	return All(func(p Page) (List[Reveal], error) { return r.Reveals(ctx, account, filter, p) })
}

func scanReveal(row pgx.CollectableRow) (placed[Reveal], error) {
	var v placed[Reveal]
	err := row.Scan(&v.position, &v.item.At, &v.item.Actor, &v.item.What, &v.item.LeadID, &v.item.IP, &v.item.UserAgent, &v.item.RequestID)
	return v, err
}
