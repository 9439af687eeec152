package delivery

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// errForgotten says that a delivery is not made because its lead was erased.
var errForgotten = errors.New("the lead of a delivery is erased")

// erasedType is the only event of an erased lead that is still sent.
const erasedType = "lead.erased"

// erasedData is what is said of it.
type erasedData struct {
	LeadID     string `json:"leadId"`
	ContactUID string `json:"contactUID"`
}

// forget cancels what is queued of leads that are erased, and empties what endpoints answered to deliveries of theirs: an
// endpoint may have said back what it was told, and where that was no answer, the error quotes it. Whoever writes an attempt
// down has the row in the queue first; one that comes after finds the delivery cancelled.
//
// Everybody's deliveries wait meanwhile, so it goes by the index on the streams of deliveries, and reads neither all of
// them nor all of the queue. It is the end of the transaction.
func forget(ctx context.Context, tx pgx.Tx, streams []string) error {
	if len(streams) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, `SET LOCAL enable_seqscan = off`); err != nil {
		return err
	}
	for _, statement := range []string{`
		WITH gone AS (
		    DELETE FROM queue q USING delivery d
		     WHERE d.stream = ANY ($1) AND d.type <> $2 AND q.delivery_id = d.delivery_id
		    RETURNING q.delivery_id
		)
		UPDATE delivery d SET state = 'cancelled', finished_at = now() FROM gone WHERE d.delivery_id = gone.delivery_id`, `
		UPDATE attempt a SET response = '', error = '' FROM delivery d
		 WHERE d.stream = ANY ($1) AND d.type <> $2 AND a.delivery_id = d.delivery_id AND (a.response <> '' OR a.error <> '')`,
	} {
		if _, err := tx.Exec(ctx, statement, streams, erasedType); err != nil {
			return err
		}
	}
	return nil
}
