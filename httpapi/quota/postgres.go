package quota

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
)

// Postgres lends tokens from buckets in the views' database. After a crash of the database they are full. One statement
// serves all callers that wait, so that many accounts cost little more than one.
type Postgres struct {
	loans eventstore.Batcher[loan, Lease]
}

// loan is the arguments of Lend.
type loan struct {
	key   string
	limit Limit
	want  int
}

// NewPostgres returns a lender on a pool.
func NewPostgres(pool *pgxpool.Pool) *Postgres {
	return &Postgres{loans: eventstore.Batcher[loan, Lease]{
		Query:       func(ctx context.Context, loans []loan) ([]Lease, error) { return lend(ctx, pool, loans) },
		Concurrency: 1, MaxBatch: 256, Timeout: 10 * time.Second, // callers have their own
	}}
}

// Lend implements Lender.
func (p *Postgres) Lend(ctx context.Context, key string, limit Limit, want int) (Lease, error) {
	return p.loans.Do(ctx, loan{key, limit, want})
}

// The time is taken under the row's lock, and a clock that was set back adds nothing. A new bucket is full, so that
// excluded.tokens + excluded.lent is its size.
const lendSQL = `
INSERT INTO quota.bucket AS b (key, tokens, at, rate, lent)
SELECT key, burst - lent, clock_timestamp(), rate, lent
  FROM unnest($1::text[], $2::float8[], $3::float8[], $4::bigint[]) AS loan (key, rate, burst, want),
       LATERAL (SELECT least(want, floor(burst)::bigint) AS lent) AS first
    ON CONFLICT (key) DO UPDATE SET (tokens, lent, at, rate) = (
       SELECT filled - granted, granted, moment, excluded.rate
         FROM (SELECT clock_timestamp() AS moment) AS now,
              LATERAL (SELECT least(excluded.tokens + excluded.lent, b.tokens +
                excluded.rate * greatest(0, extract(epoch FROM moment - b.at)::float8)) AS filled) AS f,
              LATERAL (SELECT greatest(0, least(excluded.lent, floor(filled)::bigint)) AS granted) AS g)
RETURNING key, lent, tokens`

// lend makes loans of different keys: a statement cannot change a bucket twice. Rows are locked in the order of their
// keys, so that processes do not deadlock.
func lend(ctx context.Context, pool *pgxpool.Pool, loans []loan) ([]Lease, error) {
	keys, rates, bursts := make([]string, len(loans)), make([]float64, len(loans)), make([]float64, len(loans))
	wants, index := make([]int, len(loans)), make(map[string]int, len(loans))
	for i, l := range loans {
		index[l.key] = i
	}
	if len(index) < len(loans) {
		return nil, errors.New("two loans of one bucket")
	}
	sorted := slices.SortedFunc(slices.Values(loans), func(a, b loan) int { return cmp.Compare(a.key, b.key) })
	for i, l := range sorted {
		keys[i], rates[i], bursts[i], wants[i] = l.key, l.limit.Rate, float64(l.limit.Burst), l.want
	}
	rows, err := pool.Query(ctx, lendSQL, keys, rates, bursts, wants)
	if err != nil {
		return nil, err
	}
	leases := make([]Lease, len(loans))
	var key string
	var lease Lease
	_, err = pgx.ForEachRow(rows, []any{&key, &lease.Granted, &lease.Left}, func() error {
		leases[index[key]] = lease
		return nil
	})
	return leases, err
}
