package query

import (
	"context"
	"errors"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/projection/schema"
)

// A search is a list with a filter that no index answers by itself: a part of a name, phone or email, a temperature, or
// a source and a stage together. It scans leads from the newest on, by an index that contains all columns of the
// filter. If the newest leads do not fill the page, a text search continues in the trigram index of views.lead_search,
// which has all leads but some of the newest. A page ends after a number of scanned leads, however many match, and the
// next page continues after them.

const (
	// scannedLeads is how many of the newest leads a search for a text goes through: some 10 ms of PostgreSQL.
	scannedLeads = 10_000
	// scansOfPage is how many times as many leads a page goes through at most: some 30 ms.
	scansOfPage = 10
	// trigram is how many characters a text has for which the index helps.
	trigram = 3
	// rareText is one in how many leads have a text for which the trigram index is used although the lead must have
	// something else too.
	rareText = 100
)

// Indexes of leads, each in the order of their creation.
const (
	byCreation = "created_at"
	bySource   = "source"
	byStatus   = "status"
)

// searches reports whether a list needs a search.
func (filter LeadFilter) searches() bool {
	return filter.Phone+filter.Email == "" && filter.Contacts == 0 &&
		(filter.Q+filter.LeadTemperature+filter.Consent != "" || filter.Source != "" && filter.Status != "")
}

// found are the leads of a page of a search.
type found struct {
	pageBuilder[Lead]
	reach time.Time // all leads since were compared; zero: all leads were, or the page is full
}

// search finds leads of a page, and one more if more follow, among those that were created before a moment, unless it
// is zero. It runs in one snapshot: leads get into the index meanwhile.
func (r *Reader) search(
	ctx context.Context, tx pgx.Tx, account string, filter LeadFilter, leads selection, before time.Time, limit int,
) (page found, err error) {
	page.limit = limit
	// A scan follows an index and ends, whatever PostgreSQL knows of the table.
	_, err = tx.Exec(ctx, `
		SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
		  set_config('enable_sort', 'off', true)`)
	if err != nil {
		return page, err
	}
	by, few, err := r.moreSelectiveIndex(ctx, tx, account, filter, before)
	if err != nil {
		return page, err
	}
	if filter.Q != "" && !few {
		by = byCreation // the only one that has the text
	}
	text := by == byCreation && utf8.RuneCountInString(filter.Q) >= trigram
	for _, n := range []int{r.scannedLeads, (scansOfPage - 1) * r.scannedLeads} {
		reach, err := r.afterScan(ctx, tx, account, filter.only(by), before, n)
		if err != nil {
			return page, err
		}
		if err := page.read(ctx, tx, scanned(leads, account, filter, by, reach, before, limit)); err != nil ||
			page.more || reach.IsZero() {
			return page, err
		}
		if text {
			answers, err := r.indexAnswers(ctx, tx, account, filter, reach, before)
			if err != nil {
				return page, err
			}
			if answers {
				// the only way to read a trigram index
				if _, err := tx.Exec(ctx, `SET LOCAL enable_bitmapscan TO on`); err != nil {
					return page, err
				}
				return page, page.read(ctx, tx, indexed(leads, account, filter, reach, limit))
			}
		}
		before = reach
	}
	page.reach = before
	return page, nil
}

// read adds the leads that a selection finds.
func (page *found) read(ctx context.Context, tx pgx.Tx, leads selection) error {
	rows, err := tx.Query(ctx, leads.sql(page.limit+1), append([]any{pgx.QueryExecModeCacheDescribe}, leads.args...)...)
	if err != nil {
		return err
	}
	return page.addRows(rows, scanListedLead)
}

// moreSelectiveIndex returns the index of the source or of the stage that a filter has: of two, the one that fewer
// leads have. Few reports whether one scan covers all of these.
func (r *Reader) moreSelectiveIndex(
	ctx context.Context, tx pgx.Tx, account string, filter LeadFilter, before time.Time,
) (by string, few bool, err error) {
	by = byCreation
	var reach time.Time
	for index, value := range map[string]string{bySource: filter.Source, byStatus: filter.Status} {
		if value == "" {
			continue
		}
		end, err := r.afterScan(ctx, tx, account, filter.only(index), before, r.scannedLeads)
		if err != nil {
			return by, few, err
		}
		if by == byCreation || end.Before(reach) {
			by, few, reach = index, end.IsZero(), end
		}
	}
	return by, few, nil
}

