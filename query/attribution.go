package query

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/attribution"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

// Attribution is a report that divides conversions among touches.
type Attribution struct {
	Rows  []AttributionRow    `json:"rows"`
	Total AttributionTotal    `json:"total"`
	AsOf  eventstore.Position `json:"asOf"`
	// Rebuilding reports that AsOf is before the position that was asked for: the conversions since are still being
	// built.
	Rebuilding bool `json:"rebuilding,omitzero"`
}

// AttributionRow has the conversions and the value of the touches with one key.
type AttributionRow struct {
	Key         string `json:"key"`
	Touches     int64  `json:"touches"`
	Conversions string `json:"conversions"` // with 6 decimals
	Value       string `json:"value"`       // with 4
	AttributionCost
}

// AttributionCost is what the conversions of a row cost. It is empty in a report without costs.
type AttributionCost struct {
	Cost              Figure `json:"cost,omitzero"`              // with 4 decimals, like the others
	CostPerConversion Figure `json:"costPerConversion,omitzero"` // Unknown without a conversion
	ReturnOnCost      Figure `json:"returnOnCost,omitzero"`      // the value by the cost; Unknown if that is 0
}

// Figure is a decimal that may be unknown.
type Figure string

// Unknown is a figure that answers have as null.
const Unknown Figure = "null"

// MarshalJSON writes the figure.
func (f Figure) MarshalJSON() ([]byte, error) {
	if f == Unknown {
		return []byte(f), nil
	}
	return jsontext.AppendQuote(nil, string(f))
}

// UnmarshalJSON reads a figure.
func (f *Figure) UnmarshalJSON(written []byte) error {
	if string(written) == string(Unknown) {
		*f = Unknown
		return nil
	}
	return json.Unmarshal(written, (*string)(f))
}

func newAttributionCost(row attribution.Row) AttributionCost {
	figure := func(decimal string, known bool) Figure {
		if !known {
			return Unknown
		}
		return Figure(decimal)
	}
	return AttributionCost{
		figure(row.Cost.Decimal(4), row.HasCost), figure(row.CostPerConversion()), figure(row.ReturnOnCost()),
	}
}

// AttributionTotal is the sum of all rows.
type AttributionTotal struct {
	Conversions string `json:"conversions"`
	Value       string `json:"value"`
	AttributionCost
}

// NewAttribution returns a report as answers have it, with or without costs.
func NewAttribution(report *attribution.Report, cost bool, asOf eventstore.Position) Attribution {
	rows := report.Rows()
	answer := Attribution{Rows: make([]AttributionRow, len(rows)), AsOf: asOf}
	for i, row := range rows {
		answer.Rows[i] = AttributionRow{
			Key: row.Key, Touches: row.Touches, Conversions: row.Conversions.Decimal(6), Value: row.Value.Decimal(4),
		}
		if cost {
			answer.Rows[i].AttributionCost = newAttributionCost(row)
		}
	}
	total := report.Total()
	answer.Total = AttributionTotal{Conversions: total.Conversions.Decimal(6), Value: total.Value.Decimal(4)}
	if cost {
		answer.Total.AttributionCost = newAttributionCost(total)
	}
	return answer
}

// AttributionFilter has the parameters of a report.
type AttributionFilter struct {
	attribution.Rules
	By     attribution.Key
	Visits bool // count as touches too
	Cost   bool // add what the keys cost
	AsOf   eventstore.Position
}

// Attribution divides an account's conversions among the touches before them, as of a position that the view has
// reached. While the conversions of a large account are rebuilt, the report is as of the latest position for which they
// are complete, which is 0 at first.
func (r *Reader) Attribution(ctx context.Context, account string, filter AttributionFilter) (Attribution, error) {
	report := attribution.NewReport(filter.Rules)
	return r.report(ctx, account, filter, report, report.Add)
}

