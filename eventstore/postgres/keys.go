package postgres

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// keepKeys follows an append in its transaction, and keeps the keys of what that has stored: an append that was refused
// leaves no key. Nor does one that was sent again and stands on the log already: its key is there with it, unless somebody
// was forgotten meanwhile, and what is destroyed does not come back.
//
// OFFSET keeps the planner from a join: a plan that was made while the log was small would read all of it for each batch.
const keepKeys = `
	INSERT INTO person.key (stream, id, sealed_by, sealed)
	SELECT k.stream, k.id, k.sealed_by, k.sealed
	  FROM (SELECT unnest($1::text[]) AS stream, unnest($2::bigint[]) AS id, unnest($3::text[]) AS sealed_by,
	               unnest($4::bytea[]) AS sealed, unnest($5::uuid[]) AS event) AS k
	 WHERE EXISTS (
	       SELECT FROM log.event e
	        WHERE e.stream = k.stream COLLATE "C" AND e.event_id = k.event AND e.xmin = pg_current_xact_id()::xid
	       OFFSET 0)
	    ON CONFLICT DO NOTHING`

// The arguments of keepKeys.
const (
	keyStream = iota
	keyID
	keySealedBy
	keySealed
	keyEvent // the first that the stream gets
	keyArguments
)

var keyTypes = [keyArguments]uint32{
	keyStream: pgtype.TextOID, keyID: pgtype.Int8OID, keySealedBy: pgtype.TextOID, keySealed: pgtype.ByteaOID, keyEvent: pgtype.UUIDOID,
}

// keys are those of a batch.
type keys struct {
	prepared *pgconn.StatementDescription
	arrays   [keyArguments]array
}

func (k *keys) fill(batch []*request) {
	a := &k.arrays
	for i := range a {
		a[i].element = keyTypes[i]
		a[i].reset()
	}
	for _, r := range batch {
		for _, w := range r.writes {
			if w.Key == nil || len(w.Events) == 0 {
				continue
			}
			a[keyStream].text(w.Stream)
			a[keyID].element64(w.Key.ID)
			a[keySealedBy].text(w.Key.SealedBy)
			a[keySealed].raw(w.Key.Sealed)
			a[keyEvent].raw(w.Events[0].ID[:])
		}
	}
}

// queue adds the statement to those that go together, when there are keys.
func (k *keys) queue(batch *pgconn.Batch) {
	if k.arrays[keyStream].n == 0 {
		return
	}
	var values [keyArguments][]byte
	for i := range k.arrays {
		values[i] = k.arrays[i].bytes()
	}
	batch.ExecStatement(k.prepared, values[:], []int16{pgx.BinaryFormatCode}, nil)
}
