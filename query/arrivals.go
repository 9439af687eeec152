package query

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// Arrival is a stored arrival: at an intake, or by the API and quarantined. It has no personal data.
type Arrival struct {
	arrival.Record
	ReceivedAt Timestamp `json:"receivedAt"`
	ExpiresAt  Timestamp `json:"expiresAt"` // the raw body is deleted then
}

// ArrivalRaw is a post as it was received, without proofs, credentials and cookies.
type ArrivalRaw struct {
	ContentType string            `json:"contentType"`
	Body        string            `json:"body"`
	Headers     map[string]string `json:"headers"`
	Query       map[string]string `json:"query"`
}

// ArrivalShown is an arrival with its raw body.
type ArrivalShown struct {
	Arrival
	Raw *ArrivalRaw `json:"raw"` // null: it is deleted
}

// ArrivalFilter selects arrivals. Empty fields select all.
type ArrivalFilter struct {
	State    string
	IntakeID string
	Reason   string    // a field that is wrong
	Since    time.Time // inclusive
	Until    time.Time // exclusive
}

const arrivalColumns = `SELECT position, arrival_id, nullif(intake_id, ''), nullif(token_id, ''), received_at, state,
	reasons, warnings, nullif(lead_id, ''), expires_at
	  FROM views.arrival`

// Arrivals lists an account's arrivals, newest last. The error is ErrCursor for a cursor of another list.
func (r *Reader) Arrivals(ctx context.Context, account string, filter ArrivalFilter, p Page) (List[Arrival], error) {
	s, err := filter.selection(ctx, r, account, `position`)
	if err != nil {
		return List[Arrival]{}, err
	}
	return pageByPosition(ctx, r, s, cursorOf(arrivalCursor, account), p, scanArrival)
}

// LatestArrivals is Arrivals, newest first.
func (r *Reader) LatestArrivals(
	ctx context.Context, account string, filter ArrivalFilter, p Page,
) (List[Arrival], error) {
	s, err := filter.selection(ctx, r, account, `position DESC`)
	if err != nil {
		return List[Arrival]{}, err
	}
	return pageByPosition(ctx, r, s, cursorOf(latestArrivalCursor, account), p, scanArrival)
}

func (f ArrivalFilter) selection(ctx context.Context, r *Reader, account, order string) (selection, error) {
	s := selection{from: arrivalColumns, order: order, table: `views.arrival`}
	s.and(`account = ?`, account)
	if err := s.bySpan(ctx, r, `received_at`, f.Since, f.Until); err != nil {
		return s, err
	}
	s.equal(`intake_id`, f.IntakeID)
	indexed := f.State == arrival.Received || f.State == arrival.Quarantined
	if indexed {
		s.and(`state = ? AND state IN ('received', 'quarantined')`, f.State) // that of an index
	}
	if f.State != "" && !indexed || f.Reason != "" {
		s.narrow = func(s *selection) {
			s.equal(`state`, f.State)
			if f.Reason != "" {
				s.and(`EXISTS (SELECT FROM jsonb_array_elements(reasons) AS reason WHERE reason ->> 'field' = ?)`,
					f.Reason)
			}
		}
	}
	return s, nil
}

// QuarantineReason is a field that is wrong in arrivals that are quarantined at an intake.
type QuarantineReason struct {
	IntakeID string // empty: captured by the API
	Field    string
	Arrivals int
}

// MaxQuarantined is up to how many arrivals QuarantineReasons counts.
const MaxQuarantined = 10_000

// QuarantineReasons counts an account's quarantined arrivals by intake and wrong field, the most frequent first. An
// arrival counts for each of its fields. Of more than MaxQuarantined arrivals, the latest are counted.
func (r *Reader) QuarantineReasons(ctx context.Context, account string) ([]QuarantineReason, error) {
	rows, err := r.pool.Query(ctx, `
		SELECT intake_id, field, count(DISTINCT arrival_id)
		  FROM (SELECT arrival_id, coalesce(intake_id, '') AS intake_id,
		    jsonb_path_query(reasons, '$[*].field') #>> '{}' AS field
		          FROM (SELECT arrival_id, intake_id, reasons FROM views.arrival
		                 WHERE account = $1 AND state = 'quarantined' AND state IN ('received', 'quarantined')
		                 ORDER BY position DESC LIMIT $2) AS latest) AS wrong
		 GROUP BY intake_id, field ORDER BY 3 DESC, 1, 2`, account, MaxQuarantined)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[QuarantineReason])
	return found, schema.Unavailable(err)
}

