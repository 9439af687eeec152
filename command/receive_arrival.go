package command

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

var (
	// ErrIntakeChanged means that an intake was changed or deleted since it was read. The caller reads it again, and
	// repeats what it derived from it.
	ErrIntakeChanged = errors.New("the intake has changed")
	// ErrArrivalTooLarge means that the outcome of an arrival does not fit on the log.
	ErrArrivalTooLarge = errors.New("the arrival is too large")
)

// ReceiveArrival is the command that records a post which an intake has accepted, and captures its lead unless
// something prevents that.
type ReceiveArrival struct {
	// of system:intake, by the credential intake:{id}; with the address and user agent of a form's sender
	Caller     Caller
	IntakeID   string           //
	Intake     eventstore.Write // the check that the intake is as it was
	Source     string           // of the intake
	DeliveryID string           // of the sender; the same id has one effect, and one arrival. Empty is none.
	Raw        event.ArrivalRaw // without proofs and credentials
	Mapped     Mapped           // by the intake's mapping
	Pending    bool             // its content has to be fetched first
	ReceivedAt time.Time        // of demo data: some time ago; zero is now
	// wrong phones and emails are returned instead of kept: the sender is a person who can correct them
	AskPerson bool
}

// Mapped is the result of an intake's mapping of a post.
type Mapped struct {
	Body   map[string]jsontext.Value // members of a capture's body
	Source string                    // of the lead; empty: that of the intake
	Wrong  field.Errors              // why it could not be mapped
	Test   bool                      // the sender marked it as a test
	Skip   bool                      // the mapping says not to capture it

	Warnings field.Warnings
}

// ArrivalReceived is the answer. The arrival is on the log.
type ArrivalReceived struct {
	ID       string
	State    string // one of package arrival
	Repeated bool   // the delivery id has this arrival from before; nothing was appended
	Position eventstore.Position
}

// ReceiveArrival appends an arrival and its outcome, in one append unless there is a conflict.
//
// The errors are field.Errors, when the sender is a person who can correct them, ErrIntakeChanged, ErrArrivalTooLarge
// and those of the store. With any other outcome the arrival is kept.
func (h *Handlers) ReceiveArrival(ctx context.Context, cmd ReceiveArrival) (ArrivalReceived, error) {
	account, err := h.directory.Account(ctx, cmd.Caller.Account)
	if err != nil {
		return ArrivalReceived{}, err
	}
	id, err := h.newID()
	if err != nil {
		return ArrivalReceived{}, err
	}
	now := h.timestamp()
	received := event.ArrivalReceived{IntakeID: cmd.IntakeID, ReceivedAt: now, DeliveryID: cmd.DeliveryID, Raw: cmd.Raw}
	if !cmd.ReceivedAt.IsZero() {
		received.ReceivedAt = cmd.ReceivedAt
	}
	received.ExpiresAt = received.ReceivedAt.AddDate(0, 0, account.State.QuarantineDays)
	c := &capture{Handlers: h, CaptureLead: CaptureLead{
		Admission: Admission{Caller: cmd.Caller, Account: account}, Body: cmd.Mapped.Body,
		Source: cmp.Or(cmd.Mapped.Source, cmd.Source),
	}}
	if c.own, err = h.newArrivalStream(cmd.Caller, id.String(), now, received, cmd.Intake); err != nil {
		return ArrivalReceived{}, err
	}
	c.own.askPerson, c.own.mapped = cmd.AskPerson, cmd.Mapped.Warnings
	if cmd.DeliveryID != "" {
		c.binding = &binding{
			kind: claim.Delivery, expect: eventstore.NoStream,
			stream: h.claims.Stream(cmd.Caller.Account, claim.Delivery, cmd.IntakeID+"/"+cmd.DeliveryID),
		}
	}
	answer, err := c.receive(ctx, cmd)
	if err == nil && answer.Repeated && answer.State == arrival.Quarantined {
		answer, err = h.redeliver(ctx, cmd, account, answer)
	}
	if stale, is := errors.AsType[*staleError](err); is && stale.stream == cmd.Intake.Stream {
		err = ErrIntakeChanged
	}
	return answer, err
}

// pending reports whether the content has to be fetched before the arrival is decided on.
func (cmd ReceiveArrival) pending() bool { return cmd.Pending && !cmd.Mapped.Test && !cmd.Mapped.Skip }

