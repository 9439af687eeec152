package projection

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// copied is a table of a copy of a view that tells of persons.
type copied struct {
	name     string
	visitors bool // otherwise leads
}

// copies are those of every copy of a view that is in the database.
func copies(ctx context.Context, tx pgx.Tx) ([]copied, error) {
	rows, err := tx.Query(ctx, `
		SELECT format('%I.%I', n.nspname, c.relname), c.relname = 'visitor_activity'
		  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		 WHERE c.relkind = 'r' AND c.relname IN ('lead', 'source_history', 'visitor_activity')
		   AND obj_description(n.oid, 'pg_namespace') LIKE $1 || '%'`, markerPrefix)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c copied, err error) {
		return c, row.Scan(&c.name, &c.visitors)
	})
}

// ForgetInCopies takes leads, and visitors by their streams, out of every copy of a view that is in the database. A copy
// that is being made from then on has them no more by itself.
func ForgetInCopies(ctx context.Context, tx pgx.Tx, leads, visitors []string) error {
	all, err := copies(ctx, tx)
	if err != nil {
		return err
	}
	for _, c := range all {
		statement, gone := `DELETE FROM `+c.name+` WHERE lead_id = ANY ($1)`, leads
		if c.visitors {
			statement, gone = `DELETE FROM `+c.name+` WHERE stream = ANY ($1)`, visitors
		}
		if _, err := tx.Exec(ctx, statement, gone); err != nil {
			return err
		}
	}
	return nil
}

// InCopies tells whether any of the leads is in a copy.
func InCopies(ctx context.Context, tx pgx.Tx, leads []string) (bool, error) {
	all, err := copies(ctx, tx)
	if err != nil {
		return false, err
	}
	for _, c := range all {
		if c.visitors {
			continue
		}
		var there bool
		err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+c.name+` WHERE lead_id = ANY ($1))`, leads).Scan(&there)
		if there || err != nil {
			return there, err
		}
	}
	return false, nil
}

// forgetErased takes out of copies who was erased after the moment that they are of, or while they were made.
func (r Replay) forgetErased(ctx context.Context, conn *pgx.Conn) error {
	head, err := r.Store.Head(ctx)
	if err != nil || head == 0 {
		return err
	}
	var leads, visitors []string
	filter := eventstore.Filter{Types: event.Types(event.LeadErased{}, event.VisitorForgotten{})}
	for item, err := range r.Store.Subscribe(ctx, 0, filter) {
		if err != nil {
			return err
		}
		if e := item.Event; e != nil {
			data, err := decodeEvent(*e)
			if err != nil {
				return err
			}
			if erased, ok := data.(event.LeadErased); ok {
				leads = append(append(leads, event.LeadID(e.Stream)), erased.Leads...) // which a copy may be too old to see depart
			} else {
				visitors = append(visitors, e.Stream)
			}
		}
		if item.Position >= head {
			break
		}
	}
	if len(leads)+len(visitors) == 0 {
		return nil
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return ForgetInCopies(ctx, tx, leads, visitors) })
}
