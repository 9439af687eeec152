package view

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// Arrival has a row for each recorded arrival: those at intakes, and those of the API that were quarantined. It has no
// personal data. A split gives captured arrivals to the lead that leaves, so that they are erased with that lead.
//
// An intake has a row with how its latest arrivals ended.
type Arrival struct{}

func (Arrival) Name() string     { return schema.Arrival }
func (Arrival) Version() int     { return 1 }
func (Arrival) Tables() []string { return []string{"arrival", "intake_run"} }
func (Arrival) Filter() eventstore.Filter {
	return eventstore.Filter{
		StreamPrefixes: []string{event.ArrivalPrefix, event.LeadPrefix},
		Types: event.Types(event.ArrivalReceived{}, event.ArrivalCaptured{}, event.ArrivalRefused{},
			event.ArrivalQuarantined{}, event.ArrivalDiscarded{},
			event.ArrivalExpired{}, event.ArrivalResubmitted{}, event.ArrivalFetched{}, event.LeadSplit{}),
	}
}

// arrivalRow is the row of an arrival that is received in this batch.
type arrivalRow struct {
	arrival.Arrival
	position eventstore.Position
}

func (v Arrival) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
	return v.Prepare(batch)(ctx, tx)
}

// Prepare implements projection.Preparer. Most arrivals are received and finished in one append, so their rows are
// written once.
func (Arrival) Prepare(batch []projection.Event) projection.Write {
	var fresh []arrivalRow
	index := map[string]int{}
	var known []*projection.Event // of other arrivals
	var outcomes []outcome
	for i := range batch {
		e := &batch[i]
		if o, is := outcomeOf(e); is {
			if at, here := index[e.Stream]; here && o.intakeID == "" {
				o.intakeID = fresh[at].IntakeID
			}
			outcomes = append(outcomes, o)
		}
		at, here := index[e.Stream]
		if received, ok := e.Data.(event.ArrivalReceived); ok && e.Revision == 0 {
			received.Raw, received.DeliveryID = event.ArrivalRaw{}, ""
			at, here = len(fresh), true
			index[e.Stream] = at
			fresh = append(fresh, arrivalRow{position: e.Position})
		}
		if !here {
			known = append(known, e)
			continue
		}
		fresh[at].Arrival = arrival.Evolve(fresh[at].Arrival, e.Fact())
	}
	created := makeRows(len(fresh), 200)
	for i := range fresh {
		fresh[i].write(&created)
	}
	return func(ctx context.Context, tx pgx.Tx) error {
		err := created.insert(ctx, tx, "arrival", "arrival_id", "position", "account", "intake_id", "token_id",
			"received_at", "expires_at",
			"state", "reasons", "warnings", "lead_id", "other_lead_id", "kept")
		if err != nil {
			return err
		}
		if err := applyOutcomes(ctx, tx, outcomes); err != nil || len(known) == 0 {
			return err
		}
		var statements pgx.Batch
		for _, e := range known {
			if err := queueArrival(&statements, e); err != nil {
				return err
			}
		}
		return tx.SendBatch(ctx, &statements).Close()
	}
}

func (a *arrivalRow) write(r *rows) {
	r.row(13)
	r.text(a.ID)
	r.bigint(int64(a.position))
	r.text(a.Account)
	r.text(a.IntakeID)
	r.text(a.TokenID)
	r.timestamp(a.ReceivedAt)
	r.timestamp(a.ExpiresAt)
	r.text(a.State)
	r.jsonbBy(func(buffer []byte) ([]byte, error) { return appendList(buffer, a.Reasons) })
	r.jsonbBy(func(buffer []byte) ([]byte, error) { return appendList(buffer, a.Warnings) })
	r.text(a.LeadID)
	r.text(a.Other)
	r.boolean(!a.Deleted)
}

func appendList[T any](buffer []byte, list []T) ([]byte, error) {
	if len(list) == 0 {
		return append(buffer, "[]"...), nil
	}
	encoded, err := json.Marshal(list)
	return append(buffer, encoded...), err
}

// queueArrival queues the statement that applies an event to the row of an arrival.
func queueArrival(to *pgx.Batch, e *projection.Event) error {
	if split, is := e.Data.(event.LeadSplit); is {
		if split.Into != "" && len(split.Arrivals) > 0 {
			to.Queue(`UPDATE arrival SET lead_id = $2 WHERE arrival_id = ANY ($1) AND lead_id <> ''`,
				split.Arrivals, split.Into)
		}
		return nil
	}
	var after arrival.Arrival // has only the values that the event sets
	set := func(columns string, values ...any) {
		to.Queue(`UPDATE arrival SET `+columns+` WHERE arrival_id = $1`,
			append([]any{event.ArrivalID(e.Stream)}, values...)...).
			Exec(func(tag pgconn.CommandTag) error {
				if tag.RowsAffected() == 0 {
					return fmt.Errorf("%s at revision %d: %w", e.Stream, e.Revision, errGap)
				}
				return nil
			})
	}
	switch data := e.Data.(type) {
	case event.ArrivalCaptured, event.ArrivalRefused, event.ArrivalQuarantined:
		after = arrival.Evolve(after, e.Fact())
		reasons, err := appendList(nil, after.Reasons)
		if err != nil {
			return err
		}
		warnings, err := appendList(nil, after.Warnings)
		if err != nil {
			return err
		}
		set(`state = $2, reasons = $3, warnings = $4, lead_id = $5, other_lead_id = $6`,
			after.State, reasons, warnings, after.LeadID, after.Other)
	case event.ArrivalResubmitted:
		if data.Fetch {
			set(`state = $2, reasons = '[]', warnings = '[]', lead_id = '', other_lead_id = ''`, arrival.Received)
		} else {
			set(`position = position`)
		}
	case event.ArrivalDiscarded:
		switch data.Reason {
		case event.DiscardedErased:
			set(`state = $2, reasons = '[]', warnings = '[]', lead_id = '', other_lead_id = '', kept = false`,
				arrival.Discarded)
		case event.DiscardedByOwner:
			set(`state = $2, reasons = '[]', warnings = '[]', kept = false`, arrival.Discarded)
		default:
			set(`state = $2, reasons = '[]', warnings = '[]'`, arrival.Discarded)
		}
	case event.ArrivalExpired:
		set(`state = CASE WHEN state IN ($2, $3) THEN $4 ELSE state END, kept = false`, arrival.Received,
			arrival.Quarantined, arrival.Expired)
	default:
		set(`position = position`)
	}
	return nil
}
