package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// Token is a token's record. It has neither the value nor its hash.
type Token struct {
	TokenID    string    `json:"tokenId"`
	Name       string    `json:"name"`
	Prefix     string    `json:"prefix"`
	Status     string    `json:"status"` // active, expired or deleted
	ExpiresAt  Timestamp `json:"expiresAt"`
	CreatedAt  Timestamp `json:"createdAt"`
	CreatedBy  string    `json:"createdBy"` // an actor
	RotatedAt  Timestamp `json:"rotatedAt"`
	DeletedAt  Timestamp `json:"deletedAt"`
	LastUsedAt Timestamp `json:"lastUsedAt"`
}

const tokenColumns = `SELECT token_id, name, prefix, expires_at, created_at, created_by, rotated_at, deleted_at,
	last_used_at FROM views.token`

// Tokens lists an account's tokens, including deleted ones, newest first. The error is ErrCursor for a cursor of
// another list.
func (r *Reader) Tokens(ctx context.Context, account string, p Page) (List[Token], error) {
	return r.tokens(ctx, account, `true`, p)
}

// HeldTokens is Tokens without deleted tokens.
func (r *Reader) HeldTokens(ctx context.Context, account string, p Page) (List[Token], error) {
	return r.tokens(ctx, account, `deleted_at IS NULL`, p)
}

// DeletedTokens is Tokens with deleted tokens only.
func (r *Reader) DeletedTokens(ctx context.Context, account string, p Page) (List[Token], error) {
	return r.tokens(ctx, account, `deleted_at IS NOT NULL`, p)
}

func (r *Reader) tokens(ctx context.Context, account, which string, p Page) (List[Token], error) {
	s := selection{from: tokenColumns, order: `created_at DESC, token_id DESC`}
	s.and(which)
	s.and(`account = ?`, account)
	if _, err := s.olderThan(`token_id`, cursorOf(tokenCursor, account), p.Cursor); err != nil {
		return List[Token]{}, err
	}
	return page(ctx, r, s, p.Limit, r.scanToken, func(t Token) string {
		return newestCursor{time.Time(t.CreatedAt), t.TokenID}.encode(cursorOf(tokenCursor, account))
	})
}

// Token returns one token's record. The error is ErrNotFound when the account never had it.
func (r *Reader) Token(ctx context.Context, account, id string) (Token, error) {
	if !event.ValidID(id) {
		return Token{}, ErrNotFound
	}
	return one(ctx, r, r.scanToken, tokenColumns+` WHERE token_id = $1 AND account = $2`, id, account)
}

// TokensToAnnounce returns the ids of tokens, of all accounts, that expire within a time and whose expiry was not
// announced: at most limit, the earliest first. A token whose whole lifetime is no longer than this time is not among
// them.
func (r *Reader) TokensToAnnounce(ctx context.Context, within time.Duration, limit int) ([]string, error) {
	rows, err := r.pool.Query(ctx, `
		SELECT token_id FROM views.token
		 WHERE deleted_at IS NULL AND announced_at IS NULL AND expires_at > $1 AND expires_at <= $1 + $2::interval
		   AND expires_at > coalesce(rotated_at, created_at) + $2::interval
		 ORDER BY expires_at LIMIT $3`, r.now(), within, limit)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return ids, schema.Unavailable(err)
}

func (r *Reader) scanToken(row pgx.CollectableRow) (Token, error) {
	var t Token
	err := row.Scan(&t.TokenID, &t.Name, &t.Prefix, &t.ExpiresAt, &t.CreatedAt, &t.CreatedBy, &t.RotatedAt,
		&t.DeletedAt, &t.LastUsedAt)
	switch {
	case !time.Time(t.DeletedAt).IsZero():
		t.Status = "deleted"
	case r.now().Before(time.Time(t.ExpiresAt)):
		t.Status = "active"
	default:
		t.Status = "expired"
	}
	return t, err
}

// TokenIDs returns the ids of the tokens of all accounts that follow an id, in order, those of deleted tokens too.
func (r *Reader) TokenIDs(ctx context.Context, after string) ([]string, error) {
	rows, err := r.pool.Query(ctx,
		`SELECT token_id FROM views.token WHERE token_id > $1 ORDER BY token_id LIMIT 500000`, after)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return ids, schema.Unavailable(err)
}
