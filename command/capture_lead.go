package command

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/draft"
	"github.com/leadlog/leadlog/eventstore/event"
)

// CaptureLead is the command that records an arrival: as a new lead, or as a merge into the existing lead of the
// person.
type CaptureLead struct {
	Admission Admission
	Body      map[string]jsontext.Value // members of the request's body
	// IdempotencyKey makes the arrival safe to repeat: the same key and body have one effect and one answer. Empty is
	// none.
	IdempotencyKey string
	// Source, unless empty, replaces the source that the body names. It is for imports, which are a source themselves.
	Source string
	// ReceivedAt is when the person came, if the arrival is from before. Zero is now.
	ReceivedAt time.Time
	// Noted is what was taken in another way than its author most likely meant when a row of a file was read. The
	// outcome of the row repeats it.
	Noted field.Warnings
	// KeyAlone makes the idempotency key that of the arrival whatever its body: the key names the person's arrival at a
	// provider.
	KeyAlone bool
	// Import marks a row of a file. An earlier answer of its key counts only as long as the lead that it names was not
	// erased, or taken back.
	Import bool
	// MergeDuplicates merges an arrival where its source would have it refused, also if its key was answered so before.
	MergeDuplicates bool
	// Quarantine lets an arrival whose fields are wrong be kept, if the account wants that.
	Quarantine bool
	// DryRun decides on the arrival without appending anything. Ids that would be new are then empty, and the
	// position is 0.
	DryRun bool
	// EnterStream is called before a long stream is read to give the answer of an earlier arrival again, and what it
	// returns afterwards. Its error is the arrival's. Nil is no limit.
	EnterStream func() (leave func(), err error)
}

// LeadCaptured is the answer: the lead as it is after the arrival, or what the arrival set of it, for a caller who does
// not see leads.
type LeadCaptured struct {
	Lead     lead.State
	Merged   bool
	Position eventstore.Position
	EventID  string // of the lead's event that the arrival became; empty for a dry run
	Replayed bool   // this is the answer that the idempotency key had before
	Warnings field.Warnings

	fact event.Data // that the arrival became: LeadCreated or LeadMerged
}

// LeadRefused is the error of an arrival that conflicts with an existing lead. The refusal itself is on the log, at
// Position.
type LeadRefused struct {
	*lead.Refusal
	Position eventstore.Position
	Replayed bool // this is the answer that the idempotency key had before
}

// Unwrap returns the decision.
func (r *LeadRefused) Unwrap() error { return r.Refusal }

// CaptureLead decides on an arrival and appends the outcome.
//
// The errors are field.Errors, *LeadRefused, ErrKeyReused, ErrUnauthorized, ErrFeatureDisabled and those of the
// store.
func (h *Handlers) CaptureLead(ctx context.Context, cmd CaptureLead) (LeadCaptured, error) {
	if cmd.DryRun {
		return h.dryRun(ctx, cmd)
	}
	return h.newCapture(cmd).answer(ctx)
}

// dryRun captures on a draft of the log. Another arrival may come before the real one and change its outcome. No append
// confirms the admission, so it is read from the log first.
func (h *Handlers) dryRun(ctx context.Context, cmd CaptureLead) (LeadCaptured, error) {
	if err := cmd.Admission.Confirm(ctx, h.directory); err != nil {
		return LeadCaptured{}, err
	}
	onDraft := h.on(draft.On(h.store))
	onDraft.leads, onDraft.holders = h.leads, newCache[string, string](2)
	cmd.Quarantine = false
	answer, err := onDraft.newCapture(cmd).answer(ctx)
	if refused, ok := errors.AsType[*LeadRefused](err); ok && !refused.Replayed {
		refused.Position = 0
	}
	if err != nil || answer.Replayed {
		return answer, err
	}
	answer.Position, answer.EventID = 0, ""
	switch fact := answer.fact.(type) {
	case event.LeadCreated:
		answer.Lead.ID, answer.Lead.ContactUID, answer.Lead.OpportunityID = "", "", ""
	case event.LeadMerged:
		if fact.OpportunityID != "" {
			answer.Lead.OpportunityID = ""
		}
	}
	return answer, nil
}

