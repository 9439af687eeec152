package query

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/projection/schema"
)

// A search, be it for a part of what leads are called or for those of a temperature, goes over an account's leads newest
// first, until a page is full: over those that are in no block of views.lead_block yet, and then block by block over the
// rest, without the blocks that say that there is nothing to be found.

const (
	firstBlocks = 8   // are searched by one statement,
	timesBlocks = 4   // by each after it so many times more,
	mostBlocks  = 512 // and not more than so many, which is some 15 ms of PostgreSQL
	// fewLeads of a source or a stage are rather looked at one by one.
	fewLeads = 10_000
)

// searches tells whether a list is one that search makes.
func (r *Reader) searches(ctx context.Context, account string, filter LeadFilter) (bool, error) {
	if filter.Q+filter.LeadTemperature == "" || filter.Phone+filter.Email != "" {
		return false, nil
	}
	for _, beside := range []LeadFilter{{Source: filter.Source}, {Status: filter.Status}} {
		if beside == (LeadFilter{}) {
			continue
		}
		s := beside.selection(account, `SELECT FROM views.lead`, `created_at`)
		many, err := one(ctx, r, pgx.RowTo[bool], `SELECT count(*) = `+strconv.Itoa(fewLeads)+` FROM (`+s.sql(fewLeads)+`) AS l`, s.args...)
		if err != nil || !many {
			return false, err
		}
	}
	return true, nil
}

// search is a search in the making.
type search struct {
	among  string // the statement, but for which blocks
	behind []any  // its arguments
	bits   string // condition on a block
	args   []any  // of both
	limit  int

	found  []Lead
	before pgtype.Timestamptz // leads created before it are left
}

// newSearch searches what leads selects by a filter, before a moment if there is one.
func newSearch(leads selection, filter LeadFilter, before time.Time, limit int) *search {
	lower, upper := pgtype.Timestamptz{Valid: true, InfinityModifier: pgtype.NegativeInfinity}, pgtype.Timestamptz{Valid: true, InfinityModifier: pgtype.Infinity}
	if !filter.CreatedSince.IsZero() {
		lower = pgtype.Timestamptz{Valid: true, Time: filter.CreatedSince}
	}
	for _, end := range []time.Time{filter.CreatedUntil, before} {
		if !end.IsZero() && (upper.InfinityModifier == pgtype.Infinity || end.Before(upper.Time)) {
			upper = pgtype.Timestamptz{Valid: true, Time: end}
		}
	}
	s := &search{limit: limit, args: leads.args}
	arg := func(value any) string {
		s.args = append(s.args, value)
		return `$` + strconv.Itoa(len(s.args))
	}
	from, to := arg(lower), arg(upper)
	leads.and(`created_at >= greatest(b.since, ` + from + `) AND created_at < least(b.until, ` + to + `)`)
	leads.from = `SELECT state, created_at, lead_id FROM views.lead`
	if filter.Q != "" {
		// The index on what is searched tells by itself when leads that match were created. Then these are looked up.
		moments := `SELECT DISTINCT created_at FROM views.lead
			         WHERE account = $1 AND search LIKE ` + arg(contains(strings.ToLower(filter.Q))) + ` AND ` + leads.where[len(leads.where)-1] + `
			         ORDER BY created_at DESC`
		leads.from = `SELECT state, created_at, lead_id FROM (` + moments + `) AS moments JOIN views.lead USING (created_at)`
	}
	s.among = `
		SELECT b.since, l.state FROM (%s) AS b LEFT JOIN LATERAL (` + leads.sql(limit) + `) AS l ON true
		 ORDER BY b.until DESC, l.created_at DESC, l.lead_id DESC LIMIT `
	s.behind = s.args
	bits := []string{`true`}
	has := func(bit uint32) { bits = append(bits, `get_bit(grams, `+arg(int32(bit))+`) = 1`) }
	if filter.Q != "" {
		for _, bit := range schema.GramsOf(strings.ToLower(filter.Q)) {
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
	behindBlocks = `SELECT coalesce((SELECT until FROM views.lead_block WHERE account = $1 ORDER BY until DESC LIMIT 1), '-infinity') AS since,
	                       timestamptz 'infinity' AS until`
	someBlocks = `SELECT since, until FROM views.lead_block WHERE account = $1 AND until <= %s AND %s ORDER BY until DESC LIMIT %d`
)

// run returns the leads that a page has and one that shows that more follow. All of it sees one state of the database: a
// replay may put another table in the place of the blocks.
func (s *search) run(ctx context.Context, tx pgx.Tx) error {
	if _, err := s.step(ctx, tx, behindBlocks, 1, s.behind...); err != nil {
		return err
	}
	for most := firstBlocks; len(s.found) < s.limit; most = min(timesBlocks*most, mostBlocks) {
		args := append(s.args[:len(s.args):len(s.args)], s.before)
		blocks := fmt.Sprintf(someBlocks, `$`+strconv.Itoa(len(args)), s.bits, most)
		if searched, err := s.step(ctx, tx, blocks, most, args...); err != nil || searched < most {
			return err
		}
	}
	return nil
}

// step searches blocks, which are no more than most, and tells how many there were.
func (s *search) step(ctx context.Context, tx pgx.Tx, blocks string, most int, args ...any) (searched int, err error) {
	rows, err := tx.Query(ctx, fmt.Sprintf(s.among, blocks)+strconv.Itoa(s.limit+most), args...)
	if err != nil {
		return 0, err
	}
	var since pgtype.Timestamptz
	var encoded []byte
	_, err = pgx.ForEachRow(rows, []any{&since, &encoded}, func() error {
		if since != s.before {
			searched, s.before = searched+1, since
		}
		if encoded == nil || len(s.found) == s.limit {
			return nil
		}
		var state lead.State
		if err := json.Unmarshal(encoded, &state); err != nil {
			return fmt.Errorf("state of a lead: %w", err)
		}
		s.found = append(s.found, NewLead(state))
		return nil
	})
	return searched, err
}
