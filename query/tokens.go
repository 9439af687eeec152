package query

import (
	"context"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

const tokenColumns = `SELECT token_id, name, prefix, expires_at, created_at, created_by, rotated_at, deleted_at, last_used_at FROM views.token`

// Tokens lists an account's tokens, including deleted ones, newest first. The error is ErrCursor for a cursor of another list.
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

// TokensToAnnounce returns the ids of tokens, of all accounts, that expire within a time and whose expiry was not announced: at
// most limit, the earliest first. A token whose whole lifetime is no longer than this time is not among them.
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
	err := row.Scan(&t.TokenID, &t.Name, &t.Prefix, &t.ExpiresAt, &t.CreatedAt, &t.CreatedBy, &t.RotatedAt, &t.DeletedAt, &t.LastUsedAt)
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

const tokenEventColumns = `
	SELECT position, event_id, token_id, type, at, actor, ip, user_agent, request_id, data, digest, leaf FROM views.token_event`

// TokenEvents lists what happened to one token, oldest first. The errors are ErrNotFound and ErrCursor.
func (r *Reader) TokenEvents(ctx context.Context, account, id string, p Page) (List[TokenEvent], error) {
	if !event.ValidID(id) {
		return List[TokenEvent]{}, ErrNotFound
	}
	list, err := r.AuditTokens(ctx, account, AuditFilter{TokenID: id}, p)
	switch {
	case err != nil || len(list.Items) > 0:
	case p.Cursor == "": // every token was created; to look again could find that, and not what is to be answered
		err = ErrNotFound
	default:
		_, err = one(ctx, r, pgx.RowTo[bool],
			`SELECT true FROM views.token_event WHERE token_id = $1 AND account = $2 LIMIT 1`, id, account)
	}
	return list, err
}

// AuditTokens lists what happened to an account's tokens, oldest first. The error is ErrCursor for a cursor of
// another list.
func (r *Reader) AuditTokens(ctx context.Context, account string, filter AuditFilter, p Page) (List[TokenEvent], error) {
	s := filter.selection(account)
	if err := s.goOn(`>`, cursorOf(tokenEventCursor, account), p.Cursor); err != nil {
		return List[TokenEvent]{}, err
	}
	return pageByPosition(ctx, r, s, cursorOf(tokenEventCursor, account), p.Limit, scanTokenEvent)
}

// LatestTokenEvents is AuditTokens, newest first.
func (r *Reader) LatestTokenEvents(ctx context.Context, account string, filter AuditFilter, p Page) (List[TokenEvent], error) {
	s := filter.selection(account)
	s.order = `position DESC`
	if err := s.goOn(`<`, cursorOf(auditCursor, account), p.Cursor); err != nil {
		return List[TokenEvent]{}, err
	}
	return pageByPosition(ctx, r, s, cursorOf(auditCursor, account), p.Limit, scanTokenEvent)
}

// AuditTokensAll yields everything that AuditTokens lists, in constant memory. It ends after yielding an error.
func (r *Reader) AuditTokensAll(ctx context.Context, account string, filter AuditFilter) iter.Seq2[TokenEvent, error] {
	return All(func(p Page) (List[TokenEvent], error) { return r.AuditTokens(ctx, account, filter, p) })
}

func (f AuditFilter) selection(account string) selection {
	s := selection{from: tokenEventColumns, order: `position`}
	s.and(`account = ?`, account)
	s.equal(`token_id`, f.TokenID)
	s.equal(`type`, f.Type)
	s.within(`at`, f.Since, f.Until)
	return s
}

func scanTokenEvent(row pgx.CollectableRow) (placed[TokenEvent], error) {
	var e placed[TokenEvent]
	var at time.Time
	var data []byte
	err := row.Scan(&e.position, &e.item.ID, &e.item.TokenID, &e.item.Type, &at, &e.item.Actor,
		&e.item.IP, &e.item.UserAgent, &e.item.RequestID, &data, &e.item.Digest, &e.item.Leaf)
	if err != nil {
		return e, err
	}
	e.item.Position, e.item.At, e.item.Data = eventstore.Position(e.position), audit.Moment(at), data
	e.item, err = e.item.Sealed()
	return e, err
}

// TokenIDs returns the ids of the tokens of all accounts behind one, in order, deleted ones too.
func (r *Reader) TokenIDs(ctx context.Context, after string) ([]string, error) {
	rows, err := r.pool.Query(ctx, `SELECT token_id FROM views.token WHERE token_id > $1 ORDER BY token_id LIMIT 500000`, after)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return ids, schema.Unavailable(err)
}
