package quota

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Postgres lends out of buckets in the database of the read models. They are full after a crash of it.
type Postgres struct{ Pool *pgxpool.Pool }

// Lend implements Lender.
func (p Postgres) Lend(ctx context.Context, key string, limit Limit, want int) (lease Lease, err error) {
	err = p.Pool.QueryRow(ctx, "SELECT granted, remaining FROM quota.lend($1, $2, $3, $4)",
		key, limit.Rate, float64(limit.Burst), want).Scan(&lease.Granted, &lease.Left)
	return lease, err
}
