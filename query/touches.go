package query

import (
	"context"
	"iter"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// Touch is an arrival of a lead, or a visit by a campaign. Of one whose person is forgotten it has neither the lead nor
// what is personal.
type Touch struct {
	TouchID string    `json:"touchId"` // of the event
	LeadID  *string   `json:"leadId"`  // whom it belongs to, after joins; null: of a visitor without a lead, or erased
	At      Timestamp `json:"at"`      // of a visit, by the sender's clock
	Source  *string   `json:"source"`  // null: of a visit
	Kind    string    `json:"kind"`    // created, merged or visit
	lead.Origin
	Credential string              `json:"credential"` // token:{id}, user:{sub}, intake:{id} or system:{what}
	IntakeID   *string             `json:"intakeId"`
	RequestID  *string             `json:"requestId"`
	Position   eventstore.Position `json:"position"`
	Erased     bool                `json:"erased"`
}

// TouchFilter selects touches. Empty fields select all.
type TouchFilter struct {
	Source, Medium, Campaign string
	LeadID                   string    // also of leads that are part of it
	Since                    time.Time // inclusive
	Until                    time.Time // exclusive
	Visits                   bool      // list visits too
	Masked                   bool      // leave out what is personal
	AsOf                     eventstore.Position
}

// touchList reads the touches of a page with the lead that each belongs to. A visit belongs to the lead that was linked
// with its visitor first, and is not erased. $1 is the position that it is as of, and $2 whether personal data are
// read.
var touchList = `
	SELECT t.touch_id, o.lead_id, t.at, t.source, t.kind, t.utm_source, t.utm_medium, t.utm_campaign, t.utm_id,
	       t.credential, t.intake_id, coalesce(p.request_id, ''), t.position, t.erased, coalesce(p.metadata, '{}')
	  FROM page t
	  LEFT JOIN views.touch_personal p ON p.position = t.position AND $2
	 CROSS JOIN LATERAL (
	       SELECT CASE WHEN t.erased THEN '' WHEN t.kind <> 'visit'
	       THEN ` + schema.OwnerOf("views.", "t", "$1") + ` ELSE coalesce((
	              SELECT ` + schema.OwnerOf("views.", "a", "$1") + ` FROM views.touch a
	               WHERE a.visitor = t.visitor AND a.visitor <> '' AND a.kind <> 'visit' AND NOT a.erased
	               AND a.position <= $1
	               ORDER BY a.position LIMIT 1), '') END) AS o (lead_id)
	 ORDER BY t.at, t.position`

// Arrivals and visits are in indexes of their own, so that a list of arrivals does not read the visits between them.
const (
	isArrival = `t.kind <> 'visit'`
	isVisit   = `t.kind = 'visit'`
)

// leadTouches are the touches of lead $3 as of position $1, and of visitors $4. In the order of the list, PostgreSQL
// might read all touches of the account.
var leadTouches = `(
	SELECT a.* FROM (` + schema.TouchesAsOf("views.", "$3", "$1") + `) AS its CROSS JOIN LATERAL (
	       SELECT * FROM views.touch WHERE position = its.position OFFSET 0) AS a
	 UNION ALL
	SELECT v.* FROM unnest($4::text[]) AS id
	 CROSS JOIN LATERAL (SELECT * FROM views.touch WHERE visitor = id AND visitor <> ''
	   AND kind = 'visit' OFFSET 0) AS v) AS t`

// Touches lists an account's touches as of a position that the view has reached, by time and then by position, the
// oldest first. The error is ErrCursor for a cursor of another list.
func (r *Reader) Touches(ctx context.Context, account string, filter TouchFilter, p Page) (List[Touch], error) {
	kind := cursorOf(touchCursor, account)
	s := selection{order: `t.at, t.position`, table: `views.touch t`, then: touchList}
	s.and(`t.position <= ?`, int64(filter.AsOf))
	s.and(`?::boolean IS NOT NULL`, !filter.Masked)
	if filter.LeadID != "" {
		if !storable(filter.LeadID) || !storable(account) {
			return List[Touch]{}, nil
		}
		visitors, err := r.visitorsOf(ctx, account, filter.LeadID, filter.AsOf)
		if err != nil {
			return List[Touch]{}, err
		}
		s.table = leadTouches
		s.and(`?::text COLLATE "C" IS NOT NULL AND ?::text[] IS NOT NULL AND NOT t.erased`, filter.LeadID, visitors)
	}
	s.from = `SELECT t.* FROM ` + s.table
	switch {
	case !filter.Visits:
		s.and(isArrival)
	case filter.LeadID == "":
		s.halves = []string{isArrival, isVisit}
	}
	s.and(`t.account = ?`, account)
	s.equal(`t.source`, filter.Source)
	s.within(`t.at`, filter.Since, filter.Until)
	narrow := func(s *selection) {
		s.equal(`t.utm_medium`, filter.Medium)
		s.equal(`t.utm_campaign`, filter.Campaign)
	}
	if p.Cursor != "" {
		last, err := decodeTimeCursor(kind, p.Cursor)
		if err != nil {
			return List[Touch]{}, err
		}
		s.and(`(t.at, t.position) > (?, ?)`, last.at, last.position)
	}
	if filter.Medium+filter.Campaign != "" && filter.LeadID == "" {
		s.narrow = narrow
	} else {
		narrow(&s)
	}
	end, err := s.scan(ctx, r, `t.at, t.position`)
	if err != nil {
		return List[Touch]{}, err
	}
	list, err := page(ctx, r, s, p.Limit, scanTouch, func(t Touch) string {
		return timeCursor{time.Time(t.At), int64(t.Position)}.encode(kind)
	})
	if end != nil && list.NextCursor == "" && err == nil {
		list.NextCursor = timeCursor{end[0].(time.Time), end[1].(int64)}.encode(kind)
	}
	if filter.LeadID != "" {
		for i := range list.Items { // a visitor may be several leads
			list.Items[i].LeadID = &filter.LeadID
		}
	}
	return list, err
}

// TouchesAll yields everything that Touches lists, in constant memory. It ends after yielding an error.
func (r *Reader) TouchesAll(ctx context.Context, account string, filter TouchFilter) iter.Seq2[Touch, error] {
	return All(func(p Page) (List[Touch], error) { return r.Touches(ctx, account, filter, p) })
}

// visitorsOf returns the streams of the visitors of the arrivals that belong to a lead as of a position.
func (r *Reader) visitorsOf(ctx context.Context, account, id string, asOf eventstore.Position) ([]string, error) {
	rows, err := r.pool.Query(ctx, `
		SELECT DISTINCT t.visitor FROM (`+schema.TouchesAsOf("views.", `$2::text COLLATE "C"`, "$3")+`) AS its
		 CROSS JOIN LATERAL (SELECT * FROM views.touch WHERE position = its.position OFFSET 0) AS t
		 WHERE t.account = $1 AND t.visitor <> '' ORDER BY 1`, account, id, int64(asOf))
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	visitors, err := pgx.AppendRows([]string{}, rows, pgx.RowTo[string])
	return visitors, schema.Unavailable(err)
}

func scanTouch(row pgx.CollectableRow) (t Touch, err error) {
	var leadID *string
	var source, intakeID, requestID string
	var campaign event.Campaign
	var metadata map[string]jsontext.Value
	err = row.Scan(&t.TouchID, &leadID, &t.At, &source, &t.Kind, &campaign.UTMSource, &campaign.UTMMedium,
		&campaign.UTMCampaign, &campaign.UTMID,
		&t.Credential, &intakeID, &requestID, &t.Position, &t.Erased, jsonOf{&metadata})
	if leadID != nil {
		t.LeadID = given(*leadID)
	}
	t.Source, t.IntakeID, t.RequestID = given(source), given(intakeID), given(requestID)
	t.Origin = lead.NewOrigin(campaign, metadata)
	return t, err
}

// CampaignCount counts the arrivals by one medium and campaign, by outcome.
type CampaignCount struct {
	Medium, Campaign string // empty: none
	Created, Merged  int
}

// latestArrivals bounds the cost of Campaigns.
const latestArrivals = 20_000

// Campaigns counts the arrivals of a span of time by medium and campaign, the most frequent first, of one source or
// all. It considers the latest 20,000 arrivals of the span, and returns at most as many rows as most.
func (r *Reader) Campaigns(
	ctx context.Context, account string, filter SourceFilter, most int,
) ([]CampaignCount, error) {
	s := selection{from: `SELECT utm_medium, utm_campaign, kind FROM views.touch`, order: `at DESC, position DESC`}
	s.and(`account = ?`, account)
	s.and(`kind <> 'visit'`)
	s.equal(`source`, filter.Source)
	s.within(`at`, filter.Since, filter.Until)
	rows, err := r.pool.Query(ctx, `
		SELECT utm_medium, utm_campaign, count(*) FILTER (WHERE kind = 'created'),
		  count(*) FILTER (WHERE kind = 'merged')
		  FROM (`+s.sql(latestArrivals)+`) t
		 GROUP BY utm_medium, utm_campaign ORDER BY count(*) DESC, utm_medium, utm_campaign
		 LIMIT `+strconv.Itoa(most), s.args...)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	counts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[CampaignCount])
	return counts, schema.Unavailable(err)
}
