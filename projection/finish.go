package projection

import (
	"context"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// indexesAtOnce is how many indexes are built at a time, of all copies together. Each takes a processor, and sorts in an amount
// of memory that fits into the processor's cache: sorting runs and merging them from files takes half as long as sorting
// everything in memory.
const (
	indexesAtOnce = 3
	indexMemory   = "4MB"
)

// indexSettings are those of a session that builds indexes.
var indexSettings = map[string]string{
	"maintenance_work_mem": indexMemory,
	// The other processors build other indexes.
	"max_parallel_maintenance_workers": "0",
	// A scan that starts in the middle of a table, because another one is reading there, would have to sort rows that are in order.
	"synchronize_seqscans": "off",
}

// finishCopy creates what is needed only for reading: statistics and indexes. A table is analyzed first, because analyzing and
// building an index block each other.
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
