package projection

import (
	"context"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// indexesAtOnce are built side by side, of all copies together. Each takes a processor and up to indexMemory.
const (
	indexesAtOnce = 3
	indexMemory   = "192MB"
)

// finishCopy makes what rows need only when they are read. A table is analyzed first: that and the building of its indexes
// keep each other out.
func (b *builder) finishCopy(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, table := range b.projector.Tables() {
		if _, err := b.conn.Exec(ctx, `ANALYZE `+pgx.Identifier{b.place, table}.Sanitize()); err != nil {
			return err
		}
		statements, err := propose(ctx, b.conn, copyIndexes, b.Live, b.place, table)
		if err != nil {
			return err
		}
		for _, statement := range statements {
			group.Go(func() error { return b.index(ctx, statement) })
		}
	}
	return group.Wait()
}

// index builds one index when it is its turn, on a connection of its own.
func (b *builder) index(ctx context.Context, statement string) error {
	if err := hand(ctx, struct{}{}, b.indexing); err != nil {
		return err
	}
	defer func() { <-b.indexing }()
	config := b.config.Copy()
	config.RuntimeParams["maintenance_work_mem"] = indexMemory
	// Workers for one index would put into files what they sort.
	config.RuntimeParams["max_parallel_maintenance_workers"] = "0"
	// Who begins in the middle of a table, since another one reads there, has to sort what comes in order from the beginning.
	config.RuntimeParams["synchronize_seqscans"] = "off"
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer closeConn(ctx, conn)
	_, err = conn.Exec(ctx, statement)
	return err
}
