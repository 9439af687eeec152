package query

import (
	"context"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/leadlog/leadlog/command/attribution"
	"github.com/leadlog/leadlog/projection/schema"
)

// SourceEntry is one entry of a source history.
type SourceEntry struct {
	LeadID      string         `json:"leadId"`
	Source      string         `json:"source"`
	FirstSeenAt Timestamp      `json:"firstSeenAt"`
	LastSeenAt  Timestamp      `json:"lastSeenAt"`
	Arrivals    int            `json:"arrivals"`
	Credential  Credential     `json:"credential"`
	Metadata    jsontext.Value `json:"metadata"` // an object, as given
	IP          string         `json:"ip"`
	UserAgent   string         `json:"userAgent"`
	RequestID   string         `json:"requestId"`
	Changed     []string       `json:"changed"` // the lead's fields that the first arrival from here set
}

// Credential identifies the credential of a caller, without its value.
type Credential struct {
	Kind string `json:"kind"` // token or jwt
	ID   string `json:"id"`   // a token's id, or the JWT's subject
}

// SourceCount counts the arrivals from one source in one interval, by outcome.
type SourceCount struct {
	Source  string    `json:"source"`
	From    Timestamp `json:"from"`    // first moment of the interval
	Created int       `json:"created"` // arrivals that opened a lead: first touches
	Merged  int       `json:"merged"`  // arrivals that merged into a lead: later touches
	Refused int       `json:"refused"` // arrivals that were answered with a conflict
	// Won is how many of the leads that this source opened in the interval are in a won stage now, whenever they
	// reached it. Value is the sum of their values.
	Won   int            `json:"won"`
	Value jsontext.Value `json:"value"` // an exact number
}

// SourceFilter selects entries of the source history by when they were first seen. Empty fields select all.
type SourceFilter struct {
	Source string
	Since  time.Time // inclusive
	Until  time.Time // exclusive
}

// Intervals of a report. Days are UTC's, weeks begin on Monday.
const (
	Day   = "day"
	Week  = "week"
	Month = "month"
	Year  = "year"
)

// ReportFilter selects what a report counts, in whole days: from the one that Since is in to the last one that begins
// before Until. The first and the last interval count only their days within these bounds.
type ReportFilter struct {
	Interval string // Day, Week, Month or Year
	Source   string
	Since    time.Time
	Until    time.Time
}

// An entry of the source history is the first touch of a lead, after joins, from a source. What sourceEntries adds to
// it is looked up for the entries of the page alone.
const firstTouches = `
	SELECT position, lead_id, source, kind, at, credential FROM views.touch`

var (
	sourceEntries = `
	SELECT t.position, o.lead_id, t.source, t.at, seen.latest, seen.arrivals, t.credential, coalesce(p.metadata, '{}'),
	  coalesce(p.ip, ''),
	       coalesce(p.user_agent, ''), coalesce(p.request_id, ''), coalesce(p.changed, '[]')
	  FROM page t
	  LEFT JOIN views.touch_personal p ON p.position = t.position` + survivors + `
	 CROSS JOIN LATERAL (
	       SELECT max(a.at) AS latest, count(*) AS arrivals
	         FROM views.touch a
	        WHERE a.position IN (` + schema.TouchesOf("views.", "o.lead_id") +
		`) AND a.source = t.source AND NOT a.erased) AS seen
	 ORDER BY `

	// survivors has the lead that touches t belong to after joins and splits. OFFSET 0 has PostgreSQL look for it once,
	// and not wherever it is used.
	survivors = `
	 CROSS JOIN LATERAL (SELECT ` + schema.OwnerOf("views.", "t", lastPosition) + ` OFFSET 0) AS o (lead_id)`
)

// lastPosition is behind all events.
const lastPosition = "9223372036854775807"

