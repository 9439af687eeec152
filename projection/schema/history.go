package schema

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/attribution"
)

// LeadHistory is the input of attribution for one lead.
type LeadHistory struct {
	LeadID, Account string
	attribution.History
	Channels []attribution.Channel // of the touches, whose keys are not set yet
}

// TouchesOf selects the positions of the arrivals that a lead has now. The prefix is the schema of the tables with its
// dot, or empty, and lead a parameter.
func TouchesOf(prefix, lead string) string { return TouchesAsOf(prefix, lead, "9223372036854775807") }

// TouchesAsOf is TouchesOf as of a position, which is a parameter too.
func TouchesAsOf(prefix, lead, position string) string {
	return `
	SELECT came.position FROM ` + prefix + `touch came
	 WHERE came.lead_id = ` + lead + ` AND came.lead_id <> '' AND came.position <= ` + position + `
	   AND NOT EXISTS (SELECT FROM ` + prefix + `touch_owner later WHERE later.position = came.position
	   	AND later.since <= ` + position + ` OFFSET 0)
	 UNION ALL
	SELECT moved.position FROM ` + prefix + `touch_owner moved
	 WHERE moved.owner = ` + lead + ` AND moved.since <= ` + position + `
	   AND NOT EXISTS (
	       SELECT FROM ` + prefix + `touch_owner later
	        WHERE later.position = moved.position AND later.since > moved.since
	        AND later.since <= ` + position + ` OFFSET 0)`
}

// OwnerOf selects the lead that an arrival belongs to as of a position: touch is the arrival's row.
func OwnerOf(prefix, touch, position string) string {
	return `coalesce((
	       SELECT moved.owner FROM ` + prefix + `touch_owner moved WHERE moved.position = ` + touch + `.position AND ` +
		`moved.since <= ` + position + `
	        ORDER BY moved.since DESC LIMIT 1), ` + touch + `.lead_id)`
}

// historiesOf selects the histories of leads. An arrival belongs to a lead from when it came, or from a join or split
// on, until another one moves it; visits belong to a lead as long as an arrival that linked the visitor. Each lead is
// looked up by indexes: OFFSET 0 keeps PostgreSQL from reading all of a table to join it, as it does when it knows
// nothing of the table.
func historiesOf(prefix string) string {
	return `
	WITH asked AS (
	         SELECT lead_id COLLATE "C" AS lead_id FROM unnest($1::text[]) AS lead_id),
	     arrival AS (
	         SELECT a.lead_id AS asked, t.*, t.position AS since, t.stage AS own_stage, t.value AS own_value,
	                (SELECT min(o.since) FROM ` + prefix + `touch_owner o WHERE o.position = t.position) AS until
	           FROM asked a CROSS
	           JOIN LATERAL (
	                SELECT * FROM ` + prefix + `touch WHERE lead_id = a.lead_id AND lead_id <> '' OFFSET 0) AS t
	          UNION ALL
	         SELECT a.lead_id, t.*, o.since, '', '',
	                (SELECT min(l.since) FROM ` + prefix + `touch_owner l WHERE l.position = o.position
	                	AND l.since > o.since)
	           FROM asked a
	          CROSS JOIN LATERAL (SELECT * FROM ` + prefix + `touch_owner WHERE owner = a.lead_id OFFSET 0) AS o
	          CROSS JOIN LATERAL (SELECT * FROM ` + prefix + `touch WHERE position = o.position OFFSET 0) AS t),
	     link AS (
	         SELECT asked, visitor, min(since) AS since, CASE WHEN bool_and(until IS NOT NULL)
	         THEN max(until) END AS until
	           FROM arrival WHERE $2 AND visitor <> '' GROUP BY asked, visitor)
	SELECT asked, account, 'touch', position, at, since, coalesce(until, 0), own_stage, own_value,
	       source, utm_medium, utm_campaign, utm_source, intake_id, credential
	  FROM arrival
	 UNION ALL
	SELECT l.asked, t.account, 'visit', t.position, t.at, greatest(l.since, t.position), coalesce(l.until, 0), '', '',
	       t.source, t.utm_medium, t.utm_campaign, t.utm_source, t.intake_id, t.credential
	  FROM link l
	 CROSS JOIN LATERAL (SELECT * FROM ` + prefix + `touch WHERE visitor = l.visitor AND visitor <> ''
	 	AND kind = 'visit' OFFSET 0) AS t
	 WHERE l.until IS NULL OR t.position < l.until
	 UNION ALL
	SELECT a.lead_id, c.account, 'change', c.position, c.at, c.position, 0, c.stage, c.value, '', '', '', '', '', ''
	  FROM asked a CROSS JOIN LATERAL (SELECT * FROM ` + prefix + `lead_change WHERE lead_id = a.lead_id OFFSET 0) AS c
	 ORDER BY 1, 4, 6`
}

