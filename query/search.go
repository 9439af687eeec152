package query

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/projection/schema"
)

// A search is a list with a filter that no index answers by itself: a part of a name, phone or email, a temperature, or a source and a
// stage together. It first goes through the newest leads, in an index that has everything that the filter compares. If they do not fill
// a page, a search for a text goes on in the trigram index of views.lead_search. Leads that are not in that yet count as newest.

const (
	// scannedLeads is how many of the newest leads a search for a text goes through: some 10 ms of PostgreSQL.
	scannedLeads = 10_000
	// trigram is how many characters a text has for which the index helps. Shorter ones are looked for in all leads of the account.
	trigram = 3
)

// Indexes of leads, each in the order of their creation.
const (
	byCreation = "created_at"
	bySource   = "source"
	byStatus   = "status"
)

// searches reports whether a list needs a search.
func (filter LeadFilter) searches() bool {
	return filter.Phone+filter.Email == "" && (filter.Q+filter.LeadTemperature != "" || filter.Source != "" && filter.Status != "")
}

// search finds leads of a page, and one more if more follow, among those that were created before a moment, unless it is zero. It runs
// in one snapshot: leads get into the index meanwhile.
func (r *Reader) search(ctx context.Context, tx pgx.Tx, account string, filter LeadFilter, leads selection, before time.Time, limit int) (found pageBuilder[Lead], err error) {
	found.limit = limit
	by, reach := byCreation, time.Time{}
	switch {
	case filter.Q == "":
		by, err = r.rarer(ctx, tx, account, filter, before)
	case utf8.RuneCountInString(filter.Q) >= trigram:
		reach, err = r.scanReach(ctx, tx, account, filter, before)
	}
	if err != nil {
		return found, err
	}
	parts := []selection{scanned(leads, account, filter, by, reach, before, limit)}
	if !reach.IsZero() {
		parts = append(parts, indexed(leads, account, filter, reach, limit))
	}
	for _, part := range parts {
		rows, err := tx.Query(ctx, part.sql(limit+1), append([]any{pgx.QueryExecModeCacheDescribe}, part.args...)...)
		if err != nil {
			return found, err
		}
		if err := found.addRows(rows, scanListedLead); err != nil || found.more {
			return found, err
		}
	}
	return found, nil
}

// rarer returns the index of the source or of the stage that a filter has: of two, the one that fewer leads have.
func (r *Reader) rarer(ctx context.Context, tx pgx.Tx, account string, filter LeadFilter, before time.Time) (by string, err error) {
	switch {
	case filter.Source+filter.Status == "":
		return byCreation, nil
	case filter.Status == "":
		return bySource, nil
	case filter.Source == "":
		return byStatus, nil
	}
	source, status := filter, filter
	source.Status, status.Source = "", ""
	ofSource, err := r.afterScan(ctx, tx, account, source, before)
	if err != nil || ofSource.IsZero() {
		return bySource, err
	}
	ofStatus, err := r.afterScan(ctx, tx, account, status, before)
	if ofStatus.Before(ofSource) {
		return byStatus, err
	}
	return bySource, err
}

// scanReach returns when a search for a text may end its scan: the trigram index has all leads that were created before. Zero is never.
func (r *Reader) scanReach(ctx context.Context, tx pgx.Tx, account string, filter LeadFilter, before time.Time) (reach time.Time, err error) {
	filter.Source, filter.Status = "", ""
	if reach, err = r.afterScan(ctx, tx, account, filter, before); err != nil || reach.IsZero() {
		return reach, err
	}
	err = tx.QueryRow(ctx, `
		SELECT least($1, min(created_at)) FROM views.lead WHERE lead_id > (SELECT coalesce(max(lead_id), '') FROM views.lead_search)`,
		reach).Scan(&reach)
	return reach, err
}

// afterScan returns when the first lead was created that is not among the newest of a source, a stage or all; zero if there is none.
func (r *Reader) afterScan(ctx context.Context, tx pgx.Tx, account string, filter LeadFilter, before time.Time) (at time.Time, err error) {
	filter.Q, filter.LeadTemperature = "", ""
	s := filter.selection(account, `SELECT created_at FROM views.lead`, `created_at DESC`)
	s.within(`created_at`, time.Time{}, before)
	err = tx.QueryRow(ctx, s.sql(1)+` OFFSET `+strconv.Itoa(r.scannedLeads), s.args...).Scan(&at)
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, nil
	}
	return at, err
}

// scanned selects leads by an index, back to a time. The index alone tells when matching leads were created; only then are the leads
// looked up. More leads may be of the moment that the previous page ended in.
func scanned(leads selection, account string, filter LeadFilter, by string, reach, before time.Time, limit int) selection {
	moments := selection{from: `SELECT DISTINCT created_at FROM views.lead`, order: `created_at DESC`, args: leads.args}
	filter.narrow(&moments, account, by)
	moments.within(`created_at`, reach, before)
	leads.from = `SELECT ` + schema.LeadColumns + ` FROM (` + moments.sql(limit+2) + `) AS moments JOIN views.lead USING (created_at)`
	leads.args = moments.args
	return leads
}

// indexed selects leads of before a time by the trigram index.
func indexed(leads selection, account string, filter LeadFilter, until time.Time, limit int) selection {
	found := selection{from: `SELECT created_at, lead_id FROM views.lead_search`, order: leads.order, args: leads.args}
	found.and(`account = ?`, account)
	found.and(`search LIKE ?`, contains(schema.Searched(filter.Q)))
	found.within(`created_at`, filter.CreatedSince, until)
	matches := found.from + ` WHERE ` + strings.Join(found.where, ` AND `)
	if filter.Source+filter.Status+filter.LeadTemperature == "" {
		matches = found.sql(limit + 1)
	}
	leads.from = `SELECT ` + schema.LeadColumns + ` FROM (` + matches + `) AS found JOIN views.lead USING (created_at, lead_id)`
	leads.args = found.args
	return leads
}
