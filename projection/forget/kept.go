package forget

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/projection/schema"
)

// KeptValue is a campaign parameter that stays on the log after an erasure, because events have it in plain text.
type KeptValue struct {
	Name  string // such as utm_campaign
	Value string
}

// Kept returns the campaign parameters of the touches of leads and of their visitors, sorted. It does not return what is sealed.
func (d Database) Kept(ctx context.Context, account string, leads []string) ([]KeptValue, error) {
	rows, err := d.Pool.Query(ctx, `
		WITH arrival AS (
		         SELECT * FROM views.touch WHERE account = $1 AND lead_id <> '' AND lead_id = ANY ($2)),
		     seen AS (
		         SELECT * FROM arrival
		          UNION ALL
		         SELECT v.* FROM views.touch v
		          WHERE v.account = $1 AND v.kind = 'visit' AND v.visitor <> '' AND v.visitor IN (SELECT visitor FROM arrival))
		SELECT DISTINCT p.name, p.value
		  FROM seen CROSS JOIN LATERAL (VALUES
		       ('utm_source', utm_source), ('utm_medium', utm_medium), ('utm_campaign', utm_campaign), ('utm_id', utm_id)) AS p (name, value)
		 WHERE p.value <> '' ORDER BY p.name, p.value`, account, leads)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	kept, err := pgx.CollectRows(rows, pgx.RowToStructByPos[KeptValue])
	return kept, schema.Unavailable(err)
}
