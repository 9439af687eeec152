package query

import (
	"context"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// Activity is something that a visitor did.
type Activity struct {
	ActivityID string                    `json:"activityId"`
	VisitorID  string                    `json:"visitorId"` // as given
	Type       string                    `json:"type"`      // page_view, form_view, click or custom
	URL        string                    `json:"url"`
	Title      string                    `json:"title"`
	Referrer   string                    `json:"referrer"`
	At         Timestamp                 `json:"at"`         // by the clock of whoever told
	RecordedAt Timestamp                 `json:"recordedAt"` // by ours
	Properties map[string]jsontext.Value `json:"properties"`
}

// NewActivity returns an activity that was recorded as the event with this id.
func NewActivity(id string, acted event.VisitorActed, recordedAt time.Time) Activity {
	a := Activity{
		ActivityID: id, VisitorID: acted.VisitorID, Type: acted.Kind, URL: acted.URL, Title: acted.Title,
		Referrer: acted.Referrer, At: Timestamp(acted.At), RecordedAt: Timestamp(recordedAt), Properties: acted.Properties,
	}
	if a.Properties == nil {
		a.Properties = map[string]jsontext.Value{}
	}
	return a
}

// The part of each visitor is cut before it is sorted, so that a page costs what is on it and not what there is.
const leadActivity = `
	SELECT a.*
	  FROM unnest($2::text[]) AS v (visitor_id)
	 CROSS JOIN LATERAL (
	       SELECT position, activity_id, visitor_id, type, url, title, referrer, at, recorded_at, properties
	         FROM views.visitor_activity
	        WHERE account = $1 AND visitor_id = v.visitor_id AND (at, position) > ($3, $4)
	        ORDER BY at, position
	        LIMIT $5) AS a
	 ORDER BY a.at, a.position
	 LIMIT $5`

// LeadActivity lists what a lead's visitors did, before and after the lead arrived, oldest first. The errors are ErrNotFound and
// ErrCursor.
func (r *Reader) LeadActivity(ctx context.Context, account, id string, p Page) (List[Activity], error) {
	if !event.ValidID(id) {
		return List[Activity]{}, ErrNotFound
	}
	kind, after := cursorOf(activityCursor, account), timeCursor{}
	if p.Cursor != "" {
		var err error
		if after, err = decodeTimeCursor(kind, p.Cursor); err != nil {
			return List[Activity]{}, err
		}
	}
	state, err := r.leadState(ctx, account, id)
	if err != nil || len(state.VisitorIDs) == 0 {
		return List[Activity]{}, err
	}
	rows, err := r.pool.Query(ctx, leadActivity, account, state.VisitorIDs, after.at, after.position, p.Limit+1)
	if err != nil {
		return List[Activity]{}, schema.Unavailable(err)
	}
	found, err := collect(rows, p.Limit, scanActivity)
	if err != nil {
		return List[Activity]{}, schema.Unavailable(err)
	}
	return unplaced(found.list(func(a placed[Activity]) string {
		return timeCursor{time.Time(a.item.At), a.position}.encode(kind)
	})), nil
}

func scanActivity(row pgx.CollectableRow) (placed[Activity], error) {
	var a placed[Activity]
	err := row.Scan(&a.position, &a.item.ActivityID, &a.item.VisitorID, &a.item.Type, &a.item.URL, &a.item.Title,
		&a.item.Referrer, &a.item.At, &a.item.RecordedAt, jsonOf{&a.item.Properties})
	return a, err
}
