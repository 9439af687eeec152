package view

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/lead"
)

// wonStatus is the stage of won leads, in the case of a lead's row.
const wonStatus = "won"

// wins are the changes of a batch to won_day, lead by lead.
type wins struct {
	accounts, sources, values []string
	days                      []time.Time
	leads                     []int64 // 1, or -1 to subtract a lead's previous worth
}

// worth is what a lead adds to the total of its day.
type worth struct {
	sourceDay
	value string
}

func worthOf(state *lead.State) (w worth, won bool) {
	if state.Phase != lead.Live || strings.ToLower(state.Status) != wonStatus {
		return w, false
	}
	opened := state.OpenedAt
	if opened.IsZero() {
		opened = state.CreatedAt
	}
	return worth{
		sourceDay{state.Account, opened.UTC().Truncate(24 * time.Hour), state.Source}, state.OpportunityValue,
	}, true
}

func (w *wins) add(one worth, leads int64) {
	if one.value == "" {
		one.value = "0"
	}
	w.accounts, w.days, w.sources = append(w.accounts, one.account), append(w.days, one.day),
		append(w.sources, one.source)
	w.leads, w.values = append(w.leads, leads), append(w.values, one.value)
}

// save adds the changes to the totals. A day without won leads has no row, as if there had never been one.
func (w *wins) save(ctx context.Context, tx pgx.Tx) error {
	if len(w.leads) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO won_day AS old (account, day, source, leads, value)
		SELECT account, day, source, sum(leads)::bigint, trim_scale(sum(leads * value::numeric))
		  FROM unnest($1::text[], $2::date[], $3::text[], $4::bigint[], $5::text[]) AS n (account, day, source, leads,
		    value)
		 GROUP BY account, day, source
		    ON CONFLICT (account, day, source) DO UPDATE
		   SET leads = old.leads + excluded.leads, value = trim_scale(old.value + excluded.value)`,
		w.accounts, w.days, w.sources, w.leads, w.values)
	if err != nil || !slices.Contains(w.leads, -1) {
		return err
	}
	_, err = tx.Exec(ctx, `
		DELETE FROM won_day AS d USING unnest($1::text[], $2::date[], $3::text[]) AS n (account, day, source)
		 WHERE d.account = n.account AND d.day = n.day AND d.source = n.source AND d.leads = 0`,
		w.accounts, w.days, w.sources)
	return err
}

// winsOf compares the rows of leads with their new states. A concurrent erasure that deletes a lead's row also
// subtracts it, so the rows of leads whose worth changes are locked.
func winsOf(ctx context.Context, tx pgx.Tx, before, after []lead.State) (w wins, err error) {
	var ids []string
	for i := range before {
		was, counted := worthOf(&before[i])
		is, counts := worthOf(&after[i])
		if counted != counts || was != is {
			ids = append(ids, before[i].ID)
		}
	}
	if len(ids) == 0 {
		return w, nil
	}
	slices.Sort(ids)
	rows, err := tx.Query(ctx, `SELECT lead_id FROM lead WHERE lead_id = ANY ($1) ORDER BY lead_id FOR UPDATE`, ids)
	if err != nil {
		return w, err
	}
	locked, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return w, err
	}
	for i := range before {
		if _, found := slices.BinarySearch(locked, before[i].ID); !found {
			continue
		}
		if was, counted := worthOf(&before[i]); counted {
			w.add(was, -1)
		}
		if is, counts := worthOf(&after[i]); counts {
			w.add(is, 1)
		}
	}
	return w, nil
}
