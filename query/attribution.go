package query

import (
	"context"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/query/attribution"
)

// Attribution is a report on which touches led to what was won.
type Attribution struct {
	Rows  []AttributionRow    `json:"rows"`
	Total AttributionTotal    `json:"total"`
	AsOf  eventstore.Position `json:"asOf"`
}

// AttributionRow is what touches with one key led to.
type AttributionRow struct {
	Key         string `json:"key"`
	Touches     int64  `json:"touches"`
	Conversions string `json:"conversions"` // with 6 decimals
	Value       string `json:"value"`       // with 4
}

// AttributionTotal is what all rows add up to.
type AttributionTotal struct {
	Conversions string `json:"conversions"`
	Value       string `json:"value"`
}

// NewAttribution returns a report as answers have it.
func NewAttribution(report *attribution.Report, asOf eventstore.Position) Attribution {
	rows := report.Rows()
	answer := Attribution{Rows: make([]AttributionRow, len(rows)), AsOf: asOf}
	for i, row := range rows {
		answer.Rows[i] = AttributionRow{row.Key, row.Touches, row.Conversions.Decimal(6), row.Value.Decimal(4)}
	}
	total := report.Total()
	answer.Total = AttributionTotal{total.Conversions.Decimal(6), total.Value.Decimal(4)}
	return answer
}

// AttributionFilter selects what a report counts, and how.
type AttributionFilter struct {
	attribution.Rules
	By     attribution.Key
	Visits bool // count as touches too
	AsOf   eventstore.Position
}

