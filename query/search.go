package query

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/leadlog/leadlog/projection/schema"
)

// A search is a list with a filter that no index answers by itself: a part of a name, phone or email, a temperature, or a source
// and a stage together. It goes through an account's leads from the newest on, in the index of one source, of one stage or of all
// leads, until a page is full.
//
// views.lead_block summarises leads in blocks, each with a Bloom filter that shows what none of its leads has. Where this helps, a
// search first goes through the leads that are in no block yet, and then through those in blocks that can contain a match.

const (
	firstBlocks = 8   // are searched by one statement,
	timesBlocks = 4   // by each after it so many times more,
	mostBlocks  = 512 // and not more than so many, which is some 10 ms of PostgreSQL
	// fewLeads of a source or a stage are rather looked at one by one, and so are timesFew as many, as their times tell: it
	// takes 10 ms, and blocks three times as long when they have something of what is frequent.
	fewLeads = 10_000
	timesFew = 10
)

// plan is how a search is carried out.
type plan struct {
	by  string // the filter whose index it goes by; empty: that of all leads
	few bool   // no blocks are asked
}

// searches reports whether a list needs a search.
func (filter LeadFilter) searches() bool {
	return filter.Phone+filter.Email == "" && (filter.Q+filter.LeadTemperature != "" || filter.Source != "" && filter.Status != "")
}

// planOf chooses between source and stage: it takes the one that fewer leads have. That is estimated by how far back in time
// its 10,000th lead is, if it has so many.
func (r *Reader) planOf(ctx context.Context, account string, f LeadFilter) (p plan, err error) {
	var reaches time.Time
	p.few = f.Q+f.LeadTemperature == "" // no block would tell anything
	for _, by := range []string{bySource, byStatus} {
		one := LeadFilter{Source: f.Source}
		if by == byStatus {
			one = LeadFilter{Status: f.Status}
		}
		if one == (LeadFilter{}) {
			continue
		}
		one.CreatedSince, one.CreatedUntil = f.CreatedSince, f.CreatedUntil
		s := one.selection(account, `SELECT created_at FROM views.lead`, `created_at DESC`)
		rows, err := r.pool.Query(ctx, s.sql(1)+` OFFSET `+strconv.Itoa(r.few-1), s.args...)
		if err != nil {
			return p, schema.Unavailable(err)
		}
		last, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
		if err != nil {
			return p, schema.Unavailable(err)
		}
		if len(last) == 0 {
			return plan{by: by, few: true}, nil
		}
		if p.by == "" || last[0].Before(reaches) {
			p.by, reaches = by, last[0]
		}
	}
	if p.by != "" && !p.few {
		span := LeadFilter{CreatedSince: f.CreatedSince, CreatedUntil: f.CreatedUntil}.selection(account, `SELECT min(created_at), max(created_at) FROM views.lead`, `1`)
		var first, last time.Time
		if err := r.pool.QueryRow(ctx, span.sql(1), span.args...).Scan(&first, &last); err != nil {
			return p, schema.Unavailable(err)
		}
		p.few = timesFew*last.Sub(reaches) > last.Sub(first)
	}
	return p, nil
}

// search is a search while it is built and run.
type search struct {
	plan  plan
	among string // the statement, but for which blocks
	times []any  // its arguments
	bits  string // condition on a block
	args  []any  // of both

	found  pageBuilder[Lead]
	before pgtype.Timestamptz // leads created before it are left
}