// Sources lists where all of an account's leads came from, in the order in which each source was first seen. The error
// is ErrCursor for a cursor of another list.
func (r *Reader) Sources(ctx context.Context, account string, filter SourceFilter, p Page) (List[SourceEntry], error) {
	s, kind := filter.selection(account, `at, position`), cursorOf(historyCursor, account)
	s.then = sourceEntries + `t.at, t.position`
	if p.Cursor != "" {
		last, err := decodeTimeCursor(kind, p.Cursor)
		if err != nil {
			return List[SourceEntry]{}, err
		}
		s.and(`(at, position) > (?, ?)`, last.at, last.position)
	}
	found, err := page(ctx, r, s, p.Limit, scanSourceEntry, func(e positioned[SourceEntry]) string {
		return timeCursor{time.Time(e.item.FirstSeenAt), e.position}.encode(kind)
	})
	return itemsOf(found), err
}

func (f SourceFilter) selection(account, order string) selection {
	s := selection{from: firstTouches, order: order}
	s.and(`account = ?`, account)
	s.and(`kind <> 'visit' AND source <> ''`) // those of indexes
	s.and(`first AND NOT erased`)
	s.equal(`source`, f.Source)
	s.within(`at`, f.Since, f.Until)
	return s
}

// SourcesAll yields everything that Sources lists, in constant memory. It ends after yielding an error.
func (r *Reader) SourcesAll(ctx context.Context, account string, filter SourceFilter) iter.Seq2[SourceEntry, error] {
	return All(func(p Page) (List[SourceEntry], error) { return r.Sources(ctx, account, filter, p) })
}

// Ends of a report without ends of its own, within what PostgreSQL and answers can hold.
var (
	firstDay = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	lastDay  = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
)

// sourceReport adds up two views. One may be ahead of the other for a moment; no row of either is lost.
const sourceReport = `
	SELECT start, source, sum(created)::bigint, sum(merged)::bigint, sum(refused)::bigint, sum(leads)::bigint,
	       trim_scale(sum(value))::text
	  FROM (SELECT date_trunc($2, day::timestamp)::date AS start, source, created, merged, refused, leads, value
	          FROM (SELECT day, source, created, merged, refused, 0 AS leads, 0 AS value
	                  FROM views.source_day WHERE account = $1 AND day >= $3::date AND day < $4::date
	                   AND created + merged + refused > 0
	                 UNION ALL
	                SELECT day, source, 0, 0, 0, leads, value
	                  FROM views.won_day WHERE account = $1 AND day >= $3::date AND day < $4::date) AS days
	         WHERE $5 = '' OR source = $5) AS counted
	 WHERE (start, source) > ($6::date, $7)
	 GROUP BY start, source
	 ORDER BY start, source
	 LIMIT $8`

// SourceReport counts arrivals by outcome, per interval and source, in that order. The error is ErrCursor for a cursor
// of another list.
func (r *Reader) SourceReport(
	ctx context.Context, account string, filter ReportFilter, p Page,
) (List[SourceCount], error) {
	start, source, err := decodeReport(cursorOf(reportCursor, account), p.Cursor)
	if err != nil {
		return List[SourceCount]{}, err
	}
	since, until := filter.days()
	if start.After(since) { // the page before had all that is earlier
		since = start
	}
	if !storable(filter.Source) || !storable(source) {
		return List[SourceCount]{}, nil
	}
	rows, err := r.pool.Query(ctx, sourceReport, account, filter.Interval, since, until,
		filter.Source, start, source, p.Limit+1)
	if err != nil {
		return List[SourceCount]{}, schema.Unavailable(err)
	}
	counts, err := pgx.CollectRows(rows, scanSourceCount)
	if err != nil {
		return List[SourceCount]{}, schema.Unavailable(err)
	}
	return cut(counts, p.Limit, func(c SourceCount) string {
		return encodeCursor(cursorOf(reportCursor, account), strconv.FormatInt(day(c.From), 10), c.Source)
	}), nil
}

// days are the first day that counts and the first one after the last.
func (f ReportFilter) days() (since, until time.Time) {
	since, until = firstDay, lastDay
	if !f.Since.IsZero() {
		since = f.Since.UTC().Truncate(24 * time.Hour)
	}
	if !f.Until.IsZero() {
		until = f.Until.UTC().Add(24*time.Hour - 1).Truncate(24 * time.Hour)
	}
	return since, until
}

