package view

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/projection"
)

// The table lead_search has a row for each lead with the text that searches look through, and a trigram index on it. New rows cost the
// index more than all other indexes of a lead together, so they are added in the background, in the order of the leads' ids. Searches
// look at leads that are not in it yet one by one.

const (
	searchTable = "lead_search"
	// indexedAtOnce bounds how long the view waits for the index: some 10 ms.
	indexedAtOnce = 500
	// indexingShare is how many times as long as it took to add rows the next ones wait while events come.
	indexingShare = 9
)

// searchIndexing is the work on lead_search that is left for one session.
type searchIndexing struct {
	pending     bool      // there may be leads that are not in it
	busy        bool      // events have come since the last rows were added
	pausedUntil time.Time // a batch is followed by a pause, so that the index takes a tenth of the time
}

// Maintenance implements projection.Maintainer.
func (Lead) Maintenance() projection.Maintenance { return &searchIndexing{pending: true} }

// Note implements projection.Maintenance.
func (s *searchIndexing) Note(events []projection.Event) {
	s.busy = true
	for i := range events {
		s.pending = s.pending || events[i].Revision == 0
	}
}

// Due implements projection.Maintenance.
func (s *searchIndexing) Due() bool { return s.pending && !time.Now().Before(s.pausedUntil) }

// Pending implements projection.Maintenance.
func (s *searchIndexing) Pending() bool { return s.pending }

// Run implements projection.Maintenance.
func (s *searchIndexing) Run(ctx context.Context, tx pgx.Tx) error {
	began := time.Now()
	added, err := tx.Exec(ctx, `
		INSERT INTO lead_search (lead_id, account, created_at, search)
		SELECT lead_id, account, created_at, search FROM lead
		 WHERE lead_id > (SELECT coalesce(max(lead_id), '') FROM lead_search) ORDER BY lead_id LIMIT $1`, indexedAtOnce)
	if err != nil {
		return err
	}
	s.pending = added.RowsAffected() == indexedAtOnce
	if s.busy {
		s.pausedUntil = time.Now().Add(indexingShare * time.Since(began))
	}
	s.busy = false
	return nil
}

// indexLate adds leads whose ids are lower than that of a lead that is in lead_search already, as when processes have different clocks.
func indexLate(ctx context.Context, tx pgx.Tx, leads []lead.State) error {
	if len(leads) == 0 {
		return nil
	}
	var last string
	if err := tx.QueryRow(ctx, `SELECT coalesce(max(lead_id), '') FROM lead_search`).Scan(&last); err != nil {
		return err
	}
	var late []string
	for i := range leads {
		if leads[i].Phase == lead.Live && leads[i].ID < last {
			late = append(late, leads[i].ID)
		}
	}
	if len(late) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO lead_search (lead_id, account, created_at, search)
		SELECT lead_id, account, created_at, search FROM lead WHERE lead_id = ANY ($1)`, late)
	return err
}

// indexChanged changes the rows of leads that are found by another text now. Those that are not in lead_search yet have none.
func indexChanged(ctx context.Context, tx pgx.Tx, before, after []lead.State) error {
	var ids, texts []string
	for i := range before {
		if text := searched(&after[i]); after[i].Phase == lead.Live && text != searched(&before[i]) {
			ids, texts = append(ids, after[i].ID), append(texts, text)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		UPDATE lead_search AS s SET search = n.search FROM unnest($1::text[], $2::text[]) AS n (lead_id, search)
		 WHERE s.lead_id = n.lead_id`, ids, texts)
	return err
}

// DerivedTables implements projection.Maintainer.
func (Lead) DerivedTables() []string { return []string{searchTable} }

// CompareDerived implements projection.Maintainer. Every lead up to the last of lead_search has a row there, and no other.
func (Lead) CompareDerived(ctx context.Context, tx pgx.Tx, live string, most int) ([]projection.Difference, error) {
	in := pgx.Identifier{live}.Sanitize() + `.`
	rows, err := tx.Query(ctx, `
		SELECT lead_id, CASE WHEN s.search IS NULL THEN 'is missing' WHEN l.search IS NULL THEN 'is of no lead' ELSE 'does not match its lead' END
		  FROM (SELECT lead_id, account, created_at, search FROM `+in+`lead WHERE lead_id <= (SELECT max(lead_id) FROM `+in+`lead_search)) AS l
		  FULL JOIN `+in+`lead_search AS s USING (lead_id)
		 WHERE (l.account, l.created_at, l.search) IS DISTINCT FROM (s.account, s.created_at, s.search)
		 ORDER BY lead_id LIMIT $1`, most)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (projection.Difference, error) {
		d := projection.Difference{Table: searchTable}
		return d, row.Scan(&d.Key, &d.What)
	})
}
