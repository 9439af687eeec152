package view

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/projection"
)

// The table lead_search has a row for each lead with its search text, and a trigram index on it. Inserting a row costs
// more in that index than in all other indexes of a lead together, so rows are added in the background, in the order of
// the leads' ids. Searches scan the leads that are not in the table yet.

const (
	searchTable = "lead_search"
	// indexedAtOnce bounds how long a transaction blocks the view: about 10 ms.
	indexedAtOnce = 500
	// indexingShare is the ratio of the pause after adding rows to the time that adding took, while events are
	// appended.
	indexingShare = 9
)

// searchIndexing is the pending work of one session on lead_search.
type searchIndexing struct {
	pending     bool      // there may be leads without a row
	busy        bool      // events were applied since rows were last added
	pausedUntil time.Time // pause after a batch, so that the index takes a tenth of the time
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

// indexLate adds leads with an id below the highest in lead_search, which occurs when clocks of processes differ.
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

// indexChanged updates the rows of leads whose search text has changed. A lead that is not in lead_search yet has no
// row.
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

// CompareDerived implements projection.Maintainer. lead_search must have exactly the leads up to its highest id.
func (Lead) CompareDerived(ctx context.Context, tx pgx.Tx, live string, limit int) ([]projection.Difference, error) {
	in := pgx.Identifier{live}.Sanitize() + `.`
	rows, err := tx.Query(ctx, `
		SELECT lead_id, CASE WHEN s.search IS NULL THEN 'is missing' WHEN l.search IS NULL THEN 'is of no lead'
		ELSE 'does not match its lead' END
		  FROM (SELECT lead_id, account, created_at, search
		    FROM `+in+`lead WHERE lead_id <= (SELECT max(lead_id) FROM `+in+`lead_search)) AS l
		  FULL JOIN `+in+`lead_search AS s USING (lead_id)
		 WHERE (l.account, l.created_at, l.search) IS DISTINCT FROM (s.account, s.created_at, s.search)
		 ORDER BY lead_id LIMIT $1`, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (projection.Difference, error) {
		d := projection.Difference{Table: searchTable}
		return d, row.Scan(&d.Key, &d.What)
	})
}