func scanSourceCount(row pgx.CollectableRow) (SourceCount, error) {
	var c SourceCount
	var value string
	err := row.Scan((*time.Time)(&c.From), &c.Source, &c.Created, &c.Merged, &c.Refused, &c.Won, &value)
	c.Value = jsontext.Value(value)
	return c, err
}

// day is a day's number, counted from the first of the year 1.
func day(t Timestamp) int64 { return (time.Time(t).Unix() - firstDay.Unix()) / (24 * 60 * 60) }

// decodeReport returns the interval and source after which a report continues: its beginning without a cursor.
func decodeReport(kind, cursor string) (start time.Time, source string, err error) {
	if cursor == "" {
		return firstDay.AddDate(-1, 0, 0), "", nil
	}
	parts, err := decodeCursor(kind, cursor, 2)
	if err != nil {
		return start, "", err
	}
	n, err := decimal(parts[0])
	if err != nil || n > day(Timestamp(lastDay)) {
		return start, "", ErrCursor
	}
	return firstDay.AddDate(0, 0, int(n)), parts[1], nil
}

// DayCount counts a day's arrivals from one source, by outcome. Days are in UTC.
type DayCount struct {
	Day     time.Time
	Source  string
	Created int
	Merged  int
	Refused int
}

// Days counts an account's arrivals from a day on, by day and source.
func (r *Reader) Days(ctx context.Context, account string, since time.Time) ([]DayCount, error) {
	rows, err := r.pool.Query(ctx, `
		SELECT day, source, created, merged, refused FROM views.source_day
		 WHERE account = $1 AND day >= $2::date ORDER BY day, source`, account, since)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	days, err := pgx.CollectRows(rows, pgx.RowToStructByPos[DayCount])
	return days, schema.Unavailable(err)
}

// FirstDay returns the first day on which something arrived at an account, the zero time if nothing did.
func (r *Reader) FirstDay(ctx context.Context, account string) (time.Time, error) {
	var first *time.Time
	err := r.pool.QueryRow(ctx, `SELECT min(day) FROM views.source_day WHERE account = $1`, account).Scan(&first)
	if err != nil || first == nil {
		return time.Time{}, schema.Unavailable(err)
	}
	return *first, nil
}

// Between is how long leads took from their first touch until a source touched them too.
type Between struct {
	Source string
	Leads  int
	Median time.Duration
}

// latestTouches bounds the cost of BetweenTouches.
const latestTouches = 2000

// BetweenTouches returns, by source, how long after a lead's first touch a later one came. It considers the latest
// 2,000 touches of the period, of all sources together.
func (r *Reader) BetweenTouches(ctx context.Context, account string, since, until time.Time) ([]Between, error) {
	filter := SourceFilter{Since: since, Until: until}
	s := filter.selection(account, `at DESC, position DESC`)
	rows, err := r.pool.Query(ctx, `
		WITH entry AS (SELECT t.*, o.lead_id AS owner FROM (`+s.sql(latestTouches)+`) t`+survivors+`),
		begun AS (
		SELECT owner, (SELECT min(a.at) FROM views.touch a
		  WHERE a.position IN (`+schema.TouchesOf("views.", "lead.owner")+`)) AS at
		  FROM (SELECT DISTINCT owner FROM entry) AS lead)
		SELECT t.source, count(*), extract(epoch FROM percentile_disc(0.5) WITHIN GROUP (ORDER BY t.at - b.at))::float8
		  FROM entry t JOIN begun b ON b.owner = t.owner
		 WHERE t.at > b.at
		 GROUP BY t.source ORDER BY t.source`, s.args...)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (b Between, err error) {
		var seconds float64
		err = row.Scan(&b.Source, &b.Leads, &seconds)
		b.Median = time.Duration(seconds * float64(time.Second))
		return b, err
	})
	return found, schema.Unavailable(err)
}

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
func (r *Reader) Refused(
	ctx context.Context, account string, filter RefusedFilter, p Page,
) (List[RefusedArrival], error) {
	s := selection{
		from: `SELECT position, at, source, code, lead_id, nullif(other_lead_id, ''), credential, request_id
			FROM views.refused`,
		order: `position`, table: `views.refused`,
	}
	s.and(`account = ?`, account)
	if filter.Source+filter.Code != "" {
		s.narrow = func(s *selection) {
			s.equal(`source`, filter.Source)
			s.equal(`code`, filter.Code)
		}
	}
	if err := r.arrived(ctx, &s, account, filter.Since, filter.Until); err != nil {
		return List[RefusedArrival]{}, err
	}
	return pageByPosition(ctx, r, s, cursorOf(refusedCursor, account), p, scanRefused)
}