// Histories reads the histories of leads, in the order of their ids, and calls do with each. The prefix is the schema
// of the tables with its dot, or empty. Visits are included if visits is true.
func Histories(
	ctx context.Context, tx pgx.Tx, prefix string, leads []string, visits bool, do func(*LeadHistory) error,
) error {
	rows, err := tx.Query(ctx, historiesOf(prefix), leads, visits)
	if err != nil {
		return err
	}
	var history *LeadHistory
	var lead, account, what, stage, value string
	var position, since, until int64
	var at time.Time
	var of attribution.Channel
	into := []any{
		&lead, &account, &what, &position, &at, &since, &until, &stage, &value,
		&of.Source, &of.Medium, &of.Campaign, &of.UTMSource, &of.Intake, &of.Credential,
	}
	_, err = pgx.ForEachRow(rows, into, func() error {
		if history == nil || lead != history.LeadID {
			if history != nil {
				if err := do(history); err != nil {
					return err
				}
			}
			history = &LeadHistory{LeadID: lead, Account: account}
		}
		switch what {
		case "touch", "visit":
			history.Touches = append(history.Touches, attribution.Seen{
				Touch: attribution.Touch{At: at.UnixMilli(), Position: position}, Since: since, Until: until,
				Visit: what == "visit",
			})
			history.Channels = append(history.Channels, of)
		}
		if stage != "" {
			history.Stages = append(history.Stages, attribution.Stage{
				Position: position, At: at.UnixMilli(), Name: stage,
			})
		}
		if units, ok := attribution.ParseValue(value); ok && value != "" {
			history.Values = append(history.Values, attribution.Value{Position: position, Units: units})
		}
		return nil
	})
	if err == nil && history != nil {
		err = do(history)
	}
	return err
}

// By sets the keys of the touches.
func (h *LeadHistory) By(key attribution.Key) {
	for i := range h.Touches {
		h.Touches[i].Key = h.Channels[i].Key(key)
	}
}

// WonStages reads the stages of accounts that count as a conversion.
func WonStages(ctx context.Context, tx pgx.Tx, prefix string, accounts ...string) (map[string]attribution.Won, error) {
	rows, err := tx.Query(ctx,
		`SELECT account, position, ARRAY(SELECT jsonb_array_elements_text(stages)) FROM `+prefix+`won_stages
		WHERE account = ANY ($1) ORDER BY position`, accounts)
	if err != nil {
		return nil, err
	}
	won := map[string]attribution.Won{}
	var account string
	var setting attribution.WonStages
	_, err = pgx.ForEachRow(rows, []any{&account, &setting.Position, &setting.Stages}, func() error {
		won[account] = append(won[account], attribution.WonStages{
			Position: setting.Position, Stages: append([]string(nil), setting.Stages...),
		})
		return nil
	})
	return won, err
}

// conversionTouch is the size in bytes of a touch in a row of conversion: its time, its position, the position from
// which it belongs to the lead, and whether it is a visit.
const conversionTouch = 8 + 8 + 8 + 1

// AppendTouch appends the encoding of a touch in a row of conversion, without its key.
func AppendTouch(encoded []byte, t attribution.Seen) []byte {
	encoded = binary.BigEndian.AppendUint64(encoded, uint64(t.At))
	encoded = binary.BigEndian.AppendUint64(encoded, uint64(t.Position))
	encoded = binary.BigEndian.AppendUint64(encoded, uint64(t.Since))
	if t.Visit {
		return append(encoded, 1)
	}
	return append(encoded, 0)
}

// AppendKey appends a touch's key, preceded by its length.
func AppendKey(encoded []byte, key string) []byte {
	return append(binary.AppendUvarint(encoded, uint64(len(key))), key...)
}