func (c *capture) receive(ctx context.Context, cmd ReceiveArrival) (answer ArrivalReceived, err error) {
	answer.ID = event.ArrivalID(c.own.stream)
	if cmd.pending() {
		answer.State = arrival.Received
		if answer.Position, err = c.appendUncaptured(ctx); err == nil {
			return answer, nil
		}
		return answer, c.finish(&answer, LeadCaptured{}, err)
	}
	captured, err := c.captureMapped(ctx, cmd.Mapped)
	err = c.finish(&answer, captured, err)
	return answer, err
}

// arrivalStream is the stream of an arrival that is kept, while it is decided on.
type arrivalStream struct {
	caller    Caller
	stream    string
	expect    eventstore.Expected
	since     time.Time          // of the stream's latest fact
	before    []eventstore.Event // facts that are appended before the outcome
	intake    eventstore.Write   // the check that its intake is as it was; zero without one
	renewed   bool               // the facts before have new content
	was       arrival.Arrival    // before; zero for a new one
	ref       event.ArrivalRef
	record    event.ArrivalQuarantined  // of a quarantine, without reasons
	askPerson bool                      // as in ReceiveArrival
	set       map[string]jsontext.Value // members of the body that a person has set
	mapped    field.Warnings            // of the mapping
	repaired  field.Warnings
}

// repair makes a body valid but for its contacts. What a person has set, or can correct, is left as it is.
func (k *arrivalStream) repair(body map[string]jsontext.Value, rules lead.Rules) map[string]jsontext.Value {
	given := body
	if len(k.set) > 0 {
		given = maps.Clone(body)
		maps.DeleteFunc(given, func(name string, _ jsontext.Value) bool { _, set := k.set[name]; return set })
	}
	given, k.repaired = lead.Repaired(given, rules, k.askPerson)
	for name := range k.set {
		given[name] = body[name]
	}
	return given
}

func (k *arrivalStream) warnings() field.Warnings { return slices.Concat(k.mapped, k.repaired) }

// newArrivalStream returns a new arrival, which is recorded now. Its caller is recorded with the address that it came
// from, since the stream is sealed.
func (h *Handlers) newArrivalStream(
	caller Caller, id string, now time.Time, received event.ArrivalReceived, intake eventstore.Write,
) (*arrivalStream, error) {
	first, err := h.stamp(caller, now, received)
	return &arrivalStream{
		caller: caller, stream: event.ArrivalStream(id), expect: eventstore.NoStream, since: now,
		before: []eventstore.Event{first}, intake: intake,
		ref: event.ArrivalRef{IntakeID: received.IntakeID, ArrivalID: id, ReceivedAt: received.ReceivedAt},
		record: event.ArrivalQuarantined{
			IntakeID: received.IntakeID, TokenID: received.TokenID, ReceivedAt: received.ReceivedAt,
			ExpiresAt: received.ExpiresAt,
		},
	}, err
}

// arrivalWrite returns the write of the arrival: the facts that precede the outcome, then the outcome's.
func (c *capture) arrivalWrite(outcome ...event.Data) (eventstore.Write, error) {
	write := eventstore.Write{Stream: c.own.stream, Expect: c.own.expect, Events: slices.Clip(c.own.before)}
	for _, data := range outcome {
		stamped, err := c.stamp(c.own.caller, c.after(c.own.since), data)
		if err != nil {
			return write, err
		}
		write.Events = append(write.Events, stamped)
	}
	return write, nil
}

// appendUncaptured appends an arrival that is not captured. The append does not check the account: a quarantined
// arrival is resubmitted under the settings of that time.
func (c *capture) appendUncaptured(
	ctx context.Context, outcome ...event.Data,
) (position eventstore.Position, err error) {
	if c.onClaims == nil { // it is not being decided on
		defer c.leave()
	}
	if err := c.enter(ctx); err != nil {
		return 0, err
	}
	err = eventstore.Retry(ctx, func(ctx context.Context) error {
		if c.binding != nil {
			answer, answered, err := c.recall(ctx)
			if answered && err == nil {
				err = &answeredError{answer}
			}
			if err != nil {
				return err
			}
		}
		write, err := c.arrivalWrite(outcome...)
		if err != nil {
			return err
		}
		var writes []eventstore.Write
		if c.own.intake.Stream != "" {
			writes = append(writes, c.own.intake)
		}
		if c.binding != nil && c.binding.expect+1 < maxQuarantined {
			bound, err := c.bind(write)
			if err != nil {
				return err
			}
			writes = append(writes, bound...)
		}
		position, err = c.store.Append(ctx, append(writes, write)...)
		if conflict := eventstore.Conflict(err); conflict != nil &&
			(conflict.Stream == c.own.stream || conflict.Stream == c.own.intake.Stream) {
			return &staleError{conflict.Stream}
		}
		return err
	})
	return position, err
}