func (h *Handlers) newCapture(cmd CaptureLead) *capture {
	c := &capture{Handlers: h, CaptureLead: cmd}
	if cmd.IdempotencyKey != "" {
		c.binding = h.newBinding(cmd)
	}
	return c
}

// answer does what CaptureLead does. What it shows of the lead is decided here, for all answers, by the admission that
// the append or a read has confirmed.
func (c *capture) answer(ctx context.Context) (LeadCaptured, error) {
	defer c.leave()
	answer, err := c.outcome(ctx)
	if err != nil {
		return answer, err
	}
	answer.Warnings = c.arrival.WarningsOf(answer.fact, answer.Lead)
	if !c.Admission.seesLeads() {
		answer.Lead = answer.Lead.SetBy(answer.fact)
	}
	return answer, err
}

func (c *capture) outcome(ctx context.Context) (LeadCaptured, error) {
	if err := c.Admission.admit(ctx, c.directory); err != nil {
		return LeadCaptured{}, err
	}
	answer, err := c.decide(ctx)
	wrong, is := errors.AsType[field.Errors](err)
	if !is {
		return answer, err
	}
	if answer, answered, err := c.recallAlone(ctx); answered || err != nil {
		if quarantined, again := errors.AsType[*Quarantined](err); again {
			quarantined.Errors = wrong // with names of custom fields, which an arrival's reasons do not show
		}
		return answer, err // the account's settings may have changed since the key got its answer
	}
	// Nothing was appended, so nothing has confirmed the token, nor the settings that the arrival was refused by.
	settings := c.Admission.Account
	if refused := c.Admission.Confirm(ctx, c.directory); refused != nil {
		return LeadCaptured{}, refused
	}
	if c.Admission.Account.expect != settings.expect {
		answer, err = c.decide(ctx)
	}
	if wrong, is := errors.AsType[field.Errors](err); is {
		err = c.quarantine(ctx, wrong)
	}
	if earlier, answered := errors.AsType[*answeredError](err); answered {
		return earlier.LeadCaptured, nil
	}
	return answer, err
}

// capture is one arrival while it is decided on.
type capture struct {
	*Handlers
	CaptureLead
	arrival lead.Arrival
	phone   string         // the stream of the claim on the arrival's phone; empty without one
	email   string         // and of the claim on its email
	binding *binding       // nil without an idempotency key
	line    *line          // of a batch or import; nil for a single arrival
	own     *arrivalStream // the arrival's own stream; nil for most

	onClaims *eventstore.Decision // in the queue of the claims; nil before
	onLeads  *eventstore.Decision // and in that of the leads that have the phone or email
}

// decide decides on the arrival and appends the outcome, once this process has decided on earlier arrivals of the
// person.
//
// Most arrivals are new people. So unless the person came recently, decide reads nothing and appends the claims and the
// lead as if the phone and email were free. Only after a conflict does it read their owners, and then waits for earlier
// decisions on these too.
func (c *capture) decide(ctx context.Context) (answer LeadCaptured, err error) {
	if err := c.parse(); err != nil {
		return LeadCaptured{}, err
	}
	if err := c.enter(ctx); err != nil {
		return LeadCaptured{}, err
	}
	// only an existing lead may be at an unknown stage
	if _, known := c.guess(); !known && c.arrival.UnknownStatus == "" {
		if answer, err = c.attempt(ctx, unclaimed); eventstore.Conflict(err) == nil {
			return answer, err
		}
		if err := c.confirmAfter(ctx, err); err != nil {
			return LeadCaptured{}, err
		}
	}
	attempt := func(ctx context.Context) (err error) {
		var answered bool
		if answer, answered, err = c.recall(ctx); answered || err != nil {
			return err
		}
		if answer, err = c.attempt(ctx, c.queuedOwners); eventstore.Conflict(err) == nil {
			return err
		}
		if refused := c.confirmAfter(ctx, err); refused != nil {
			return refused
		}
		return err
	}
	err = eventstore.Retry(ctx, attempt)
	if behind, is := errors.AsType[*behindError](err); is {
		if err = c.enterLeads(ctx, behind.leads); err == nil {
			err = eventstore.Retry(ctx, attempt)
		}
	}
	return answer, err
}

