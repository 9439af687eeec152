package projection

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// Forgotten names the rows to delete: those of leads by their ids, and those of visitors by their streams. A visitor
// may return, so only the activity before a position is deleted, or the activity that certain keys sealed.
type Forgotten struct {
	Leads    []string
	Origins  []event.SplitOrigin // arrivals of other leads whose personal data are deleted, while the rows stay
	Visitors map[string]eventstore.Position
	Keys     map[string][]int64 // by the stream of a visitor
}

// table is a table with personal data in a copy of the views.
type table struct {
	name     string
	visitors bool   // has rows of visitors
	leads    bool   // has rows of leads
	wins     string // table of won leads per day, from which deleted leads are subtracted; empty: none
	personal string // table of the personal columns of touches, which are deleted while the touches stay
}

// copiedTables lists the tables with personal data of all copies of views in the database.
func copiedTables(ctx context.Context, tx pgx.Tx) ([]table, error) {
	rows, err := tx.Query(ctx, `
		SELECT format('%I.%I', n.nspname, c.relname), c.relname IN ('visitor_activity', 'touch'),
		  c.relname <> 'visitor_activity',
		       CASE c.relname WHEN 'lead' THEN coalesce(to_regclass(format('%I.won_day', n.nspname))::text, '')
		       ELSE '' END,
		       CASE c.relname WHEN 'touch' THEN format('%I.touch_personal', n.nspname) ELSE '' END
		  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		 WHERE c.relkind = 'r' AND c.relname IN ('lead', 'visitor_activity', 'touch')
		   AND obj_description(n.oid, 'pg_namespace') LIKE $1 || '%'`, schema.CopyMarker)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (t table, err error) {
		err = row.Scan(&t.name, &t.visitors, &t.leads, &t.wins, &t.personal)
		return t, err
	})
}

// eachTable calls a function with each such table, in a savepoint. It skips a copy that is dropped while it runs.
func eachTable(ctx context.Context, tx pgx.Tx, do func(tx pgx.Tx, t table) error) error {
	tables, err := copiedTables(ctx, tx)
	if err != nil {
		return err
	}
	for _, t := range tables {
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return do(tx, t) })
		if err != nil && !schema.Missing(err) {
			return err
		}
	}
	return nil
}

// rows returns the condition that selects the rows to delete from a table, and its arguments.
func (f Forgotten) rows(of table) (condition string, arguments []any) {
	conditions := []string{"false"}
	if of.leads && len(f.Leads) > 0 {
		arguments = append(arguments, f.Leads)
		conditions = append(conditions, `lead_id = ANY ($1)`)
	}
	if of.leads && len(f.Origins) > 0 {
		var leads []string
		var before []int64
		for _, origin := range f.Origins {
			leads, before = append(leads, origin.LeadID), append(before, origin.Before)
		}
		arguments = append(arguments, leads, before)
		n := len(arguments)
		conditions = append(conditions,
			fmt.Sprintf(`EXISTS (SELECT FROM unnest($%d::text[], $%d::bigint[]) AS origin (lead_id, before)
	                 WHERE c.lead_id = origin.lead_id COLLATE "C" AND %s < origin.before)`, n-1, n, of.revision()))
	}
	visitors := func(streams []string, values []int64, with string) {
		if !of.visitors || len(streams) == 0 {
			return
		}
		arguments = append(arguments, streams, values)
		n := len(arguments)
		conditions = append(conditions,
			fmt.Sprintf(`EXISTS (SELECT FROM unnest($%d::text[], $%d::bigint[]) AS gone (stream, value)
	                 WHERE %s = gone.stream COLLATE "C" AND %s gone.value)`, n-1, n, of.stream(), with))
	}
	var streams []string
	var values []int64
	for stream, before := range f.Visitors {
		streams, values = append(streams, stream), append(values, int64(before))
	}
	visitors(streams, values, `c.position <`)
	streams, values = nil, nil
	for stream, keys := range f.Keys {
		for _, key := range keys {
			streams, values = append(streams, stream), append(values, key)
		}
	}
	visitors(streams, values, `c.key_id =`)
	return strings.Join(conditions, " OR "), arguments
}

// stream returns the start of the SQL condition on the stream of a row's visitor.
func (t table) stream() string {
	if t.personal != "" {
		return `c.kind = 'visit' AND c.visitor`
	}
	return `c.stream`
}

