package delivery

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore/event"
)

// erasedType is the type of the only event of an erased lead that is still delivered to webhook endpoints.
var erasedType = event.PublicName(event.LeadErased{}.EventType())

// eraseDeliveries cancels the queued deliveries of erased leads, given by their streams (those in before only up to a
// revision), and empties the recorded responses of their other
// deliveries: an endpoint may have echoed the lead, and the error of a failed attempt quotes the response. When an
// attempt in flight ends later, its delivery is cancelled and its response is not recorded.
//
// The fan-out calls it at the end of its transaction, which blocks the deliveries of all accounts. So it uses the index
// on streams, and scans neither all deliveries nor the whole queue.
func eraseDeliveries(ctx context.Context, tx pgx.Tx, streams []string, before map[string]int64) error {
	if len(streams) == 0 {
		return nil
	}
	bounds := []byte("{}")
	if len(before) > 0 {
		var err error
		if bounds, err = json.Marshal(before); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, `SET LOCAL enable_seqscan = off`); err != nil {
		return err
	}
	for _, statement := range []string{`
		SELECT FROM endpoint
		 WHERE ordering <> '' AND webhook_id IN (SELECT webhook_id FROM delivery d WHERE d.stream = ANY ($1)
		   AND d.type <> $2 AND d.revision < coalesce(($3::jsonb ->> d.stream)::bigint, 9223372036854775807))
		 ORDER BY webhook_id FOR UPDATE`, `
		WITH gone AS (
		    DELETE FROM queue q USING delivery d
		     WHERE d.stream = ANY ($1) AND d.type <> $2
		     AND d.revision < coalesce(($3::jsonb ->> d.stream)::bigint, 9223372036854775807)
		     AND q.delivery_id = d.delivery_id
		    RETURNING q.delivery_id
		)
		UPDATE delivery d SET state = 'cancelled', finished_at = now() FROM gone
		WHERE d.delivery_id = gone.delivery_id`, `
		SELECT advance(array_agg(webhook_id), array_agg(lane))
		  FROM (SELECT webhook_id, CASE ordering WHEN 'lead' THEN stream ELSE '' END AS lane
		          FROM endpoint JOIN (SELECT DISTINCT webhook_id, stream FROM delivery d WHERE d.stream = ANY ($1)
		            AND d.type <> $2 AND d.revision < coalesce(($3::jsonb ->> d.stream)::bigint, 9223372036854775807))
		            AS swept
		               USING (webhook_id)
		         WHERE ordering <> '') AS lanes`, `
		UPDATE attempt a SET response = '', error = '' FROM delivery d
		 WHERE d.stream = ANY ($1) AND d.type <> $2
		 AND d.revision < coalesce(($3::jsonb ->> d.stream)::bigint, 9223372036854775807)
		 AND a.delivery_id = d.delivery_id AND (a.response <> '' OR a.error <> '')`,
	} {
		if _, err := tx.Exec(ctx, statement, streams, erasedType, bounds); err != nil {
			return err
		}
	}
	return nil
}
