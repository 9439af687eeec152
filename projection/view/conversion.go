package view

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/query/attribution"
)

// A report on conversions reads a row for each, with its touches, and folds the histories of leads that have changed since. The rows are
// built in the background from those of the projector: when a lead has changed, all its rows are rebuilt. conversion_state has the position
// up to which they are built; a report computes later conversions itself.

const (
	conversionTable      = "conversion"
	conversionStateTable = "conversion_state"

	// Each transaction reads at most conversionTouches touches, and writes at most conversionLeads leads at a time.
	conversionTouches = 5000
	conversionLeads   = 500
)

// conversionState is the row of conversion_state.
type conversionState struct {
	position      int64
	account, lead string // leads of the account after this one are still to be built
}

// readState reads the state, which is zero if it was never saved.
func readState(ctx context.Context, tx pgx.Tx, place string) (s conversionState, err error) {
	err = tx.QueryRow(ctx, `SELECT position, account, lead_id FROM `+place+`conversion_state`).Scan(&s.position, &s.account, &s.lead)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return s, err
}

func (s conversionState) save(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, `DELETE FROM conversion_state`); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO conversion_state (position, account, lead_id) VALUES ($1, $2, $3)`, s.position, s.account, s.lead)
	return err
}

// DerivedTables implements projection.Maintainer.
func (Touch) DerivedTables() []string { return []string{conversionTable, conversionStateTable} }

// Maintenance implements projection.Maintainer.
func (Touch) Maintenance() projection.Maintenance { return &conversions{behind: true} }

// conversions is the pending work of one session on conversions.
type conversions struct {
	behind bool      // there may be rows after the state's position
	looked time.Time // when none were found last
}

// Note implements projection.Maintenance.
func (c *conversions) Note(events []projection.Event) { c.behind = c.behind || len(events) > 0 }

// Due implements projection.Maintenance.
func (c *conversions) Due() bool {
	return c.behind && time.Since(c.looked) >= projection.MaintenancePause
}

// Pending implements projection.Maintenance.
func (c *conversions) Pending() bool { return c.behind }

// Run implements projection.Maintenance.
func (c *conversions) Run(ctx context.Context, tx pgx.Tx) error {
	more, err := buildConversions(ctx, tx)
	if err == nil && !more {
		c.behind, c.looked = false, time.Now()
	}
	return err
}

// buildConversions builds some of the missing conversions, and moves the state. It reports whether others are missing. New events wait for
// a second, so that under load there is not one such transaction for each batch.
func buildConversions(ctx context.Context, tx pgx.Tx) (more bool, err error) {
	// Few rows of large tables are read and written, and some tables may have no statistics yet.
	if _, err := tx.Exec(ctx, `SELECT set_config('enable_seqscan', 'off', true), set_config('max_parallel_workers_per_gather', '0', true)`); err != nil {
		return false, err
	}
	state, err := readState(ctx, tx, "")
	if err != nil {
		return false, err
	}
	if state.account != "" {
		return true, state.sweep(ctx, tx)
	}
	var end int64
	err = tx.QueryRow(ctx, `
		WITH later AS (SELECT position FROM touch WHERE position > $1 ORDER BY position OFFSET $2 LIMIT 1)
		SELECT EXISTS (SELECT FROM later), coalesce((SELECT position FROM later),
		       greatest((SELECT max(position) FROM touch), (SELECT max(position) FROM lead_change),
		                (SELECT max(position) FROM touch_join), (SELECT max(position) FROM won_stages), 0))`,
		state.position, conversionTouches).Scan(&more, &end)
	if err != nil || end <= state.position {
		return false, err
	}
	next := conversionState{position: end}
	err = tx.QueryRow(ctx, schema.WonSince("")+` ORDER BY position LIMIT 1`, state.position, end).Scan(&next.account, &next.position)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return false, err
	}
	rows, err := tx.Query(ctx, schema.ChangedSince(""), state.position, next.position, "")
	if err != nil {
		return false, err
	}
	leads, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return false, err
	}
	slices.Sort(leads) // so that rows with near times are written together
	for part := range slices.Chunk(leads, conversionLeads) {
		if err := rebuildConversions(ctx, tx, part); err != nil {
			return false, err
		}
	}
	return more || next.account != "" || next.position < end, next.save(ctx, tx)
}

// leadsStaged selects the leads of account $1, after lead $2, that may ever have been at a won stage.
func leadsStaged(place string) string {
	return `
	SELECT lead_id FROM ` + place + `lead_change WHERE account = $1 AND stage <> '' AND lead_id > $2
	 UNION
	SELECT lead_id FROM ` + place + `conversion WHERE account = $1 AND lead_id > $2
	 UNION
	SELECT lead_id FROM ` + place + `touch WHERE account = $1 AND lead_id > $2 AND kind = 'created'
	   AND stage IN (SELECT jsonb_array_elements_text(stages) FROM ` + place + `won_stages WHERE account = $1)
	   AND EXISTS (SELECT FROM ` + place + `won_stages f, ` + place + `won_stages w WHERE f.account = $1 AND w.account = $1 AND w.stages ? f.first)
	 ORDER BY lead_id LIMIT ` // the limit follows
}

// sweep rebuilds the conversions of some leads of an account whose won stages changed.
func (s conversionState) sweep(ctx context.Context, tx pgx.Tx) error {
	leads, err := stagedLeads(ctx, tx, "", s.account, s.lead)
	if err != nil {
		return err
	}
	if err := rebuildConversions(ctx, tx, leads); err != nil {
		return err
	}
	if len(leads) < conversionLeads {
		return conversionState{position: s.position}.save(ctx, tx)
	}
	s.lead = leads[len(leads)-1]
	return s.save(ctx, tx)
}

func stagedLeads(ctx context.Context, tx pgx.Tx, place, account, after string) ([]string, error) {
	rows, err := tx.Query(ctx, leadsStaged(place)+strconv.Itoa(conversionLeads), account, after)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// conversionKeys are in the order of their columns in conversionColumns.
var conversionKeys = []attribution.Key{
	attribution.BySource, attribution.ByMedium, attribution.ByCampaign, attribution.ByUTMSource, attribution.ByIntake, attribution.ByCredential,
}

var conversionColumns = []string{
	"lead_id", "since", "until", "account", "at", "value", "touches", "source", "medium", "campaign", "utm_source", "intake", "credential",
}

// rebuildConversions rebuilds all rows of leads.
func rebuildConversions(ctx context.Context, tx pgx.Tx, leads []string) error {
	if err := deleteLeads(ctx, tx, "conversion", leads); err != nil || len(leads) == 0 {
		return err
	}
	made, err := conversionRows(ctx, tx, "", leads)
	if err != nil {
		return err
	}
	return made.insert(ctx, tx, "conversion", conversionColumns...)
}

// conversionRows builds all rows of leads.
func conversionRows(ctx context.Context, tx pgx.Tx, place string, leads []string) (made rows, err error) {
	settings := map[string]attribution.Won{}
	var histories []*schema.LeadHistory
	err = schema.Histories(ctx, tx, place, leads, true, func(h *schema.LeadHistory) error {
		histories, settings[h.Account] = append(histories, h), nil
		return nil
	})
	if err != nil {
		return made, err
	}
	accounts := make([]string, 0, len(settings))
	for account := range settings {
		accounts = append(accounts, account)
	}
	if settings, err = schema.WonStages(ctx, tx, place, accounts...); err != nil {
		return made, err
	}
	for _, h := range histories {
		for _, span := range h.Spans(settings[h.Account]) {
			addConversion(&made, h, span)
		}
	}
	return made, nil
}

func addConversion(made *rows, h *schema.LeadHistory, span attribution.Span) {
	made.row(len(conversionColumns))
	made.text(h.LeadID)
	made.bigint(span.Since)
	made.bigint(span.Until)
	made.text(h.Account)
	made.timestamp(time.UnixMilli(span.At))
	made.text(attribution.SumOf(span.Value).Decimal(4))
	// Touches that belong to the lead from until on count only in later rows. Without them, a row of the past never changes.
	counts := func(i int) bool {
		touch := h.Touches[i]
		return touch.Since < span.Until && touch.At <= span.At && touch.At >= span.At-attribution.MaxWindow.Milliseconds()
	}
	made.bytesBy(func(buffer []byte) []byte {
		for i := range h.Touches {
			if counts(i) {
				buffer = schema.AppendTouch(buffer, h.Touches[i])
			}
		}
		return buffer
	})
	for _, key := range conversionKeys {
		made.bytesBy(func(buffer []byte) []byte {
			for i := range h.Touches {
				if counts(i) {
					buffer = schema.AppendKey(buffer, h.Channels[i].Key(key))
				}
			}
			return buffer
		})
	}
}

// CompareDerived implements projection.Maintainer. It builds the conversions of all leads of the live view that have not changed after the
// state's position, and compares them with the stored rows.
func (Touch) CompareDerived(ctx context.Context, tx pgx.Tx, live string, limit int) (found []projection.Difference, err error) {
	place := pgx.Identifier{live}.Sanitize() + `.`
	state, err := readState(ctx, tx, place)
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, `CREATE TEMPORARY TABLE made_conversion (LIKE `+place+`conversion) ON COMMIT DROP`); err != nil {
		return nil, err
	}
	accounts, err := tx.Query(ctx, `SELECT DISTINCT account FROM `+place+`touch WHERE account <> $1`, state.account)
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(accounts, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	for _, account := range names {
		for after := ""; ; {
			leads, err := stagedLeads(ctx, tx, place, account, after)
			if err != nil {
				return nil, err
			}
			made, err := conversionRows(ctx, tx, place, leads)
			if err != nil {
				return nil, err
			}
			if err := made.insert(ctx, tx, "made_conversion", conversionColumns...); err != nil {
				return nil, err
			}
			if len(leads) < conversionLeads {
				break
			}
			after = leads[len(leads)-1]
		}
	}
	rows, err := tx.Query(ctx, `
		WITH changed AS (`+schema.ChangedSince(place)+`)
		SELECT lead_id, since, CASE WHEN l.lead_id IS NULL THEN 'is missing' WHEN m.lead_id IS NULL THEN 'is not from the log' ELSE 'does not match its touches' END
		  FROM `+place+`conversion l FULL JOIN made_conversion m USING (lead_id, since)
		 WHERE l IS DISTINCT FROM m AND lead_id NOT IN (SELECT lead_id FROM changed)
		   AND coalesce(l.account, m.account) NOT IN (SELECT account FROM (`+schema.WonSince(place)+`) AS settings UNION ALL SELECT $5::text)
		 ORDER BY lead_id, since LIMIT $4`, state.position, int64(attribution.Forever), "", limit, state.account)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (d projection.Difference, err error) {
		var lead, what string
		var since int64
		err = row.Scan(&lead, &since, &what)
		return projection.Difference{Table: "conversion", Key: fmt.Sprintf("%s %d", lead, since), What: what}, err
	})
}