func (c *capture) rules() lead.Rules {
	from := contact.Call
	switch {
	case c.own != nil && c.own.ref.IntakeID != "":
		from = contact.Post
	case c.own == nil && c.Import:
		from = contact.File
	}
	rules := lead.RulesOf(c.Admission.Account.State, from)
	rules.OwnSource = from == contact.File && c.Source == ""
	rules.MergeDuplicates = c.MergeDuplicates
	return rules
}

func (c *capture) parse() (err error) {
	client := lead.Client{IP: c.Admission.Caller.IP, UserAgent: c.Admission.Caller.UserAgent}
	body := c.Body
	if c.own != nil && c.own.ref.IntakeID != "" {
		body = c.own.repair(body, c.rules())
	}
	c.arrival, err = lead.ParseArrival(body, c.rules(), client)
	c.arrival.Source = cmp.Or(c.Source, c.arrival.Source)
	c.arrival.Ref.ReceivedAt = c.ReceivedAt
	if c.own != nil {
		c.arrival.Ref = c.own.ref
	}
	if err != nil {
		return err
	}
	if c.arrival.VisitorID != "" {
		c.arrival.Visitor = c.claims.Visitor(c.Admission.Caller.Account, c.arrival.VisitorID)
	}
	c.phone, c.email = c.claimOn(claim.Phone, c.arrival.Phone), c.claimOn(claim.Email, c.arrival.Email)
	return nil
}

// confirmAfter confirms the admission after a conflict about it, and parses the arrival again, under the account's new
// settings.
func (c *capture) confirmAfter(ctx context.Context, err error) error {
	conflict := eventstore.Conflict(err)
	if c.own != nil && (conflict.Stream == c.own.stream || conflict.Stream == c.own.intake.Stream) {
		return &staleError{conflict.Stream}
	}
	about, err := c.Admission.confirmAfter(ctx, c.directory, conflict)
	if err != nil || !about {
		return err
	}
	return c.parse()
}

// attempt decides once and appends. The error is a *ConflictError when another append was first.
func (c *capture) attempt(
	ctx context.Context, owners func(context.Context) (phone, email owner, err error),
) (LeadCaptured, error) {
	phone, email, err := owners(ctx)
	if err != nil {
		return LeadCaptured{}, err
	}
	c.remember(phone, email)
	ids, err := c.newIDs(3)
	if err != nil {
		return LeadCaptured{}, err
	}
	decision, err := lead.Decide(c.arrival, c.rules(), phone.lead, email.lead,
		lead.NewIDs{Lead: ids[0], Contact: ids[1], Opportunity: ids[2]})
	if refusal, refused := errors.AsType[*lead.Refusal](err); refused {
		return LeadCaptured{}, c.refuse(ctx, refusal, phone, email)
	}
	if err != nil {
		return LeadCaptured{}, err
	}
	return c.append(ctx, decision, phone, email)
}