func scanArrival(row pgx.CollectableRow) (positioned[Arrival], error) {
	a := positioned[Arrival]{item: Arrival{Record: arrival.Arrival{}.Record()}}
	err := row.Scan(&a.position, &a.item.ArrivalID, &a.item.IntakeID, &a.item.TokenID, &a.item.ReceivedAt,
		&a.item.State, jsonOf{&a.item.Reasons},
		jsonOf{&a.item.Warnings}, &a.item.LeadID, &a.item.ExpiresAt)
	return a, err
}

// Arrival returns an arrival with its raw body, from the log. The error is ErrNotFound when the account has no such
// arrival.
func (r *Reader) Arrival(ctx context.Context, account, id string) (ArrivalShown, error) {
	if !event.ValidID(id) {
		return ArrivalShown{}, ErrNotFound
	}
	a, _, err := eventstore.Load(ctx, r.store, event.ArrivalStream(id), arrival.Evolve)
	if err != nil {
		return ArrivalShown{}, err
	}
	if a.Of(account) != nil {
		return ArrivalShown{}, ErrNotFound
	}
	if a.State == arrival.Captured { // a split may have given it to another lead
		a.LeadID, err = one(ctx, r, pgx.RowTo[string],
			`SELECT coalesce((SELECT lead_id FROM views.arrival WHERE arrival_id = $1 AND state = $3), $2)`,
			id, a.LeadID, arrival.Captured)
		if err != nil {
			return ArrivalShown{}, err
		}
	}
	shown := ArrivalShown{Arrival: Arrival{
		Record: a.Record(), ReceivedAt: Timestamp(a.ReceivedAt), ExpiresAt: Timestamp(a.ExpiresAt),
	}}
	if a.Deleted || a.Lost {
		return shown, nil
	}
	body, err := a.Raw.Bytes()
	if err != nil {
		return ArrivalShown{}, err
	}
	shown.Raw = &ArrivalRaw{
		ContentType: a.Raw.ContentType, Body: strings.ToValidUTF8(string(maskProofs(body)), string(utf8.RuneError)),
		Headers: orEmpty(a.Raw.Headers), Query: orEmpty(a.Raw.Query),
	}
	return shown, nil
}

// proofs are the members of posted JSON that authenticate the sender.
var proofs = []string{"google_key"}

const masked = `"***"`

// maskProofs replaces proofs in a JSON object. Any other body has none.
func maskProofs(body []byte) []byte {
	decoder := jsontext.NewDecoder(bytes.NewReader(body))
	if decoder.PeekKind() != jsontext.KindBeginObject {
		return body
	}
	_, _ = decoder.ReadToken() // it was peeked at
	var shown []byte
	from := int64(0)
	for decoder.PeekKind() == jsontext.KindString {
		name, err := decoder.ReadToken()
		if err != nil {
			break
		}
		secret := slices.Contains(proofs, name.String())
		value, err := decoder.ReadValue()
		if err != nil {
			break
		}
		if end := decoder.InputOffset(); secret {
			shown = append(append(shown, body[from:end-int64(len(value))]...), masked...)
			from = end
		}
	}
	return append(shown, body[from:]...)
}

func orEmpty(texts map[string]string) map[string]string {
	if texts == nil {
		return map[string]string{}
	}
	return texts
}

// ExpiredArrival is an arrival whose retention has ended.
type ExpiredArrival struct{ Account, ID string }

// ExpiredArrivals returns up to most arrivals of all accounts, by ascending id after the given one, whose retention had
// ended at a time and whose content is still stored.
func (r *Reader) ExpiredArrivals(ctx context.Context, at time.Time, after string, most int) ([]ExpiredArrival, error) {
	rows, err := r.pool.Query(ctx, `
		SELECT account, arrival_id FROM views.arrival WHERE kept AND expires_at <= $1 AND arrival_id > $2
		ORDER BY arrival_id LIMIT $3`, at, after, most)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ExpiredArrival])
	return found, schema.Unavailable(err)
}
