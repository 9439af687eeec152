package query

import (
	"context"
	"iter"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

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
	At         Timestamp                 `json:"at"`         // by the sender's clock
	RecordedAt Timestamp                 `json:"recordedAt"` // by the service's clock
	Properties map[string]jsontext.Value `json:"properties"`
}

// NewActivity returns an activity that was recorded as the event with this id.
func NewActivity(id string, acted event.VisitorActed, recordedAt time.Time) Activity {
	a := Activity{
		ActivityID: id, VisitorID: acted.VisitorID, Type: acted.Kind, URL: acted.URL, Title: acted.Title,
		Referrer: acted.Referrer, At: Timestamp(acted.At), RecordedAt: Timestamp(recordedAt),
		Properties: acted.Properties,
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

// LeadActivity lists what a lead's visitors did, before and after the lead arrived, oldest first. The errors are
// ErrNotFound and ErrCursor.
func (r *Reader) LeadActivity(ctx context.Context, account, id string, p Page) (List[Activity], error) {
	return r.LeadActivitySince(ctx, account, id, time.Time{}, p)
}

// LeadActivitySince lists those of LeadActivity from a time on, by the sender's clock.
func (r *Reader) LeadActivitySince(
	ctx context.Context, account, id string, since time.Time, p Page,
) (List[Activity], error) {
	if !event.ValidID(id) {
		return List[Activity]{}, ErrNotFound
	}
	kind, after := cursorOf(activityCursor, account), timeCursor{at: since}
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
	return itemsOf(found.list(func(a positioned[Activity]) string {
		return timeCursor{time.Time(a.item.At), a.position}.encode(kind)
	})), nil
}

func scanActivity(row pgx.CollectableRow) (positioned[Activity], error) {
	var a positioned[Activity]
	err := row.Scan(&a.position, &a.item.ActivityID, &a.item.VisitorID, &a.item.Type, &a.item.URL, &a.item.Title,
		&a.item.Referrer, &a.item.At, &a.item.RecordedAt, jsonOf{&a.item.Properties})
	return a, err
}

// ExpiredVisitor is a visitor whom no lead is linked with and whose last activity is older than the account's
// visitorDays.
type ExpiredVisitor struct {
	Account string
	Stream  string
	Before  time.Time // the last activity is older than this
}

const (
	expiryPage = 5_000 // activities that one query looks at
	// visitors of an account that are matched with its leads by one query, which reads all its leads
	expiryBatch = 10_000
)

// expired reads the next activities in the order of the log, and selects the visitors of them who have done nothing for
// the days of their account. The log has activities in the order of time, so no index by time is needed. The first
// three columns describe the rows that were read.
const expired = `
	WITH page AS MATERIALIZED (
	     SELECT position, account, stream, visitor_id, recorded_at FROM views.visitor_activity WHERE position > $1
	     ORDER BY position LIMIT $2
	), old AS (
	     SELECT DISTINCT p.account, p.stream, p.visitor_id, d.before
	       FROM page p
	       LEFT JOIN views.account a ON a.account_id = p.account
	      CROSS JOIN LATERAL (SELECT $3::timestamptz - coalesce(a.visitor_days, $4) * interval '1 day') AS d (before)
	      WHERE p.recorded_at < d.before
	)
	SELECT p.last, p.activities, p.at, o.account, o.stream, o.visitor_id, o.before
	  FROM (SELECT max(position) AS last, count(*) AS activities, max(recorded_at) AS at FROM page) AS p
	  LEFT JOIN (SELECT * FROM old WHERE NOT EXISTS (
	                SELECT FROM views.visitor_activity n WHERE n.stream = old.stream AND n.recorded_at >= old.before))
	                AS o ON true`

const linkedVisitors = `
	SELECT DISTINCT v.id
	  FROM views.lead l CROSS JOIN LATERAL json_array_elements_text(l.state -> 'visitorIds') AS v (id)
	 WHERE l.account = $1 AND json_typeof(l.state -> 'visitorIds') = 'array' AND v.id = ANY ($2)`

// expiring is one reading of all old activities.
type expiring struct {
	*Reader
	now   time.Time
	after int64 // position
	// found are visitors of an account, by id, whose links are not known yet.
	found map[string]map[string]ExpiredVisitor
}

// ExpiredVisitors yields the visitors that have expired at a time, in pages. It ends after yielding an error.
func (r *Reader) ExpiredVisitors(ctx context.Context, now time.Time) iter.Seq2[ExpiredVisitor, error] {
	return func(yield func(ExpiredVisitor, error) bool) {
		e := expiring{Reader: r, now: now, found: map[string]map[string]ExpiredVisitor{}}
		for more := true; more; {
			var err error
			if more, err = e.page(ctx); err != nil {
				yield(ExpiredVisitor{}, err)
				return
			}
			for account, visitors := range e.found {
				if more && len(visitors) < expiryBatch {
					continue
				}
				delete(e.found, account)
				if err := e.unlink(ctx, account, visitors); err != nil {
					yield(ExpiredVisitor{}, err)
					return
				}
				for _, visitor := range visitors {
					if !yield(visitor, nil) {
						return
					}
				}
			}
		}
	}
}

// page reads the next activities. More is false when no activity after them is a day old.
func (e *expiring) page(ctx context.Context) (more bool, err error) {
	rows, err := e.pool.Query(ctx, expired, e.after, expiryPage, e.now, event.DefaultVisitorDays)
	if err != nil {
		return false, schema.Unavailable(err)
	}
	var (
		last                zeronull.Int8
		read                int
		at, before          zeronull.Timestamptz
		account, stream, id zeronull.Text
	)
	_, err = pgx.ForEachRow(rows, []any{&last, &read, &at, &account, &stream, &id, &before}, func() error {
		if stream == "" {
			return nil
		}
		of := string(account)
		if e.found[of] == nil {
			e.found[of] = map[string]ExpiredVisitor{}
		}
		e.found[of][string(id)] = ExpiredVisitor{Account: of, Stream: string(stream), Before: time.Time(before)}
		return nil
	})
	e.after = int64(last)
	return read == expiryPage && time.Time(at).Before(e.now.AddDate(0, 0, -1)), schema.Unavailable(err)
}

// unlink takes out the visitors that a lead is linked with.
func (e *expiring) unlink(ctx context.Context, account string, visitors map[string]ExpiredVisitor) error {
	ids := make([]string, 0, len(visitors))
	for id := range visitors {
		ids = append(ids, id)
	}
	rows, err := e.pool.Query(ctx, linkedVisitors, account, ids)
	if err != nil {
		return schema.Unavailable(err)
	}
	var id string
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		delete(visitors, id)
		return nil
	})
	return schema.Unavailable(err)
}
