package sealed

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/sealbox"
)

// For a third of the rows PostgreSQL prefers a sequential scan, and each page of a replay looks up that many.
func TestLookup_UsesIndex(t *testing.T) {
	t.Parallel()
	conn := pgtest.Connect(t, pgtest.DatabaseFrom(t, "log", postgres.Migrate))
	pgtest.Exec(t, conn, `
		INSERT INTO person.key SELECT 'lead-' || n, n, 'name', repeat('.', 60)::bytea
		FROM generate_series(1, 6000) AS n;
		ANALYZE person.key`)
	streams := pgtest.Rows[string](t, conn, `SELECT stream FROM person.key WHERE id % 3 = 0`)
	plan := pgtest.Rows[string](t, conn, `EXPLAIN `+selectEach, pgx.QueryExecModeCacheDescribe, streams)
	require.Contains(t, strings.Join(plan, "\n"), "Index Scan using key_id")
}

func TestLookup_Range(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.DatabaseFrom(t, "log", postgres.Migrate))
	box, err := sealbox.New(make([]byte, sealbox.KeySize))
	require.NoError(t, err)
	v := NewVault(pool, box)
	want := map[string][]key{}
	var kept []eventstore.Write
	create := func(stream string, keys int) {
		for range keys {
			k, sealed, err := v.create(stream, math.MinInt64)
			require.NoError(t, err)
			want[stream], kept = append(want[stream], k), append(kept, eventstore.Write{Stream: stream, Key: &sealed})
		}
	}
	var created []string
	for n := range 2 * minRange {
		stream := fmt.Sprintf("lead-%04d", n)
		created = append(created, stream)
		if n%10 != 3 { // the others were erased
			create(stream, 1+n%2)
		}
		create(stream+"-other", 1)
	}
	create("lead-0", 1) // an earlier stream
	require.NoError(t, v.store(t.Context(), kept))
	pgtest.Exec(t, pool, `UPDATE person.key SET sealed = '\x00' WHERE stream LIKE '%-other'`)
	for stream := range want {
		if strings.HasSuffix(stream, "-other") {
			delete(want, stream)
		}
	}

	found, err := v.findMany(t.Context(), slices.Clone(created), []string{"lead-0", created[4]})
	require.NoError(t, err)
	require.Len(t, found, len(want))
	for stream, keys := range want {
		require.ElementsMatch(t, keys, found[stream], stream)
	}

	few, err := v.findMany(t.Context(), created[:minRange-1], nil)
	require.NoError(t, err)
	require.ElementsMatch(t, want[created[1]], few[created[1]])
}