// Quarantined is the error of a capture whose fields are wrong, and which was kept.
type Quarantined struct {
	field.Errors
	ArrivalID string
	Position  eventstore.Position
	Replayed  bool // this is the answer that the idempotency key and body had before
}

// Unwrap returns the errors of the fields.
func (q *Quarantined) Unwrap() error { return q.Errors }

// Correctable returns the errors of a form that the person who sends it can correct.
func Correctable(wrong field.Errors) field.Errors {
	return slices.DeleteFunc(slices.Clone(wrong), func(e field.Error) bool {
		return e.Field != "phone" && e.Field != "email"
	})
}

// quarantine stores an arrival whose fields are wrong, if arrivals are kept. It always returns an error: a *Quarantined
// if it was stored, else the errors of the fields.
func (c *capture) quarantine(ctx context.Context, wrong field.Errors) error {
	if c.own == nil {
		if !c.Quarantine || !c.Admission.Account.State.Quarantine {
			return wrong
		}
		if err := c.recordRequest(); err != nil {
			return err
		}
	}
	reasons := arrival.Reasons(wrong)
	same := c.own.was.State == arrival.Quarantined && slices.Equal(c.own.was.Reasons, reasons)
	if same && !c.own.renewed {
		return &Quarantined{Errors: wrong, ArrivalID: c.own.was.ID} // nothing has changed
	}
	if c.own.askPerson {
		if correctable := Correctable(wrong); len(correctable) > 0 {
			return correctable
		}
	}
	var outcome []event.Data
	if !same {
		quarantined := c.own.record
		quarantined.Reasons, quarantined.Warnings = reasons, arrival.Warnings(c.own.warnings())
		outcome = []event.Data{quarantined}
	}
	position, err := c.appendUncaptured(ctx, outcome...)
	if err != nil {
		return err
	}
	return &Quarantined{Errors: wrong, ArrivalID: event.ArrivalID(c.own.stream), Position: position}
}

// recordRequest begins the arrival of a capture by the API.
func (c *capture) recordRequest() error {
	body, err := event.AppendJSON(nil, c.Body)
	if err != nil {
		return err
	}
	now := c.timestamp()
	received := event.ArrivalReceived{
		ReceivedAt: now, Raw: event.ArrivalRaw{ContentType: "application/json"}.WithBody(body),
	}
	if id, isToken := strings.CutPrefix(c.Admission.Caller.Credential, "token:"); isToken {
		received.TokenID = id
	}
	received.ExpiresAt = received.ReceivedAt.AddDate(0, 0, c.Admission.Account.State.QuarantineDays)
	id, err := c.newID()
	if err != nil {
		return err
	}
	c.own, err = c.newArrivalStream(c.Admission.Caller, id.String(), now, received, eventstore.Write{})
	return err
}

// staleError says that an arrival, or its intake, is not as it was when it was read.
type staleError struct{ stream string }

func (e *staleError) Error() string { return e.stream + " has changed" }

// answeredError says that the idempotency key of an arrival got its answer meanwhile.
type answeredError struct{ LeadCaptured }

func (e *answeredError) Error() string { return "the idempotency key has an answer" }

// repeatedError says that a delivery id has an arrival from before.
type repeatedError struct{ ArrivalReceived }

func (e *repeatedError) Error() string { return "the delivery is that of arrival " + e.ID }

// repeated returns the arrival that a delivery id has. It always returns an error, normally a *repeatedError.
func (c *capture) repeated(ctx context.Context, bound event.ClaimBound) error {
	last, err := c.store.Last(ctx, bound.Stream)
	if err != nil {
		return err
	}
	before := ArrivalReceived{ID: event.ArrivalID(bound.Stream), Repeated: true, Position: last.Position}
	switch last.Type {
	case event.ArrivalQuarantined{}.EventType(), event.ArrivalRedelivered{}.EventType():
		before.State = arrival.Quarantined
	}
	return &repeatedError{before}
}