// ConversionKeyColumns are the columns of conversion that hold keys.
var ConversionKeyColumns = map[attribution.Key]string{
	attribution.BySource: "source", attribution.ByMedium: "medium", attribution.ByCampaign: "campaign",
	attribution.ByUTMSource: "utm_source", attribution.ByIntake: "intake", attribution.ByCredential: "credential",
}

var errConversionRow = errors.New("a row of conversion is damaged")

// ConversionKeys interns the keys that are read.
type ConversionKeys map[string]string

// Touches decodes the touches of a row that are known as of a position, with their keys, and appends them to touches.
func (known ConversionKeys) Touches(
	touches []attribution.Touch, encoded, keys []byte, position int64, visits bool,
) ([]attribution.Touch, error) {
	for ; len(encoded) >= conversionTouch; encoded = encoded[conversionTouch:] {
		length, n := binary.Uvarint(keys)
		if n <= 0 || uint64(len(keys)-n) < length {
			return touches, errConversionRow
		}
		key := keys[n : n+int(length)]
		keys = keys[n+int(length):]
		if int64(binary.BigEndian.Uint64(encoded[16:])) > position || encoded[24] == 1 && !visits {
			continue
		}
		text, met := known[string(key)]
		if !met {
			text = string(key)
			known[text] = text
		}
		touches = append(touches, attribution.Touch{
			At: int64(binary.BigEndian.Uint64(encoded)), Position: int64(binary.BigEndian.Uint64(encoded[8:])),
			Key: text,
		})
	}
	if len(encoded) > 0 || len(keys) > 0 {
		return touches, errConversionRow
	}
	return touches, nil
}

// Milliseconds converts a timestamptz in PostgreSQL's binary format, microseconds since 2000, to Unix milliseconds.
func Milliseconds(binaryTime []byte) int64 {
	return int64(binary.BigEndian.Uint64(binaryTime))/1000 + 946684800_000
}

// ChangedSince selects the leads whose conversions may have changed after position $1, up to $2: $3 is an account, or
// empty for all. It does not cover changes of an account's won stages, which WonSince selects. Joins and splits have
// rows in lead_change.
func ChangedSince(prefix string) string {
	return `
	SELECT lead_id FROM ` + prefix + `lead_change WHERE position > $1 AND position <= $2 AND ($3 = '' OR account = $3)
	 UNION
	SELECT t.lead_id FROM ` + prefix + `touch t
	 WHERE t.position > $1 AND t.position <= $2 AND ($3 = '' OR t.account = $3) AND t.kind = 'merged'
	   AND EXISTS (SELECT FROM ` + prefix + `conversion c WHERE c.lead_id = t.lead_id OFFSET 0)
	 UNION
	SELECT t.lead_id FROM ` + prefix + `touch t
	 WHERE t.position > $1 AND t.position <= $2 AND ($3 = '' OR t.account = $3) AND t.kind = 'created'
	   AND EXISTS (SELECT FROM ` + prefix + `won_stages w WHERE w.account = t.account AND w.stages ? t.stage OFFSET 0)
	 UNION
	SELECT coalesce(o.owner, a.lead_id)
	  FROM ` + prefix + `touch v
	 CROSS JOIN LATERAL (
	       SELECT lead_id, position FROM ` + prefix + `touch WHERE visitor = v.visitor AND visitor <> ''
	       	AND kind <> 'visit' OFFSET 0) AS a
	  LEFT JOIN LATERAL (
	       SELECT a.lead_id AS owner UNION SELECT owner
	       FROM ` + prefix + `touch_owner WHERE position = a.position OFFSET 0) AS o ON true
	 WHERE v.position > $1 AND v.position <= $2 AND ($3 = '' OR v.account = $3) AND v.kind = 'visit'`
}

// WonSince selects the accounts whose won stages changed after position $1, up to $2, with the position of the change.
func WonSince(prefix string) string {
	return `
	SELECT account, position FROM ` + prefix + `won_stages w
	 WHERE position > $1 AND position <= $2 AND stages <> coalesce((
	       SELECT stages FROM ` + prefix + `won_stages e WHERE e.account = w.account AND e.position < w.position
	       	ORDER BY e.position DESC LIMIT 1), '["won"]')`
}