// append writes a decision in one append: the checks, the idempotency key, the claims and the lead.
func (c *capture) append(ctx context.Context, decision lead.Decision, phone, email owner) (LeadCaptured, error) {
	before := target(decision, phone, email)
	stream, expect := event.LeadStream(decision.LeadID), eventstore.NoStream
	if decision.Merged {
		expect = eventstore.At(eventstore.Revision(before.Revision))
	}
	at := c.after(before.UpdatedAt)
	if c.own != nil && c.own.expect == eventstore.NoStream && !c.own.since.Before(before.UpdatedAt) {
		at = c.own.since // the touch shows when it was received
	}
	writes := c.checks()
	for _, other := range []*lead.State{phone.lead, email.lead} { // a clash, or a shared contact
		if other != nil && other.ID != decision.LeadID {
			writes = append(writes, leadCheck(other))
		}
	}
	checks := len(writes)
	writes, err := c.claim(writes, decision, phone, email)
	if err != nil {
		return LeadCaptured{}, err
	}
	fact, err := c.write(c.Admission.Caller, stream, expect, at, decision.Fact)
	if err != nil {
		return LeadCaptured{}, err
	}
	after, outcome := evolved(before, stream, fact, decision.Fact), fact
	if c.own != nil {
		captured := event.ArrivalCaptured{
			LeadID: decision.LeadID, EventID: fact.Events[0].ID.String(), Merged: decision.Merged,
			Warnings: arrival.Warnings(slices.Concat(c.own.warnings(), c.arrival.WarningsOf(decision.Fact, after))),
		}
		if outcome, err = c.arrivalWrite(captured); err != nil {
			return LeadCaptured{}, err
		}
		writes = append(writes, outcome)
	}
	bound, err := c.bind(outcome)
	if err != nil {
		return LeadCaptured{}, err
	}
	position, err := c.store.Append(ctx, append(slices.Insert(writes, checks, bound...), fact)...)
	if err != nil {
		return LeadCaptured{}, err
	}
	for _, taken := range c.takes(decision, phone, email) {
		c.holders.Add(taken.stream, decision.LeadID)
	}
	return LeadCaptured{
		Lead: after, Merged: decision.Merged, Position: position, EventID: fact.Events[0].ID.String(),
		fact: decision.Fact,
	}, nil
}

// checks returns the writes that confirm the admission of the arrival.
func (c *capture) checks() []eventstore.Write {
	checks := c.Admission.checks()
	if c.own != nil && c.own.intake.Stream != "" {
		checks = append(checks, c.own.intake)
	}
	return checks
}

// target returns the lead that a decision merges into, as it was before; the zero state when the decision opens a new
// one.
func target(decision lead.Decision, phone, email owner) lead.State {
	switch {
	case !decision.Merged:
		return lead.State{}
	case phone.lead != nil && phone.lead.ID == decision.LeadID:
		return *phone.lead
	}
	return *email.lead
}

// refuse appends the refusal as a fact on a stream of its own. It always returns an error, normally a *LeadRefused.
func (c *capture) refuse(ctx context.Context, refusal *lead.Refusal, phone, email owner) error {
	stamped, err := c.stamp(c.Admission.Caller.withoutOrigin(), c.timestamp(), refusal.Fact)
	if err != nil {
		return err
	}
	write := eventstore.Write{
		Stream: event.RefusedStream(stamped.ID.String()), Expect: eventstore.NoStream,
		Events: []eventstore.Event{stamped},
	}
	writes, outcome := []eventstore.Write{write}, write
	checks := append(c.checks(), c.ownerChecks(phone, email)...)
	if c.own != nil {
		refused := event.ArrivalRefused{Code: refusal.Fact.Code, LeadID: refusal.Fact.LeadID, Other: refusal.Fact.Other}
		if was := c.own.was; was.State == arrival.Refused && refused == (event.ArrivalRefused{
			Code: was.Code, LeadID: was.LeadID, Other: was.Other,
		}) {
			position, err := c.store.Append(ctx, checks...)
			if err != nil {
				return err
			}
			return &LeadRefused{Refusal: refusal, Position: position} // nothing has changed
		}
		if outcome, err = c.arrivalWrite(refused); err != nil {
			return err
		}
		writes = append(writes, outcome)
	}
	bound, err := c.bind(outcome)
	if err != nil {
		return err
	}
	position, err := c.store.Append(ctx, slices.Concat(checks, bound, writes)...)
	if err != nil {
		return err
	}
	return &LeadRefused{Refusal: refusal, Position: position}
}
