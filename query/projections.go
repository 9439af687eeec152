package query

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

// Projection is the progress of a view, in any process.
type Projection struct {
	Name      string              `json:"name"`
	Version   int                 `json:"version"`
	Position  eventstore.Position `json:"position"`
	Lag       uint64              `json:"lag"` // positions between it and the end of the log
	UpdatedAt Timestamp           `json:"updatedAt"`
	Running   bool                `json:"running"` // some process keeps it at this moment
	Replays   []Replay            `json:"replays"` // of it, beside the one that is served
}

// Replay is a rebuild of a view beside the live one.
type Replay struct {
	Schema    string              `json:"schema"` // where it is built
	Version   int                 `json:"version"`
	Position  eventstore.Position `json:"position"` // as of its last checkpoint
	End       eventstore.Position `json:"end"`      // of the log
	UpdatedAt Timestamp           `json:"updatedAt"`
	Running   bool                `json:"running"` // false: it was interrupted, and resumes when it is run again
}

// Part returns how much of the log has been folded, from 0 to 1.
func (r Replay) Part() float64 {
	if r.End == 0 {
		return 1
	}
	return min(1, float64(r.Position)/float64(r.End))
}

// checkpoints reads those of a schema. A lease shows that a session is at work.
func checkpoints(schemaName string, lease func(schema, projector string) string) string {
	return `
	SELECT projector, version, position, updated_at, EXISTS (SELECT FROM lease.held WHERE name = '` +
		lease(schemaName, "") + `' || projector)
	  FROM ` + pgx.Identifier{schemaName, "checkpoint"}.Sanitize()
}

// Projections returns the state of each view and of the fan-out of deliveries, by name.
func (r *Reader) Projections(ctx context.Context) ([]Projection, error) {
	rows, err := r.pool.Query(ctx, checkpoints(schema.Views, schema.ProjectorLease)+` UNION ALL `+
		checkpoints(schema.Deliveries, schema.ProjectorLease)+` ORDER BY 1`)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Projection, err error) {
		p.Replays = []Replay{}
		err = row.Scan(&p.Name, &p.Version, &p.Position, &p.UpdatedAt, &p.Running)
		return p, err
	})
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	head, err := r.store.Head(ctx) // after the checkpoints: the log only grows
	if err != nil {
		return nil, err
	}
	for i := range found {
		found[i].Lag = uint64(head - min(head, found[i].Position))
	}
	return found, schema.Unavailable(r.addReplays(ctx, found, head))
}

// replaySchemas are the schemas with a copy of a view. Their names are those that replay allows, so that none has a
// quote.
const replaySchemas = `
	SELECT nspname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
	  JOIN pg_attribute ON attrelid = c.oid AND attname = 'projector'
	 WHERE relname = 'checkpoint' AND relkind = 'r' AND nspname ~ '^[a-z_][a-z0-9_]*$' AND nspname <> ALL ($1)
	   AND has_table_privilege(c.oid, 'SELECT')
	 ORDER BY nspname`

// addReplays adds the replays that run, and those that were interrupted before they could replace a live view.
func (r *Reader) addReplays(ctx context.Context, to []Projection, head eventstore.Position) error {
	rows, err := r.pool.Query(ctx, replaySchemas, []string{schema.Views, schema.Deliveries})
	if err != nil {
		return err
	}
	namespaces, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, namespace := range namespaces {
		rows, err := r.pool.Query(ctx, checkpoints(namespace, schema.ReplayLease))
		if err != nil {
			return err
		}
		var name string
		replay := Replay{Schema: namespace, End: head}
		_, err = pgx.ForEachRow(rows,
			[]any{&name, &replay.Version, &replay.Position, &replay.UpdatedAt, &replay.Running}, func() error {
				for i := range to {
					if to[i].Name == name && (replay.Running || strings.HasPrefix(namespace, "replay_")) {
						to[i].Replays = append(to[i].Replays, replay)
					}
				}
				return nil
			})
		if err != nil && !schema.Missing(err) { // the replay may have ended since it was seen
			return err
		}
	}
	return nil
}