// AttributionPaths returns the result of Attribution, and the most frequent steps between the touches of the same
// conversions.
func (r *Reader) AttributionPaths(
	ctx context.Context, account string, filter AttributionFilter, most int,
) (Attribution, []attribution.Step, error) {
	report, paths := attribution.NewReport(filter.Rules), attribution.NewPaths(filter.Rules)
	answer, err := r.report(ctx, account, filter, report, func(c attribution.Conversion) {
		report.Add(c)
		paths.Add(c)
	})
	return answer, paths.Steps(most), err
}

// report calls add, which adds to the report, with the conversions of an account.
func (r *Reader) report(
	ctx context.Context, account string, filter AttributionFilter, report *attribution.Report,
	add func(attribution.Conversion),
) (Attribution, error) {
	asking := conversionQuery{AttributionFilter: filter, account: account, atOnce: r.leadsAtOnce, add: add}
	err := r.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := asking.run(ctx, tx); err != nil || !filter.Cost {
			return err
		}
		return asking.addCosts(ctx, tx, report)
	})
	answer := NewAttribution(report, filter.Cost, asking.AsOf)
	answer.Rebuilding = asking.AsOf < filter.AsOf
	return answer, schema.Unavailable(err)
}

// LeadConversion is when a lead was won, and how its touches share it.
type LeadConversion struct {
	At      Timestamp
	Value   string                         // with 4 decimals
	Credits map[eventstore.Position]Credit // by the position of the touch
}

// Credit is the part that a touch has of a conversion.
type Credit struct {
	Conversions string // with 6 decimals
	Value       string // with 4
}

// LeadConversion divides the conversion of one lead among its touches. It is nil if the lead is not won as of
// filter.AsOf, or belongs to another account.
func (r *Reader) LeadConversion(
	ctx context.Context, account, id string, filter AttributionFilter,
) (*LeadConversion, error) {
	if !storable(id) {
		return nil, nil
	}
	var converted *LeadConversion
	err := r.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		settings, err := schema.WonStages(ctx, tx, "views.", account)
		if err != nil {
			return err
		}
		won := settings[account].AsOf(int64(filter.AsOf))
		return schema.Histories(ctx, tx, "views.", []string{id}, filter.Visits, func(h *schema.LeadHistory) error {
			c, is := h.Conversion(id, int64(filter.AsOf), won, filter.Visits)
			if !is || h.Account != account {
				return nil
			}
			converted = &LeadConversion{
				At: Timestamp(time.UnixMilli(c.At)), Value: attribution.SumOf(c.Value).Decimal(4),
				Credits: map[eventstore.Position]Credit{},
			}
			for _, credit := range filter.Credits(c) {
				converted.Credits[eventstore.Position(credit.Position)] = Credit{
					attribution.SumOf(credit.Conversions).Decimal(6), attribution.SumOf(credit.Value).Decimal(4),
				}
			}
			return nil
		})
	})
	return converted, schema.Unavailable(err)
}

// conversionQuery calls add with the conversions of an account. The touches are valid until the next call.
type conversionQuery struct {
	AttributionFilter
	account string
	atOnce  int
	won     []string // the stages that count
	add     func(attribution.Conversion)
}

// run reads the rows that are made for reports, and the histories of leads that changed since. If the rows are not
// complete as of AsOf, it reads the histories of all leads that were won, or moves AsOf back when they are many.
func (q *conversionQuery) run(ctx context.Context, tx pgx.Tx) error {
	settings, err := schema.WonStages(ctx, tx, "views.", q.account)
	if err != nil {
		return err
	}
	q.won = settings[q.account].AsOf(int64(q.AsOf))
	built, complete, err := q.complete(ctx, tx)
	if err != nil {
		return err
	}
	if complete < q.AsOf {
		leads, few, err := q.wonLeads(ctx, tx)
		if err != nil || few {
			return cmp.Or(err, q.addHistories(ctx, tx, leads))
		}
		q.AsOf, q.won = complete, settings[q.account].AsOf(int64(complete))
	}
	rows, err := tx.Query(ctx, schema.ChangedSince("views."), int64(built), int64(q.AsOf), q.account)
	if err != nil {
		return err
	}
	changed, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	if err := q.addRows(ctx, tx, changed); err != nil {
		return err
	}
	for leads := range slices.Chunk(changed, leadsAtOnce) {
		if err := q.addHistories(ctx, tx, leads); err != nil {
			return err
		}
	}
	return nil
}