// newSearch prepares a search for leads that match a filter, before a moment if one is given.
func newSearch(leads selection, account string, filter LeadFilter, p plan, before time.Time, limit int) *search {
	lower, upper := pgtype.Timestamptz{Valid: true, InfinityModifier: pgtype.NegativeInfinity}, pgtype.Timestamptz{Valid: true, InfinityModifier: pgtype.Infinity}
	if !filter.CreatedSince.IsZero() {
		lower = pgtype.Timestamptz{Valid: true, Time: filter.CreatedSince}
	}
	for _, end := range []time.Time{filter.CreatedUntil, before} {
		if !end.IsZero() && (upper.InfinityModifier == pgtype.Infinity || end.Before(upper.Time)) {
			upper = pgtype.Timestamptz{Valid: true, Time: end}
		}
	}
	const within = `created_at >= span.since AND created_at < span.until`
	moments := selection{from: `SELECT DISTINCT created_at FROM views.lead`, order: `created_at DESC`, args: leads.args, where: []string{within}}
	filter.CreatedSince, filter.CreatedUntil = time.Time{}, time.Time{}
	filter.narrow(&moments, account, p.by)
	// The index alone tells when matching leads were created; only then are the leads looked up. More leads may be of the
	// moment that the previous page ended in.
	leads.from = `SELECT ` + schema.LeadColumns + ` FROM (` + moments.sql(limit+2) + `) AS moments JOIN views.lead USING (created_at)`

	s := &search{plan: p, found: pageBuilder[Lead]{limit: limit}, args: moments.args, before: upper}
	arg := func(value any) string {
		s.args = append(s.args, value)
		return `$` + strconv.Itoa(len(s.args))
	}
	from, to := arg(lower), arg(upper)
	s.among = `
		WITH block AS (%s),
		     span AS (SELECT greatest(min(since), ` + from + `) AS since, least(max(until), ` + to + `) AS until
		                FROM (SELECT since, until, count(*) FILTER (WHERE apart) OVER (ORDER BY until DESC) AS ordinal
		                        FROM (SELECT since, until, until <> lag(since) OVER (ORDER BY until DESC) AS apart FROM block) AS b) AS b
		               GROUP BY ordinal)
		SELECT searched, since, ` + schema.LeadColumns + `
		  FROM (SELECT count(*) AS searched, min(since) AS since FROM block) AS b
		  LEFT JOIN (SELECT l.* FROM span CROSS JOIN LATERAL (` + leads.sql(limit+1) + `) AS l) AS l ON true
		 ORDER BY created_at DESC, lead_id DESC LIMIT ` + strconv.Itoa(limit+1)
	if s.times = s.args; p.few {
		return s
	}
	bits := []string{`true`}
	has := func(bit uint32) { bits = append(bits, `get_bit(grams, `+arg(int32(bit))+`) = 1`) }
	if filter.Q != "" {
		for _, bit := range schema.GramsOf(schema.Searched(filter.Q)) {
			has(bit)
		}
	}
	if filter.LeadTemperature != "" {
		for _, bit := range schema.WordBits(strings.ToLower(filter.LeadTemperature), filter.Source) {
			has(bit)
		}
	}
	s.bits = `until > ` + from + ` AND since < ` + to + ` AND CASE WHEN grams IS NULL THEN true ELSE ` + strings.Join(bits, ` AND `) + ` END`
	return s
}

const (
	allTime      = `SELECT timestamptz '-infinity' AS since, timestamptz 'infinity' AS until`
	behindBlocks = `SELECT coalesce((SELECT until FROM views.lead_block WHERE account = $1 ORDER BY until DESC LIMIT 1), '-infinity') AS since,
	                       timestamptz 'infinity' AS until`
	someBlocks = `SELECT since, until FROM views.lead_block WHERE account = $1 AND until <= %s AND %s ORDER BY until DESC LIMIT %d`
)

// run finds the leads of a page, and one more if more follow. It runs in one snapshot: a replay may replace the table of
// blocks meanwhile.
func (s *search) run(ctx context.Context, tx pgx.Tx) error {
	if s.plan.few {
		_, err := s.step(ctx, tx, allTime, s.times...)
		return err
	}
	if _, err := s.step(ctx, tx, behindBlocks, s.times...); err != nil {
		return err
	}
	for most := firstBlocks; !s.found.more; most = min(timesBlocks*most, mostBlocks) {
		args := append(s.args[:len(s.args):len(s.args)], s.before)
		blocks := fmt.Sprintf(someBlocks, `$`+strconv.Itoa(len(args)), s.bits, most)
		if searched, err := s.step(ctx, tx, blocks, args...); err != nil || searched < most {
			return err
		}
	}
	return nil
}

// step searches some blocks and returns how many there were.
func (s *search) step(ctx context.Context, tx pgx.Tx, blocks string, args ...any) (searched int, err error) {
	rows, err := tx.Query(ctx, fmt.Sprintf(s.among, blocks), args...)
	if err != nil {
		return 0, err
	}
	var row schema.LeadRow
	_, err = pgx.ForEachRow(rows, append([]any{&searched, &s.before}, row.Into()...), func() error {
		if !row.Found() || !s.found.takes() {
			return nil
		}
		state, err := row.State()
		s.found.add(NewLead(state), sizeOf(rows))
		return err
	})
	return searched, err
}