// revision returns the SQL of the revision in its lead's stream that a row is as of.
func (t table) revision() string {
	if t.personal != "" {
		return `c.revision`
	}
	return `coalesce((c.state ->> 'revision')::bigint, 0)`
}

// remove returns the statement that deletes rows.
func (t table) remove(condition string) string {
	switch {
	case t.personal != "":
		return `WITH gone AS (UPDATE ` + t.name + ` AS c SET erased = true WHERE NOT ` +
			`erased AND (` + condition + `) RETURNING position)
			DELETE FROM ` + t.personal + ` AS p USING gone WHERE p.position = gone.position`
	case t.wins != "":
		return discounting(`DELETE FROM `+t.name+` AS c WHERE `+condition, t.wins)
	}
	return `DELETE FROM ` + t.name + ` AS c WHERE ` + condition
}

// DeleteFromCopies deletes leads and visitors from all copies of views in the database. A copy that is started later
// does not get their rows, because they are erased on the log.
func DeleteFromCopies(ctx context.Context, tx pgx.Tx, gone Forgotten) error {
	return eachTable(ctx, tx, func(tx pgx.Tx, t table) error {
		condition, arguments := gone.rows(t)
		if _, err := tx.Exec(ctx, t.remove(condition), arguments...); err != nil || t.wins == "" {
			return err
		}
		_, err := tx.Exec(ctx, `DELETE FROM `+t.wins+` WHERE leads = 0`)
		return err
	})
}

// discounting extends a statement that deletes leads: it also subtracts their won values from the table of wins.
func discounting(remove, wins string) string {
	return `
		WITH gone AS (` + remove + ` RETURNING account, source, status, won,
		       (coalesce((state ->> 'openedAt')::timestamptz, created_at) AT TIME ZONE 'UTC')::date AS day),
		     lost AS (SELECT account, day, source, count(*) AS leads, coalesce(sum(won), 0) AS value
		                FROM gone WHERE status = 'won' GROUP BY account, day, source)
		UPDATE ` + wins + ` AS d SET leads = d.leads - lost.leads, value = trim_scale(d.value - lost.value)
		  FROM lost WHERE d.account = lost.account AND d.day = lost.day AND d.source = lost.source`
}

// InCopies reports whether a copy has a row of the leads and visitors.
func InCopies(ctx context.Context, tx pgx.Tx, gone Forgotten) (found bool, err error) {
	err = eachTable(ctx, tx, func(tx pgx.Tx, t table) error {
		if found {
			return nil
		}
		condition, arguments := gone.rows(t)
		if t.personal != "" {
			condition = `NOT erased AND (` + condition + `)`
		}
		return tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+t.name+` AS c WHERE `+condition+`)`,
			arguments...).Scan(&found)
	})
	return found, err
}

// DeleteErasedFromCopies deletes all leads and visitors that are erased on the log from all copies. A copy as of a day,
// or one that took long to build, may have rows of persons who were erased since.
func DeleteErasedFromCopies(ctx context.Context, store eventstore.Store, conn *pgx.Conn) error {
	head, err := store.Head(ctx)
	if err != nil {
		return err
	}
	gone := Forgotten{Visitors: map[string]eventstore.Position{}, Keys: map[string][]int64{}}
	filter := eventstore.Filter{Types: event.Types(event.LeadErased{}, event.VisitorForgotten{})}
	for page, err := range eventstore.ReadTo(ctx, store, 0, head, filter) {
		if err != nil {
			return err
		}
		for _, e := range page.Events {
			fact, err := e.Fact()
			if err != nil {
				return err
			}
			switch data := fact.Data.(type) {
			case event.LeadErased:
				gone.Origins = append(gone.Origins, data.Origins...)
				// a copy may be as of a position before the join
				gone.Leads = append(append(gone.Leads, event.LeadID(e.Stream)), data.Leads...)
			case event.VisitorForgotten:
				if len(data.Keys) == 0 {
					gone.Visitors[e.Stream] = e.Position
				}
				gone.Keys[e.Stream] = append(gone.Keys[e.Stream], data.KeyIDs()...)
			}
		}
	}
	if len(gone.Leads)+len(gone.Visitors)+len(gone.Keys) == 0 {
		return nil
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return DeleteFromCopies(ctx, tx, gone) })
}