// addCosts adds what the days of the report cost.
func (q *conversionQuery) addCosts(ctx context.Context, tx pgx.Tx, report *attribution.Report) error {
	s := spendSelection()
	SpendFilter{Since: q.Since, Until: q.Until, AsOf: q.AsOf}.bounds(&s, q.account)
	rows, err := tx.Query(ctx, s.upTo("ALL"), append([]any{pgx.QueryExecModeCacheDescribe}, s.args...)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		spent, err := scanSpend(rows)
		if err != nil {
			return err
		}
		units, _ := attribution.ParseValue(spent.Amount) // written so by the event
		report.AddCost(q.By, spent.Day, spent.Key, units)
	}
	return rows.Err()
}

// complete returns the position up to which rows are built, and the latest one, up to AsOf, as of which a report can be
// made: before the account's won stages changed, if rows are still made by the earlier ones, and without reading many
// later touches and changes.
func (q *conversionQuery) complete(ctx context.Context, tx pgx.Tx) (built, complete eventstore.Position, err error) {
	err = tx.QueryRow(ctx, `
		WITH built AS MATERIALIZED (
		     SELECT coalesce(max(position), 0) AS position, coalesce(max(settings), 0) AS settings
		     FROM views.conversion_state),
		     swept AS MATERIALIZED (
		     SELECT least($2, (SELECT position - 1 FROM views.conversion_sweep WHERE account = $1),
		                  (SELECT min(changed.position) - 1
		                    FROM built, LATERAL (`+changedWon+`) AS changed WHERE changed.account = $1)) AS position)
		SELECT built.position, CASE WHEN swept.position > built.position AND (
		            EXISTS (SELECT FROM views.touch WHERE position > built.position AND position <= swept.position
		              ORDER BY position OFFSET $3) OR
		            EXISTS (SELECT FROM views.lead_change WHERE position > built.position AND position <= swept.position
		              ORDER BY position OFFSET $3))
		            THEN built.position ELSE swept.position END
		  FROM built, swept`, pgx.QueryExecModeCacheDescribe, q.account, int64(q.AsOf),
		lateTouches*q.atOnce).Scan(&built, &complete)
	return built, complete, err
}

// changedWon selects the accounts whose won stages changed since the rows were built.
var changedWon = strings.NewReplacer("$1", "greatest(built.position, built.settings)", "$2",
	strconv.FormatInt(attribution.Forever, 10)).
	Replace(schema.WonSince("views."))

// wonLeads returns the leads of the account that were ever at one of the stages, unless there are many. Leads that were
// created at the first stage of the pipeline are looked through only if that is one of the stages.
func (q *conversionQuery) wonLeads(ctx context.Context, tx pgx.Tx) (leads []string, few bool, err error) {
	rows, err := tx.Query(ctx, `
		(SELECT lead_id FROM views.lead_change WHERE account = $1 AND stage <> '' AND stage = ANY ($2) LIMIT $3)
		 UNION ALL
		(SELECT CASE WHEN kind = 'created' AND stage = ANY ($2) THEN lead_id ELSE '' END FROM views.touch
		  WHERE account = $1 AND kind <> 'visit' AND EXISTS (SELECT FROM views.won_stages WHERE account = $1
		    AND first = ANY ($2)) LIMIT $3)`,
		pgx.QueryExecModeCacheDescribe, q.account, q.won, q.atOnce+1)
	if err != nil {
		return nil, false, err
	}
	leads, err = pgx.CollectRows(rows, pgx.RowTo[string])
	few = len(leads) <= q.atOnce
	leads = slices.DeleteFunc(leads, func(id string) bool { return id == "" })
	slices.Sort(leads)
	return slices.Compact(leads), few, err
}