// only returns what an index has of a filter.
func (filter LeadFilter) only(by string) LeadFilter {
	only := LeadFilter{CreatedSince: filter.CreatedSince, CreatedUntil: filter.CreatedUntil}
	switch by {
	case bySource:
		only.Source = filter.Source
	case byStatus:
		only.Status = filter.Status
	}
	return only
}

// indexAnswers reports whether the trigram index is used for the leads that were created before a scan. It is if it has
// all of them, and if those with the text are not many, or need no look at the lead. Of leads that are not in it yet,
// only so many are looked at.
func (r *Reader) indexAnswers(
	ctx context.Context, tx pgx.Tx, account string, filter LeadFilter, reach, before time.Time,
) (answers bool, err error) {
	err = tx.QueryRow(ctx, `
		SELECT coalesce(min(created_at) >= $1, true) AND count(*) <= $2
		  FROM (SELECT created_at FROM views.lead
		         WHERE lead_id > (SELECT coalesce(max(lead_id), '') FROM views.lead_search) ORDER BY lead_id
		         LIMIT $2 + 1) AS missing`,
		reach, scansOfPage*r.scannedLeads).Scan(&answers)
	if err != nil || !answers || filter.textAlone() {
		return answers, err
	}
	text := filter.only(byCreation)
	text.Q, text.Whole = filter.Q, filter.Whole
	s := text.selection(account, `SELECT created_at FROM views.lead`, `created_at DESC`)
	s.within(`created_at`, reach, before)
	var many bool
	err = tx.QueryRow(ctx, `SELECT EXISTS (`+s.sql(1)+` OFFSET `+strconv.Itoa(r.scannedLeads/rareText)+`)`,
		s.args...).Scan(&many)
	return !many, err
}

// textAlone reports whether a search is for a text and nothing else.
func (filter LeadFilter) textAlone() bool {
	return filter.Source+filter.Status+filter.LeadTemperature+filter.Consent == ""
}

// afterScan returns when the first lead was created that is not among the newest of a source, a stage or all; zero if
// there is none.
func (r *Reader) afterScan(
	ctx context.Context, tx pgx.Tx, account string, filter LeadFilter, before time.Time, newest int,
) (at time.Time, err error) {
	s := filter.selection(account, `SELECT created_at FROM views.lead`, `created_at DESC`)
	s.within(`created_at`, time.Time{}, before)
	err = tx.QueryRow(ctx, s.sql(1)+` OFFSET `+strconv.Itoa(newest), s.args...).Scan(&at)
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, nil
	}
	return at, err
}

// scanned selects leads by an index, back to a time. An index-only scan finds when matching leads were created; then
// the leads are read. Further leads may have the same time as the last one of the previous page.
func scanned(
	leads selection, account string, filter LeadFilter, by string, reach, before time.Time, limit int,
) selection {
	moments := selection{
		from: `SELECT DISTINCT created_at AS moment FROM views.lead`, order: `moment DESC`, args: leads.args,
	}
	filter.addConditions(&moments, account, by)
	moments.within(`created_at`, reach, before)
	// The first argument is the account. OFFSET 0 keeps PostgreSQL from reading all leads to join them.
	leads.from = `SELECT ` + schema.LeadColumns + ` FROM (` + moments.sql(limit+2) + `) AS moments
		CROSS JOIN LATERAL (SELECT * FROM views.lead WHERE account = $1 AND created_at = moment OFFSET 0) AS lead`
	leads.args = moments.args
	return leads
}

// indexed selects leads that are earlier than a time by the trigram index. Further conditions are checked lead by lead,
// the newest first, until the page is full. OFFSET 0 prevents PostgreSQL from moving these conditions.
func indexed(leads selection, account string, filter LeadFilter, until time.Time, limit int) selection {
	matches := selection{
		from: `SELECT created_at AS at, lead_id AS id FROM views.lead_search`, order: `at DESC, id DESC`,
		args: leads.args,
	}
	matches.and(`account = ?`, account)
	filter.addText(&matches, `search`)
	matches.within(`created_at`, filter.CreatedSince, until)
	bound := `ALL`
	if filter.textAlone() {
		bound = strconv.Itoa(limit + 1)
	}
	leads.from = `SELECT ` + schema.LeadColumns + ` FROM (` + matches.upTo(bound) + `) AS matches CROSS JOIN LATERAL (
		SELECT * FROM views.lead WHERE lead_id = id AND created_at = at OFFSET 0) AS lead`
	leads.order, leads.args = matches.order, matches.args
	return leads
}
