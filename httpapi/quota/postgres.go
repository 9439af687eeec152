package quota

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Postgres lends tokens from buckets in the views' database. After a crash of the database they are full.
type Postgres struct{ Pool *pgxpool.Pool }

// Lend implements Lender.
func (p Postgres) Lend(ctx context.Context, key string, limit Limit, want int) (lease Lease, err error) {
	err = p.Pool.QueryRow(ctx, "SELECT granted, remaining FROM quota.lend($1, $2, $3, $4)",
		key, limit.Rate, float64(limit.Burst), want).Scan(&lease.Granted, &lease.Left)
	return lease, err
}
