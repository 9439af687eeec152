package projection

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// copied is a table with personal data, in some copy of a view.
type copied struct {
	name     string
	visitors bool   // otherwise leads
	wins     string // the table that counts those of its leads that are won, when there is one
}

// copies lists these tables, of all copies of views in the database.
func copies(ctx context.Context, tx pgx.Tx) ([]copied, error) {
	rows, err := tx.Query(ctx, `
		SELECT format('%I.%I', n.nspname, c.relname), c.relname = 'visitor_activity',
		       CASE c.relname WHEN 'lead' THEN coalesce(to_regclass(format('%I.won_day', n.nspname))::text, '') ELSE '' END
		  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		 WHERE c.relkind = 'r' AND c.relname IN ('lead', 'source_history', 'visitor_activity')
		   AND obj_description(n.oid, 'pg_namespace') LIKE $1 || '%'`, markerPrefix)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c copied, err error) {
		err = row.Scan(&c.name, &c.visitors, &c.wins)
		return c, err
	})
}

// eachCopy calls a function with each of them, in a savepoint. A copy that was dropped meanwhile is passed over.
func eachCopy(ctx context.Context, tx pgx.Tx, do func(tx pgx.Tx, c copied) error) error {
	all, err := copies(ctx, tx)
	if err != nil {
		return err
	}
	for _, c := range all {
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return do(tx, c) })
		if err != nil && !schema.Missing(err) {
			return err
		}
	}
	return nil
}

// Forgotten names whose rows are to be removed: leads by their ids, and visitors by their streams. Of a visitor, who may come
// again, only the activity before the position is removed.
type Forgotten struct {
	Leads    []string
	Visitors map[string]eventstore.Position
}

// rows is the condition that selects the rows to remove from a table, and its arguments.
func (f Forgotten) rows(of copied) (condition string, arguments []any) {
	if !of.visitors {
		return `lead_id = ANY ($1)`, []any{f.Leads}
	}
	streams, before := slices.Collect(maps.Keys(f.Visitors)), []int64{}
	for _, stream := range streams {
		before = append(before, int64(f.Visitors[stream]))
	}
	return `EXISTS (SELECT FROM unnest($1::text[], $2::bigint[]) AS gone (stream, before)
	                 WHERE gone.stream = c.stream COLLATE "C" AND c.position < gone.before)`, []any{streams, before}
}

// ForgetInCopies removes leads and visitors from all copies of views in the database. A copy that is begun later will not have
// them: they are erased on the log.
func ForgetInCopies(ctx context.Context, tx pgx.Tx, gone Forgotten) error {
	return eachCopy(ctx, tx, func(tx pgx.Tx, c copied) error {
		condition, arguments := gone.rows(c)
		remove := `DELETE FROM ` + c.name + ` AS c WHERE ` + condition
		if c.wins != "" {
			remove = discounting(remove, c.wins)
		}
		if _, err := tx.Exec(ctx, remove, arguments...); err != nil || c.wins == "" {
			return err
		}
		_, err := tx.Exec(ctx, `DELETE FROM `+c.wins+` WHERE leads = 0`)
		return err
	})
}

// WithdrawActivity removes activities of a visitor, by their positions, from the view that is served and from all copies of it. A
// fact about some of a visitor's events alone cannot do so: it names keys, and no row has one.
func WithdrawActivity(ctx context.Context, tx pgx.Tx, visitor string, at []eventstore.Position) error {
	positions := make([]int64, len(at))
	for i, p := range at {
		positions[i] = int64(p)
	}
	remove := func(tx pgx.Tx, c copied) error {
		if !c.visitors {
			return nil
		}
		_, err := tx.Exec(ctx, `DELETE FROM `+c.name+` WHERE stream = $1 AND position = ANY ($2)`, visitor, positions)
		return err
	}
	if err := remove(tx, copied{name: schema.Views + ".visitor_activity", visitors: true}); err != nil {
		return err
	}
	return eachCopy(ctx, tx, remove)
}

// discounting extends a statement that removes leads: what they had won is subtracted from the table of wins too.
func discounting(remove, wins string) string {
	return `
		WITH gone AS (` + remove + ` RETURNING account, (created_at AT TIME ZONE 'UTC')::date AS day, source, status, won),
		     lost AS (SELECT account, day, source, count(*) AS leads, coalesce(sum(won), 0) AS value
		                FROM gone WHERE status = 'won' GROUP BY account, day, source)
		UPDATE ` + wins + ` AS d SET leads = d.leads - lost.leads, value = trim_scale(d.value - lost.value)
		  FROM lost WHERE d.account = lost.account AND d.day = lost.day AND d.source = lost.source`
}

// InCopies reports whether anything of leads and visitors is in a copy.
func InCopies(ctx context.Context, tx pgx.Tx, gone Forgotten) (there bool, err error) {
	err = eachCopy(ctx, tx, func(tx pgx.Tx, c copied) error {
		if there {
			return nil
		}
		condition, arguments := gone.rows(c)
		return tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+c.name+` AS c WHERE `+condition+`)`, arguments...).Scan(&there)
	})
	return there, err
}

// forgetErased removes from copies whoever was erased after the moment that the copies are as of, or while they were made.
func (r Replay) forgetErased(ctx context.Context, conn *pgx.Conn) error {
	head, err := r.Store.Head(ctx)
	if err != nil || head == 0 {
		return err
	}
	gone := Forgotten{Visitors: map[string]eventstore.Position{}}
	filter := eventstore.Filter{Types: event.Types(event.LeadErased{}, event.VisitorForgotten{})}
	for item, err := range r.Store.Subscribe(ctx, 0, filter) {
		if err != nil {
			return err
		}
		if e := item.Event; e != nil {
			data, err := decodeEvent(e)
			if err != nil {
				return err
			}
			switch d := data.(type) {
			case event.LeadErased:
				gone.Leads = append(append(gone.Leads, event.LeadID(e.Stream)), d.Leads...) // which a copy may be too old to see depart
			case event.VisitorForgotten:
				if len(d.Keys) == 0 {
					gone.Visitors[e.Stream] = e.Position
				}
			}
		}
		if item.Position >= head {
			break
		}
	}
	if len(gone.Leads)+len(gone.Visitors) == 0 {
		return nil
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return ForgetInCopies(ctx, tx, gone) })
}