const (
	// clockSkew is the maximum difference of the clocks of processes that append. A list by time misses nothing up to
	// that. It exceeds the difference of any two time zones. Lists for auditors do not depend on clocks.
	clockSkew = 24 * time.Hour
	// nearPositions is the length of a range that is read and not halved again.
	nearPositions = 500
)

// arrived adds the condition that an account's refused arrivals are not earlier than one time, and earlier than
// another; a zero time sets no bound. Without bounds on positions, PostgreSQL would scan the account's rows from the
// beginning.
func (r *Reader) arrived(ctx context.Context, s *selection, account string, since, until time.Time) error {
	s.within(`at`, since, until)
	if !storable(account) {
		return nil // nothing matches
	}
	if !since.IsZero() {
		earlier, _, err := r.bisectPosition(ctx, account, since.Add(-clockSkew))
		if err != nil {
			return err
		}
		s.and(`position > ?`, earlier)
	}
	if !until.IsZero() {
		_, last, err := r.bisectPosition(ctx, account, until.Add(clockSkew))
		if err != nil {
			return err
		}
		s.and(`position <= ?`, last)
	}
	return nil
}

// bisectPosition finds, by bisection, a position up to which an account's refused arrivals are earlier than a time, and
// a later position after which they are not. Times grow with positions, except for the difference of clocks. The
// account's last row is after every middle, so the row that follows a middle always belongs to the account.
func (r *Reader) bisectPosition(ctx context.Context, account string, at time.Time) (before, last int64, err error) {
	err = r.pool.QueryRow(ctx, `
		WITH RECURSIVE half (before, last) AS (
		    SELECT 0::bigint, coalesce((SELECT max(position) FROM views.refused WHERE account = $1), 0)
		     UNION ALL
		    SELECT CASE WHEN at < $2 THEN position ELSE before END, CASE WHEN at < $2 THEN last
		    ELSE (before + last) / 2 END
		      FROM half CROSS JOIN LATERAL (
		           SELECT position, at FROM views.refused
		            WHERE (account, position) > ($1, (before + last) / 2) ORDER BY account, position LIMIT 1) AS next
		     WHERE last - before > $3
		)
		SELECT before, last FROM half ORDER BY last - before
		LIMIT 1`, pgx.QueryExecModeCacheDescribe, account, at, nearPositions).Scan(&before, &last)
	return before, last, schema.Unavailable(err)
}

func scanRefused(row pgx.CollectableRow) (positioned[RefusedArrival], error) {
	var a positioned[RefusedArrival]
	err := row.Scan(&a.position, &a.item.At, &a.item.Source, &a.item.Code, &a.item.LeadID, &a.item.OtherLeadID,
		&a.item.Credential, &a.item.RequestID)
	return a, err
}

func scanSourceEntry(row pgx.CollectableRow) (positioned[SourceEntry], error) {
	var e positioned[SourceEntry]
	var credential string
	err := row.Scan(&e.position, &e.item.LeadID, &e.item.Source, &e.item.FirstSeenAt, &e.item.LastSeenAt,
		&e.item.Arrivals, &credential, (*[]byte)(&e.item.Metadata), &e.item.IP, &e.item.UserAgent,
		&e.item.RequestID, jsonOf{&e.item.Changed})
	e.item.Credential = newCredential(attribution.EventCredential(credential))
	return e, err
}

// newCredential splits a credential as events write it: token:{tokenId} or jwt:{sub}. A subject may contain colons.
func newCredential(written string) Credential {
	kind, id, _ := strings.Cut(written, ":")
	return Credential{Kind: kind, ID: id}
}

// ScanText reads a column.
func (c *Credential) ScanText(written pgtype.Text) error {
	*c = newCredential(written.String)
	return nil
}
