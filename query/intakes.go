package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// Intake is an intake's record, without its secrets.
type Intake struct {
	IntakeID      string            `json:"intakeId"`
	Name          string            `json:"name"`
	Kind          string            `json:"kind"`
	Source        string            `json:"source"`
	URL           string            `json:"url"` // the path of its address, behind the base address of the service
	Enabled       bool              `json:"enabled"`
	Origins       []string          `json:"origins"`
	Redirect      *string           `json:"redirect"`
	Honeypot      *string           `json:"honeypot"`
	Challenge     *IntakeChallenge  `json:"challenge"`
	RateLimit     *float64          `json:"rateLimit"` // null: the account's
	ExpectEvery   *string           `json:"expectEvery"`
	Mapping       map[string]string `json:"mapping"` // what replaces the kind's own
	Signature     *IntakeSignature  `json:"signature"`
	GraphURL      *string           `json:"graphUrl"` // null: Meta's own
	CreatedAt     Timestamp         `json:"createdAt"`
	LastArrivalAt Timestamp         `json:"lastArrivalAt"`
	State         string            `json:"state"` // active, silent or disabled
}

// IntakeChallenge is the provider of a form's challenge.
type IntakeChallenge struct {
	Provider string `json:"provider"`
}

// IntakeSignature says how senders to an intake of kind webhook prove themselves.
type IntakeSignature struct {
	Scheme    string  `json:"scheme"`
	Header    *string `json:"header"`
	Algorithm *string `json:"algorithm"`
	Encoding  *string `json:"encoding"`
	Prefix    *string `json:"prefix"`
}

// NewIntake returns the record of an intake from the fold of its stream, given its latest arrival.
func NewIntake(id string, s intake.State, lastArrival time.Time) Intake {
	return newIntake(id, s.Settings, s.CreatedAt, lastArrival, s.Silent)
}

func newIntake(id string, s event.IntakeSettings, created, lastArrival time.Time, silent bool) Intake {
	i := Intake{
		IntakeID: id, Name: s.Name, Kind: s.Kind, Source: s.Source, URL: intake.Path(id), Enabled: s.Enabled, Origins: s.Origins,
		Redirect: given(s.Redirect), Honeypot: given(s.Honeypot), RateLimit: s.RateLimit, ExpectEvery: given(s.ExpectEvery),
		Mapping: s.Mapping, GraphURL: given(s.GraphURL), CreatedAt: Timestamp(created), LastArrivalAt: Timestamp(lastArrival),
		State: intake.Activity(s.Enabled, silent),
	}
	if i.Origins == nil {
		i.Origins = []string{}
	}
	if i.Mapping == nil {
		i.Mapping = map[string]string{}
	}
	if s.Challenge != "" {
		i.Challenge = &IntakeChallenge{s.Challenge}
	}
	if g := s.Signature; g != nil {
		i.Signature = &IntakeSignature{g.Scheme, given(g.Header), given(g.Algorithm), given(g.Encoding), given(g.Prefix)}
	}
	return i
}

// given returns nil for an empty text.
func given(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// lastArrival is the latest arrival at the intake i.
const lastArrival = `(SELECT received_at FROM views.arrival a WHERE a.intake_id = i.intake_id ORDER BY a.position DESC LIMIT 1)`

const intakeColumns = `
	SELECT i.intake_id, name, kind, source, enabled, origins, redirect, honeypot, challenge, rate_limit, expect_every, mapping, signature,
	       graph_url, created_at, silent_since IS NOT NULL, ` + lastArrival + `
	  FROM views.intake i`

func scanIntake(row pgx.CollectableRow) (Intake, error) {
	var id string
	var s event.IntakeSettings
	var created time.Time
	var arrived *time.Time
	var silent bool
	err := row.Scan(&id, &s.Name, &s.Kind, &s.Source, &s.Enabled, jsonOf{&s.Origins}, &s.Redirect, &s.Honeypot, &s.Challenge, &s.RateLimit,
		&s.ExpectEvery, jsonOf{&s.Mapping}, jsonOf{&s.Signature}, &s.GraphURL, &created, &silent, &arrived)
	if arrived == nil {
		arrived = new(time.Time)
	}
	return newIntake(id, s, created, *arrived, silent), err
}

// Intakes lists an account's intakes, newest first. The error is ErrCursor for a cursor of another list.
func (r *Reader) Intakes(ctx context.Context, account string, p Page) (List[Intake], error) {
	s := selection{from: intakeColumns, order: `created_at DESC, i.intake_id DESC`}
	s.and(`account = ?`, account)
	s.and(`NOT deleted`)
	if _, err := s.olderThan(`i.intake_id`, cursorOf(intakeCursor, account), p.Cursor); err != nil {
		return List[Intake]{}, err
	}
	return page(ctx, r, s, p.Limit, scanIntake, func(i Intake) string {
		return newestCursor{time.Time(i.CreatedAt), i.IntakeID}.encode(cursorOf(intakeCursor, account))
	})
}

// Intake returns one intake's record. The error is ErrNotFound when the account has no such intake or no longer has it.
func (r *Reader) Intake(ctx context.Context, account, id string) (Intake, error) {
	if !event.ValidID(id) {
		return Intake{}, ErrNotFound
	}
	return one(ctx, r, scanIntake, intakeColumns+` WHERE i.intake_id = $1 AND account = $2 AND NOT deleted`, id, account)
}

// IntakeAfter returns the record of an intake that a command has just changed, which the view may not show yet.
func (r *Reader) IntakeAfter(ctx context.Context, id string, s intake.State) (Intake, error) {
	var arrived *time.Time
	err := r.pool.QueryRow(ctx, `SELECT `+lastArrival+` FROM (SELECT $1::text AS intake_id) AS i`, id).Scan(&arrived)
	if err != nil {
		return Intake{}, schema.Unavailable(err)
	}
	if arrived == nil {
		arrived = new(time.Time)
	}
	return NewIntake(id, s, *arrived), nil
}
