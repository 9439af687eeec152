package projection

import (
	"context"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// indexesAtOnce are built side by side, of all copies together. Each takes a processor, and sorts in as much as the processor
// has at hand: what goes through files, run by run, is in order in half of the time that memory for all of it takes.
const (
	indexesAtOnce = 3
	indexMemory   = "4MB"
)

// indexSettings are those of a session that builds indexes.
var indexSettings = map[string]string{
	"maintenance_work_mem": indexMemory,
	// The processors have other indexes to build.
	"max_parallel_maintenance_workers": "0",
	// Who begins in the middle of a table, since another one reads there, has to sort what comes in order from the beginning.
	"synchronize_seqscans": "off",
}

// finishCopy makes what rows need only when they are read. A table is analyzed first: that and the building of its indexes
// keep each other out.
func (b *builder) finishCopy(ctx context.Context) error {
	var indexes []string
	for _, table := range b.projector.Tables() {
		if _, err := b.conn.Exec(ctx, `ANALYZE `+pgx.Identifier{b.schema, table}.Sanitize()); err != nil {
			return err
		}
		more, err := propose(ctx, b.conn, copyIndexes, b.Live, b.schema, table)
		if err != nil {
			return err
		}
		indexes = append(indexes, more...)
	}
	group, ctx := errgroup.WithContext(ctx)
	for i, statement := range indexes {
		group.Go(func() error {
			if err := send(ctx, struct{}{}, b.indexing); err != nil {
				return err
			}
			defer func() { <-b.indexing }()
			if i == 0 {
				_, err := b.conn.Exec(ctx, statement)
				return err
			}
			return b.apart(ctx, statement)
		})
	}
	return group.Wait()
}

// apart executes a statement on a connection of its own.
func (b *builder) apart(ctx context.Context, statement string) error {
	conn, err := pgx.ConnectConfig(ctx, b.config)
	if err != nil {
		return err
	}
	defer closeConn(ctx, conn)
	_, err = conn.Exec(ctx, statement)
	return err
}
