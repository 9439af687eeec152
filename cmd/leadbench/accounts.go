package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/httpapi"
)

// accounts provisions accounts that have the default limits, and returns captures that are spread over them. Each has a
// token of its own.
func (s *service) accounts(ctx context.Context, database string, n int) (target, error) {
	progress("provisioning %d accounts", n)
	store, err := openLog(ctx, database)
	if err != nil {
		return target{}, err
	}
	defer store.Close()
	rate, burst := 10., 100 // the service has no limit that is reached
	configured := event.AccountConfigured{
		Features: []string{"crm_api"}, Stages: []string{"new", "won"}, Region: "IN", Currency: "INR",
		RateLimit: &rate, RateBurst: &burst,
	}
	kind, data, err := event.Encode(configured)
	if err != nil {
		return target{}, err
	}
	ids, writes := make([]string, n), make([]eventstore.Write, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("account%d", i+1)
		e := fact(kind, string(data))
		e.Metadata = event.Metadata{Actor: "user:bench", Account: ids[i]}
		writes[i] = newStream(event.AccountStream(ids[i]), e)
	}
	for some := range slices.Chunk(writes, 1000) { // an append has at most 1 MiB
		if _, err := store.Append(ctx, some...); err != nil {
			return target{}, err
		}
	}
	to := target{path: capturePath, bearers: make([]string, n)}
	creating, ctx := errgroup.WithContext(ctx)
	creating.SetLimit(32)
	for i, id := range ids {
		creating.Go(func() (err error) {
			owner := *s
			if owner.jwt, err = httpapi.MintHS256([]byte(s.secret),
				httpapi.Minting{Account: id, Subject: "bench", TTL: 24 * time.Hour}, time.Now()); err != nil {
				return err
			}
			to.bearers[i], err = owner.createToken(ctx)
			return err
		})
	}
	return to, creating.Wait()
}
