package view

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// Token is the view of API tokens, including deleted ones.
type Token struct{}

func (Token) Name() string     { return schema.Token }
func (Token) Version() int     { return 2 }
func (Token) Tables() []string { return []string{"token"} }
func (Token) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.TokenPrefix, event.TokenUsePrefix}}
}

// tokenRow is a row of the table, with the columns in order.
type tokenRow struct {
	ID, Account, Name, Prefix string
	ExpiresAt, CreatedAt      time.Time
	CreatedBy                 string
	RotatedAt, DeletedAt      *time.Time
	LastUsedAt, AnnouncedAt   *time.Time
}

// evolve folds an event into the row, which is nil before the token's creation.
func (t *tokenRow) evolve(e projection.Event) (*tokenRow, error) {
	if created, ok := e.Data.(event.TokenCreated); ok {
		return &tokenRow{
			ID: event.TokenID(e.Stream), Account: e.Metadata.Account, Name: created.Name, Prefix: created.Prefix,
			ExpiresAt: created.ExpiresAt, CreatedAt: e.At, CreatedBy: e.Metadata.Actor,
		}, nil
	}
	switch e.Data.(type) {
	case event.TokenUsed:
		return t.use(e.At), nil
	case event.TokenRefused:
		return t, nil
	}
	if t == nil {
		return nil, fmt.Errorf("%s at revision %d: %w", e.Stream, e.Revision, errGap)
	}
	switch data := e.Data.(type) {
	case event.TokenRotated:
		t.Prefix, t.ExpiresAt, t.RotatedAt, t.AnnouncedAt = data.Prefix, data.ExpiresAt, &e.At, nil
	case event.TokenExpiring:
		t.AnnouncedAt = &e.At
	case event.TokenDeleted:
		t.DeletedAt = &e.At
	}
	return t, nil
}

// use records a usage sample. It is on another stream than the token's events: in a copy as of a time, the token may be
// missing, and the sample of a new day may precede the last one of the day before.
func (t *tokenRow) use(at time.Time) *tokenRow {
	if t != nil && (t.LastUsedAt == nil || t.LastUsedAt.Before(at)) {
		t.LastUsedAt = &at
	}
	return t
}

func (Token) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
	ids := map[string]struct{}{}
	for _, e := range batch {
		ids[event.TokenID(e.Stream)] = struct{}{}
	}
	tokens, err := findTokens(ctx, tx, slices.Sorted(maps.Keys(ids)))
	if err != nil {
		return err
	}
	for _, e := range batch {
		id := event.TokenID(e.Stream)
		if tokens[id], err = tokens[id].evolve(e); err != nil {
			return err
		}
	}
	return saveTokens(ctx, tx, tokens)
}

func findTokens(ctx context.Context, tx pgx.Tx, ids []string) (map[string]*tokenRow, error) {
	rows, err := tx.Query(ctx, `
		SELECT token_id, account, name, prefix, expires_at, created_at, created_by, rotated_at, deleted_at,
		  last_used_at, announced_at
		  FROM token WHERE token_id = ANY ($1)`, ids)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[tokenRow])
	if err != nil {
		return nil, err
	}
	tokens := make(map[string]*tokenRow, len(ids))
	for _, t := range found {
		tokens[t.ID] = t
	}
	return tokens, nil
}

func saveTokens(ctx context.Context, tx pgx.Tx, tokens map[string]*tokenRow) error {
	var ids, accounts, names, prefixes, creators []string
	var expires, created []time.Time
	var rotated, deleted, used, announced []*time.Time
	for _, id := range slices.Sorted(maps.Keys(tokens)) {
		t := tokens[id]
		if t == nil {
			continue
		}
		ids, accounts, names, prefixes = append(ids, id), append(accounts, t.Account), append(names, t.Name),
			append(prefixes, t.Prefix)
		expires, created, creators = append(expires, t.ExpiresAt), append(created, t.CreatedAt),
			append(creators, t.CreatedBy)
		rotated, deleted = append(rotated, t.RotatedAt), append(deleted, t.DeletedAt)
		used, announced = append(used, t.LastUsedAt), append(announced, t.AnnouncedAt)
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO token (token_id, account, name, prefix, expires_at, created_at, created_by, rotated_at, deleted_at,
		  last_used_at, announced_at)
		SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[],
		                     $7::text[], $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::timestamptz[])
		    ON CONFLICT (token_id) DO UPDATE
		   SET prefix = excluded.prefix, expires_at = excluded.expires_at, rotated_at = excluded.rotated_at,
		       deleted_at = excluded.deleted_at, last_used_at = excluded.last_used_at,
		       announced_at = excluded.announced_at`,
		ids, accounts, names, prefixes, expires, created, creators, rotated, deleted, used, announced)
	return err
}
