package view

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/leadlog/leadlog/command/attribution"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// A report on conversions reads a row for each, with its touches, and folds the histories of leads that have changed
// since. The rows are built in the background from those of the projector: when a lead has changed, all its rows are
// rebuilt. conversion_state has the position up to which they are built; a report computes later conversions itself.
//
// When the won stages of an account change, a sweep rebuilds the rows of its leads, in the order of touch_at. Meanwhile
// other rows are built as always. A row of an earlier position is the same before and after the sweep, so reports as of
// earlier positions stay complete.

const (
	conversionTable      = "conversion"
	conversionStateTable = "conversion_state"
	conversionSweepTable = "conversion_sweep"

	// Each transaction reads at most conversionTouches new touches and sweptTouches of a sweep, and writes at most
	// conversionLeads leads at a time.
	conversionTouches = 5000
	sweptTouches      = 1000
	conversionLeads   = 500
)

// conversionState is the row of conversion_state.
type conversionState struct {
	position int64
	settings int64 // by which the first rows were built; none of them is swept
}

// readState reads the state. If it was never saved, no row is built.
func readState(ctx context.Context, tx pgx.Tx, prefix string) (s conversionState, err error) {
	err = tx.QueryRow(ctx, `
		SELECT position, settings FROM `+prefix+`conversion_state
		 UNION ALL
		SELECT 0, coalesce(max(position), 0) FROM `+prefix+`won_stages
			WHERE NOT EXISTS (SELECT FROM `+prefix+`conversion_state)`).
		Scan(&s.position, &s.settings)
	return s, err
}

func (s conversionState) save(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, `DELETE FROM conversion_state`); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO conversion_state (position, settings) VALUES ($1, $2)`, s.position, s.settings)
	return err
}

// DerivedTables implements projection.Maintainer.
func (Touch) DerivedTables() []string {
	return []string{conversionTable, conversionStateTable, conversionSweepTable}
}

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

// pageByIndex has PostgreSQL read the few rows of a page by an index that has their order. Some tables may have no
// statistics yet.
const pageByIndex = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
	set_config('max_parallel_workers_per_gather', '0', true)`

// buildConversions builds some of the missing conversions, and reports whether others are missing.
func buildConversions(ctx context.Context, tx pgx.Tx) (more bool, err error) {
	if _, err := tx.Exec(ctx, pageByIndex); err != nil {
		return false, err
	}
	state, err := readState(ctx, tx, "")
	if err != nil {
		return false, err
	}
	behind, err := state.advance(ctx, tx)
	if err != nil {
		return false, err
	}
	swept, err := sweepConversions(ctx, tx)
	return behind || swept, err
}