// Attribution divides an account's conversions among the touches before them, as of a position that the view has reached.
func (r *Reader) Attribution(ctx context.Context, account string, filter AttributionFilter) (Attribution, error) {
	report := attribution.NewReport(filter.Rules)
	err := r.snapshot(ctx, func(tx pgx.Tx) error {
		settings, err := wonStages(ctx, tx, account)
		if err != nil {
			return err
		}
		won := settings.AsOf(int64(filter.AsOf))
		for leads, err := range leadsWon(ctx, tx, account, won) {
			if err != nil {
				return err
			}
			err := eachHistory(ctx, tx, leads, filter.By, filter.Visits, func(lead string, history *attribution.History) {
				if c, converted := history.Conversion(lead, int64(filter.AsOf), won, filter.Visits); converted {
					report.Add(c)
				}
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return NewAttribution(report, filter.AsOf), schema.Unavailable(err)
}

// snapshot runs queries that all see the same rows.
func (r *Reader) snapshot(ctx context.Context, do func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, r.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, do)
}

func wonStages(ctx context.Context, tx pgx.Tx, account string) (won attribution.Won, err error) {
	rows, err := tx.Query(ctx, `SELECT position, stages FROM views.won_stages WHERE account = $1 ORDER BY position`, account)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (w attribution.WonStages, err error) {
		err = row.Scan(&w.Position, jsonOf{&w.Stages})
		return w, err
	})
}

// leadsAtOnce are read together.
const leadsAtOnce = 2000

// leadsWon yields the ids of leads that were ever at one of the stages, some at a time. Leads that were created at the first stage of
// the pipeline are looked through only if that is one of them.
func leadsWon(ctx context.Context, tx pgx.Tx, account string, won []string) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		for last := ""; ; {
			rows, err := tx.Query(ctx, `
				SELECT lead_id FROM views.lead_change WHERE account = $1 AND stage = ANY ($2) AND lead_id > $3
				 UNION
				SELECT lead_id FROM views.touch WHERE account = $1 AND stage = ANY ($2) AND lead_id > $3
				   AND EXISTS (SELECT FROM views.won_stages WHERE account = $1 AND first = ANY ($2))
				 ORDER BY lead_id LIMIT $4`, pgx.QueryExecModeCacheDescribe, account, won, last, leadsAtOnce)
			if err != nil {
				yield(nil, err)
				return
			}
			leads, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil || len(leads) > 0 && !yield(leads, nil) {
				yield(nil, err)
				return
			}
			if len(leads) < leadsAtOnce {
				return
			}
			last = leads[len(leads)-1]
		}
	}
}

// historiesOf selects all that attribution needs to know of leads. Touches of leads that were joined into one are that one's since
// the join; visits, since an arrival linked the visitor.
const historiesOf = `
	WITH member AS (
	         SELECT id AS lead_id, id AS part, 0::bigint AS since FROM unnest($1::text[]) AS id
	          UNION ALL
	         SELECT into_id, lead_id, position FROM views.touch_join WHERE into_id = ANY ($1)),
	     arrival AS (
	         SELECT m.lead_id, m.part, greatest(m.since, t.position) AS since, t.position, t.at, t.stage, t.value, t.visitor,
	                t.source, t.utm_medium, t.utm_campaign, t.utm_source, t.intake_id, t.credential
	           FROM member m JOIN views.touch t ON t.lead_id = m.part AND t.lead_id <> ''),
	     link AS (
	         SELECT lead_id, visitor, min(since) AS since FROM arrival WHERE $2 AND visitor <> '' GROUP BY lead_id, visitor)
	SELECT lead_id, 'touch', position, at, since, CASE part WHEN lead_id THEN stage ELSE '' END, CASE part WHEN lead_id THEN value ELSE '' END,
	       source, utm_medium, utm_campaign, utm_source, intake_id, credential
	  FROM arrival
	 UNION ALL
	SELECT l.lead_id, 'visit', t.position, t.at, greatest(l.since, t.position), '', '',
	       t.source, t.utm_medium, t.utm_campaign, t.utm_source, t.intake_id, t.credential
	  FROM link l JOIN views.touch t ON t.visitor = l.visitor AND t.visitor <> '' AND t.kind = 'visit'
	 UNION ALL
	SELECT lead_id, 'change', position, at, position, stage, value, '', '', '', '', '', '' FROM views.lead_change WHERE lead_id = ANY ($1)
	 UNION ALL
	SELECT lead_id, 'join', min(position), 'epoch', 0, '', '', '', '', '', '', '', '' FROM views.touch_join WHERE lead_id = ANY ($1) GROUP BY lead_id
	 ORDER BY 1, 3`

// eachHistory reads the histories of leads, of touches with one key, and calls do with each, in the order of their ids.
func eachHistory(ctx context.Context, tx pgx.Tx, leads []string, by attribution.Key, visits bool, do func(string, *attribution.History)) error {
	rows, err := tx.Query(ctx, historiesOf, leads, visits)
	if err != nil {
		return err
	}
	var current string
	var history *attribution.History
	var lead, what, stage, value string
	var position, since int64
	var at time.Time
	var of attribution.Channel
	into := []any{&lead, &what, &position, &at, &since, &stage, &value, &of.Source, &of.Medium, &of.Campaign, &of.UTMSource, &of.Intake, &of.Credential}
	_, err = pgx.ForEachRow(rows, into, func() error {
		if lead != current || history == nil {
			if history != nil {
				do(current, history)
			}
			current, history = lead, &attribution.History{}
		}
		switch what {
		case "join":
			history.Joined = position
			return nil
		case "touch", "visit":
			history.Touches = append(history.Touches, attribution.Seen{
				Touch: attribution.Touch{At: at.UnixMilli(), Position: position, Key: of.Key(by)}, Since: since, Visit: what == "visit",
			})
		}
		if stage != "" {
			history.Stages = append(history.Stages, attribution.Stage{Position: position, At: at.UnixMilli(), Name: stage})
		}
		if units, ok := attribution.ParseValue(value); ok && value != "" {
			history.Values = append(history.Values, attribution.Value{Position: position, Units: units})
		}
		return nil
	})
	if err == nil && history != nil {
		do(current, history)
	}
	return err
}
