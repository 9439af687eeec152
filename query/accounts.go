package query

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/account"
)

// Account returns an account's plan and settings. The error is ErrNotFound when nobody provisioned it.
func (r *Reader) Account(ctx context.Context, id string) (Account, error) {
	if !account.ValidID(id) {
		return Account{}, ErrNotFound
	}
	return one(ctx, r, scanAccount, `
		SELECT account_id, name, features, stages, region, rate_limit, rate_burst, jwt_not_before, created_at, updated_at
		  FROM views.account
		 WHERE account_id = $1`, id)
}

func scanAccount(row pgx.CollectableRow) (a Account, err error) {
	err = row.Scan(&a.AccountID, &a.Name, jsonOf{&a.Features}, jsonOf{&a.Stages}, &a.Region, &a.RateLimit, &a.RateBurst, &a.JWTNotBefore,
		&a.CreatedAt, &a.UpdatedAt)
	return a, err
}
