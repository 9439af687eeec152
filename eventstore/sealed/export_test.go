package sealed

import (
	"context"
	"sync/atomic"

	"github.com/leadlog/leadlog/eventstore"
)

// Storing returns a count of the appends that store keys from now on: those that wait, and those that a query took.
func (v *Vault) Storing() func() int {
	var taken atomic.Int64
	query := v.stores.Query
	v.stores.Query = func(ctx context.Context, appends [][]eventstore.Write) ([]struct{}, error) {
		taken.Add(int64(len(appends)))
		return query(ctx, appends)
	}
	return func() int { return int(taken.Load()) + v.stores.Waiting() }
}
