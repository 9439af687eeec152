package sealed

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
)

const selectKeys = `SELECT stream, id, sealed_by, sealed FROM person.key`

// selectEach uses the index for each stream, however many. Otherwise PostgreSQL reads the whole table for some thousand of them,
// again and again while a log is replayed.
const selectEach = `SELECT k.* FROM unnest($1::text[]) AS asked (stream)
	CROSS JOIN LATERAL (` + selectKeys + ` WHERE stream = asked.stream COLLATE "C" OFFSET 0) AS k`

// selectRun reads keys that stand one after another in the index, which costs a fifth of looking for each.
const selectRun = selectKeys + ` WHERE stream BETWEEN $1 AND $2 ORDER BY stream LIMIT $3`

// run is the least number of new leads whose keys are read in one go.
const run = 50

// findMany reads and opens the keys of streams. Born are new leads: those created one after another have names that follow each
// other.
func (v *Vault) findMany(ctx context.Context, born, others []string) (found map[string][]key, err error) {
	if len(born) < run {
		born, others = nil, append(others, born...)
	}
	found = make(map[string][]key, len(born)+len(others))
	rest, err := v.findRun(ctx, born, found)
	if err != nil {
		return nil, err
	}
	others = slices.DeleteFunc(append(others, rest...), func(stream string) bool { return len(found[stream]) > 0 })
	if len(others) == 0 {
		return found, nil
	}
	slices.Sort(others)
	more, err := v.find(ctx, slices.Compact(others))
	maps.Copy(found, more)
	return found, err
}

// findRun opens the keys of streams by reading all keys between the first and the last. It gives up when there are twice as many
// keys as streams, and returns the streams that it has not reached.
func (v *Vault) findRun(ctx context.Context, streams []string, found map[string][]key) (rest []string, err error) {
	if len(streams) == 0 {
		return nil, nil
	}
	slices.Sort(streams)
	most := 2 * len(streams)
	kept, err := v.query(ctx, selectRun, streams[0], streams[len(streams)-1], most)
	if err != nil {
		return nil, err
	}
	if len(kept) == most { // perhaps there are more of the last one
		end := kept[most-1].Stream
		kept = slices.DeleteFunc(kept, func(k eventstore.Key) bool { return k.Stream == end })
		from, _ := slices.BinarySearch(streams, end)
		rest = streams[from:]
	}
	return rest, v.unsealAll(kept, streams, found)
}

// unsealAll opens what is kept of streams, both in the order of the streams.
func (v *Vault) unsealAll(kept []eventstore.Key, streams []string, found map[string][]key) error {
	i := 0
	for _, k := range kept {
		for i < len(streams) && streams[i] < k.Stream {
			i++
		}
		if i == len(streams) || streams[i] != k.Stream {
			continue
		}
		opened, err := v.unseal(k)
		if err != nil {
			return err
		}
		found[k.Stream] = append(found[k.Stream], opened)
	}
	return nil
}

// query is planned anew each time: a plan from when the table was small would go on comparing every key there is with
// every stream that is asked for.
func (v *Vault) query(ctx context.Context, query string, arguments ...any) ([]eventstore.Key, error) {
	rows, err := v.pool.Query(ctx, query, append([]any{pgx.QueryExecModeCacheDescribe}, arguments...)...)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	kept, err := pgx.CollectRows(rows, scanKey)
	return kept, unavailable(ctx, err)
}

// find opens the keys of streams in any order.
func (v *Vault) find(ctx context.Context, streams []string) (map[string][]key, error) {
	kept, err := v.query(ctx, selectEach, streams)
	if err != nil {
		return nil, err
	}
	found := make(map[string][]key, len(kept))
	for _, k := range kept {
		opened, err := v.unseal(k)
		if err != nil {
			return nil, err
		}
		found[k.Stream] = append(found[k.Stream], opened)
	}
	return found, nil
}

// findOf opens the keys of one stream, in a query that is shared with simultaneous lookups of others.
func (v *Vault) findOf(ctx context.Context, stream string) ([]key, error) {
	keys, err := v.lookUps.Answer(ctx, stream)
	if err != nil && ctx.Err() != nil {
		err = unavailable(ctx, err)
	}
	return keys, err
}

func (v *Vault) findEach(ctx context.Context, streams []string) ([][]key, error) {
	found, err := v.find(ctx, streams)
	if err != nil {
		return nil, err
	}
	each := make([][]key, len(streams))
	for i, stream := range streams {
		each[i] = found[stream]
	}
	return each, nil
}

func scanKey(row pgx.CollectableRow) (k eventstore.Key, err error) {
	err = row.Scan(&k.Stream, &k.ID, &k.SealedBy, &k.Sealed)
	return k, err
}