// addHistories adds the conversions of leads out of all that is known of them.
func (q *conversionQuery) addHistories(ctx context.Context, tx pgx.Tx, leads []string) error {
	return schema.Histories(ctx, tx, "views.", leads, q.Visits, func(h *schema.LeadHistory) error {
		h.By(q.By)
		if c, converted := h.Conversion(h.LeadID, int64(q.AsOf), q.won, q.Visits); converted {
			q.add(c)
		}
		return nil
	})
}

// addRows adds conversions by their rows, except those of some leads. It reads the binary rows of PostgreSQL without
// copying each value, because there may be a hundred thousand rows.
func (q *conversionQuery) addRows(ctx context.Context, tx pgx.Tx, without []string) error {
	s := selection{from: `SELECT at, value, touches, ` + schema.ConversionKeyColumns[q.By] + ` FROM views.conversion`}
	s.and(`account = ?`, q.account)
	s.and(`since <= ?`, int64(q.AsOf))
	s.and(`until > ?`, int64(q.AsOf))
	s.within(`at`, q.Since, q.Until)
	if len(without) > 0 {
		s.and(`NOT lead_id = ANY (?)`, without)
	}
	args := append([]any{pgx.QueryExecModeCacheDescribe, pgx.QueryResultFormats{pgx.BinaryFormatCode}}, s.args...)
	rows, err := tx.Query(ctx, s.from+" WHERE "+strings.Join(s.where, " AND "), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	known := schema.ConversionKeys{}
	var c attribution.Conversion
	for rows.Next() {
		raw := rows.RawValues()
		c.At = schema.Milliseconds(raw[0])
		c.Value, _ = attribution.ParseValue(string(raw[1])) // written so by the view
		if c.Touches, err = known.Touches(c.Touches[:0], raw[2], raw[3], int64(q.AsOf), q.Visits); err != nil {
			return err
		}
		q.add(c)
	}
	return rows.Err()
}

// ConversionProgress is how much of the conversions is built, of 1: of those up to the end of the log, and of those of
// accounts whose won stages changed.
type ConversionProgress struct{ Built, Swept float64 }

// ConversionProgress returns the progress. Less than 1 means that reports of large accounts are as of earlier
// positions.
func (r *Reader) ConversionProgress(ctx context.Context) (p ConversionProgress, err error) {
	err = r.pool.QueryRow(ctx, `
		WITH built AS MATERIALIZED (SELECT coalesce(max(position), 0) AS position FROM views.conversion_state)
		SELECT CASE WHEN EXISTS (SELECT FROM views.touch WHERE position > built.position ORDER BY position OFFSET $1)
		            THEN built.position::float8 / (SELECT max(position) FROM views.touch) ELSE 1 END,
		       CASE WHEN EXISTS (SELECT FROM views.conversion_sweep)
		            THEN (SELECT sum(leads) FROM views.conversion_sweep)::float8
		                 / (SELECT greatest(sum(created), 1) FROM views.source_day
		                   WHERE account IN (SELECT account FROM views.conversion_sweep)) ELSE 1 END
		  FROM built`, lateTouches*r.leadsAtOnce).Scan(&p.Built, &p.Swept)
	return p, schema.Unavailable(err)
}

// snapshot runs queries that all see the same rows.
func (r *Reader) snapshot(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, r.pool, pgx.TxOptions{
		IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly,
	}, func(tx pgx.Tx) error {
		return do(ctx, tx)
	})
}

const (
	// leadsAtOnce is the maximum number of leads whose histories a report reads at once.
	leadsAtOnce = 2000
	// lateTouches is how many touches or changes for each of them a report reads that are later than the rows.
	lateTouches = 5
)