// advance rebuilds the leads that changed after the state's position, and moves it. It begins the sweeps of accounts
// whose won stages changed.
func (s conversionState) advance(ctx context.Context, tx pgx.Tx) (more bool, err error) {
	var end int64
	err = tx.QueryRow(ctx, `
		WITH later AS (SELECT position FROM touch WHERE position > $1 ORDER BY position OFFSET $2 LIMIT 1)
		SELECT EXISTS (SELECT FROM later), coalesce((SELECT position FROM later),
		       greatest((SELECT max(position) FROM touch), (SELECT max(position) FROM lead_change),
		         (SELECT max(position) FROM won_stages), 0))`,
		s.position, conversionTouches).Scan(&more, &end)
	if err != nil || end <= s.position {
		return false, err
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO conversion_sweep (account, position, at, touch, leads)
		SELECT account, min(position), '-infinity', 0, 0 FROM (`+schema.WonSince("")+`) AS changed GROUP BY account
		    ON CONFLICT (account) DO UPDATE SET at = EXCLUDED.at, touch = EXCLUDED.touch, leads = EXCLUDED.leads`,
		max(s.position, s.settings), end)
	if err != nil {
		return false, err
	}
	rows, err := tx.Query(ctx, schema.ChangedSince(""), s.position, end, "")
	if err != nil {
		return false, err
	}
	leads, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return false, err
	}
	if err := rebuildConversions(ctx, tx, leads); err != nil {
		return false, err
	}
	s.position = end
	return more, s.save(ctx, tx)
}

// sweepConversions rebuilds the conversions of some leads of an account whose won stages changed, that of which the
// fewest leads have been passed. It reports whether there was one.
func sweepConversions(ctx context.Context, tx pgx.Tx) (swept bool, err error) {
	var account string
	var after touchCursor
	err = tx.QueryRow(ctx, `SELECT account, at, touch FROM conversion_sweep ORDER BY leads, account LIMIT 1`).
		Scan(&account, &after.at, &after.position)
	if err != nil {
		if errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
		return false, err
	}
	page, err := readLeads(ctx, tx, "", account, after)
	if err != nil {
		return false, err
	}
	if err := rebuildConversions(ctx, tx, page.won); err != nil {
		return false, err
	}
	if page.end {
		_, err = tx.Exec(ctx, `DELETE FROM conversion_sweep WHERE account = $1`, account)
		return true, err
	}
	_, err = tx.Exec(ctx, `UPDATE conversion_sweep SET at = $2, touch = $3, leads = leads + $4 WHERE account = $1`,
		account, page.last.at, page.last.position, page.created)
	return true, err
}

// touchCursor is a position in an account's arrivals, in the order of the index touch_at.
type touchCursor struct {
	at       pgtype.Timestamptz
	position int64
}

// beforeTouches is before all touches.
var beforeTouches = touchCursor{at: pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}}

// leadPage has the leads that some arrivals of an account created.
type leadPage struct {
	created int64
	won     []string // those that were ever at a stage that counts as a conversion, or did
	last    touchCursor
	end     bool // there are no touches after last
}

// readLeads reads the leads that the sweptTouches arrivals after a cursor created.
func readLeads(ctx context.Context, tx pgx.Tx, prefix, account string, after touchCursor) (p leadPage, err error) {
	settings, err := schema.WonStages(ctx, tx, prefix, account)
	if err != nil {
		return p, err
	}
	won := event.DefaultWonStages() // which are their own folds
	for _, setting := range settings[account] {
		won = append(won, setting.Stages...)
	}
	rows, err := tx.Query(ctx, `
		WITH page AS MATERIALIZED (
		     SELECT lead_id, kind, stage, at, position FROM `+prefix+`touch
		      WHERE account = $1 AND kind <> 'visit' AND (at, position) > ($2, $3) ORDER BY at, position LIMIT $4)
		SELECT lead_id, at, position, kind = 'created', stage = ANY ($5) OR EXISTS (
		       SELECT FROM `+prefix+`lead_change c WHERE c.lead_id = page.lead_id AND c.stage = ANY ($5) OFFSET 0),
		       ARRAY(SELECT o.owner FROM `+prefix+`touch_owner o WHERE o.position = page.position AND o.begins
		       	AND EXISTS (
		             SELECT FROM `+prefix+`lead_change c WHERE c.lead_id = o.owner AND c.stage = ANY ($5) OFFSET 0))
		  FROM page ORDER BY at, position`, account, after.at, after.position, sweptTouches, won)
	if err != nil {
		return p, err
	}
	var lead string
	var created, ever bool
	read := 0
	var split []string // leads that a split created, with this arrival as their first
	_, err = pgx.ForEachRow(rows, []any{&lead, &p.last.at, &p.last.position, &created, &ever, &split}, func() error {
		if read++; created {
			p.created++
		}
		if created && ever {
			p.won = append(p.won, lead)
		}
		p.won = append(p.won, split...)
		return nil
	})
	p.end = read < sweptTouches
	return p, err
}

// conversionKeys are in the order of their columns in conversionColumns.
var conversionKeys = []attribution.Key{
	attribution.BySource, attribution.ByMedium, attribution.ByCampaign, attribution.ByUTMSource, attribution.ByIntake,
	attribution.ByCredential,
}

var conversionColumns = []string{
	"lead_id", "since", "until", "account", "at", "value", "touches", "source", "medium", "campaign", "utm_source",
	"intake", "credential",
}

// rebuildConversions rebuilds all rows of leads, so that rows with near times are written together.
func rebuildConversions(ctx context.Context, tx pgx.Tx, leads []string) error {
	slices.Sort(leads)
	for part := range slices.Chunk(leads, conversionLeads) {
		if err := deleteLeads(ctx, tx, "conversion", part); err != nil {
			return err
		}
		made, err := conversionRows(ctx, tx, "", part)
		if err != nil {
			return err
		}
		if err := made.insert(ctx, tx, "conversion", conversionColumns...); err != nil {
			return err
		}
	}
	return nil
}

// conversionRows builds all rows of leads.
func conversionRows(ctx context.Context, tx pgx.Tx, prefix string, leads []string) (made rows, err error) {
	settings := map[string]attribution.Won{}
	var histories []*schema.LeadHistory
	err = schema.Histories(ctx, tx, prefix, leads, true, func(h *schema.LeadHistory) error {
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
	if settings, err = schema.WonStages(ctx, tx, prefix, accounts...); err != nil {
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
	// Touches that belong to the lead from until on count only in later rows. Without them, a row of the past never
	// changes.
	counts := func(i int) bool {
		touch := h.Touches[i]
		return touch.Since < span.Until && (touch.Until == 0 || touch.Until > span.Since) && touch.At <= span.At &&
			touch.At >= span.At-attribution.MaxWindow.Milliseconds()
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

// CompareDerived implements projection.Maintainer. It builds the conversions of all leads of the live view that have
// not changed after the state's position, and compares them with the stored rows.
func (Touch) CompareDerived(
	ctx context.Context, tx pgx.Tx, live string, limit int,
) (found []projection.Difference, err error) {
	prefix := pgx.Identifier{live}.Sanitize() + `.`
	state, err := readState(ctx, tx, prefix)
	if err != nil {
		return nil, err
	}
	if err := buildAllConversions(ctx, tx, prefix); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, `
		WITH changed AS (`+schema.ChangedSince(prefix)+`)
		SELECT lead_id, since, CASE WHEN l.lead_id IS NULL THEN 'is missing' WHEN m.lead_id IS NULL
		THEN 'is not from the log' ELSE 'does not match its touches' END
		  FROM `+prefix+`conversion l FULL JOIN made_conversion m USING (lead_id, since)
		 WHERE l IS DISTINCT FROM m AND lead_id NOT IN (SELECT lead_id FROM changed)
		   AND coalesce(l.account, m.account) NOT IN (
		       SELECT account FROM `+prefix+`conversion_sweep
		        UNION ALL
		       SELECT account FROM (`+schema.WonSince(prefix)+`) AS settings WHERE position > $5)
		 ORDER BY lead_id, since LIMIT $4`, state.position, int64(attribution.Forever), "", limit, state.settings)
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

// buildAllConversions builds the conversions of all leads in a temporary table, made_conversion.
func buildAllConversions(ctx context.Context, tx pgx.Tx, prefix string) error {
	if _, err := tx.Exec(ctx,
		`CREATE TEMPORARY TABLE made_conversion (LIKE `+prefix+`conversion) ON COMMIT DROP`); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, pageByIndex); err != nil {
		return err
	}
	for account := ""; ; {
		var next *string
		err := tx.QueryRow(ctx, `SELECT min(account) FROM `+prefix+`touch WHERE kind <> 'visit' AND account > $1`,
			account).Scan(&next)
		if err != nil {
			return err
		}
		if next == nil {
			break
		}
		account = *next
		for after, end := beforeTouches, false; !end; {
			page, err := readLeads(ctx, tx, prefix, account, after)
			if err != nil {
				return err
			}
			made, err := conversionRows(ctx, tx, prefix, page.won)
			if err != nil {
				return err
			}
			if err := made.insert(ctx, tx, "made_conversion", conversionColumns...); err != nil {
				return err
			}
			after, end = page.last, page.end
		}
	}
	_, err := tx.Exec(ctx, `
		SET LOCAL enable_seqscan TO DEFAULT; SET LOCAL enable_bitmapscan TO DEFAULT;
		SET LOCAL max_parallel_workers_per_gather TO DEFAULT;
		ANALYZE made_conversion (lead_id, since)`)
	return err
}
