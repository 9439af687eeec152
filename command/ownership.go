package command

import (
	"context"
	"slices"
	"time"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// owner is what a claim says of a value: who has it, and the claim as it is to be when somebody takes it.
type owner struct {
	lead   *lead.State // nil when nobody has it
	expect eventstore.Expected
	since  time.Time // of the claim's latest fact
	named  *holder   // a live lead that the claim names and that has not got the value, or not yet
}

// owners looks up who has the arrival's phone and email.
func (c *capture) owners(ctx context.Context) (phone, email owner, err error) {
	known, ok, err := c.recognise(ctx)
	if err != nil {
		return phone, email, err
	}
	if ok {
		phone, email = c.ownedBy(&known.lead)
		return phone, email, nil
	}
	onPhone, err := c.read(ctx, c.phone)
	if err != nil {
		return phone, email, err
	}
	looked := known
	look := func(stream string) (_ holder, err error) {
		// Mostly both claims name the same lead. One that was not born may have been closed since.
		if looked.stream != stream || looked.expect == eventstore.NoStream {
			looked, err = c.holderOf(ctx, stream)
		}
		return looked, err
	}
	if onPhone.Holder != "" {
		switch found, err := look(event.LeadStream(onPhone.Holder)); {
		case err != nil:
			return phone, email, err
		case c.hasAll(found.lead):
			phone, email = c.ownedBy(&found.lead)
			return phone, email, nil
		}
	}
	onEmail, err := c.read(ctx, c.email)
	if err != nil {
		return phone, email, err
	}
	if phone, err = c.ownerOf(ctx, onPhone, claim.Phone, c.arrival.Phone, look); err == nil {
		email, err = c.ownerOf(ctx, onEmail, claim.Email, c.arrival.Email, look)
	}
	if err == nil && phone.lead != nil && email.lead != nil && phone.lead.ID == email.lead.ID {
		phone.lead = email.lead // which was read later
	}
	return phone, email, err
}

// recognise reads the lead that the arrival's person is thought to be, and tells whether it has everything that the
// arrival brings. If it has, the claims need not be read: nobody else can have any of it.
func (c *capture) recognise(ctx context.Context) (known holder, ok bool, err error) {
	id, guessed := c.guess()
	if !guessed {
		return holder{}, false, nil
	}
	known, err = c.holderOf(ctx, event.LeadStream(id))
	return known, err == nil && c.hasAll(known.lead), err
}

// hasAll tells whether a lead has, or ever had, the arrival's phone and its email, as far as there are.
func (c *capture) hasAll(l lead.State) bool {
	return l.Phase == lead.Live &&
		(c.phone == "" || has(l, claim.Phone, c.arrival.Phone)) && (c.email == "" || has(l, claim.Email, c.arrival.Email))
}

// ownedBy are the owners when one lead has all that the arrival brings. Nothing is claimed then, so the claims' revisions
// do not matter.
func (c *capture) ownedBy(l *lead.State) (phone, email owner) {
	if c.phone != "" {
		phone.lead = l
	}
	if c.email != "" {
		email.lead = l
	}
	return phone, email
}

// held is a claim as it stands on the log.
type held struct {
	claim.State
	stream string
	expect eventstore.Expected
}

func (c *capture) read(ctx context.Context, stream string) (held, error) {
	if stream == "" {
		return held{expect: eventstore.NoStream}, nil
	}
	state, expect, err := eventstore.Load(ctx, c.store, stream, claim.Evolve)
	return held{state, stream, expect}, err
}

func (c *capture) ownerOf(
	ctx context.Context, held held, kind claim.Kind, value string, look func(stream string) (holder, error),
) (owner, error) {
	free := owner{expect: held.expect, since: held.UpdatedAt}
	if held.Holder == "" {
		return free, nil
	}
	holder, err := look(event.LeadStream(held.Holder))
	if err != nil {
		return owner{}, err
	}
	if holder.lead.Phase == lead.Departed {
		return c.inherited(ctx, holder, kind, value, free)
	}
	switch {
	case holder.expect == eventstore.NoStream && c.DryRun:
		return free, nil
	case holder.expect == eventstore.NoStream:
		return free, c.close(ctx, c.Admission.Caller.Account, holder, held.stream)
	case holder.lead.Phase != lead.Live:
		return free, nil
	case !has(holder.lead, kind, value):
		free.named = &holder
		return free, nil
	}
	return owner{lead: &holder.lead, expect: held.expect}, nil
}

// inherited is the owner of a value whose claim names a lead that has departed: the heir, if it has the value. If it has
// not, then it has released the value, or the departed lead never got it; and nobody who holds this claim can be about to
// give it to either.
func (c *capture) inherited(ctx context.Context, departed holder, kind claim.Kind, value string, free owner) (owner, error) {
	last, err := c.heirOf(ctx, c.Admission.Caller.Account, departed)
	if err != nil {
		return owner{}, err
	}
	if writes := last.complete(); writes != nil && !c.DryRun {
		if _, err := c.store.Append(ctx, writes...); err != nil {
			return owner{}, err
		}
	}
	if last.lead.Phase != lead.Live || !has(last.lead, kind, value) {
		return free, nil
	}
	return owner{lead: &last.lead, expect: free.expect}, nil
}

// has tells whether a lead has, or ever had, a phone or email.
func has(holder lead.State, kind claim.Kind, value string) bool {
	return slices.Contains(values(holder, kind), value)
}

// values are all phones or emails that a lead has or ever had.
func values(holder lead.State, kind claim.Kind) []string {
	if kind == claim.Phone {
		return holder.Phones
	}
	return holder.Emails
}

// taking is a value that a decision makes the lead own.
type taking struct {
	kind   claim.Kind
	stream string // of the claim
	owner
}

func (c *capture) takes(decision lead.Decision, phone, email owner) []taking {
	takes := make([]taking, 0, 2)
	if decision.ClaimsPhone {
		takes = append(takes, taking{claim.Phone, c.phone, phone})
	}
	if decision.ClaimsEmail {
		takes = append(takes, taking{claim.Email, c.email, email})
	}
	return takes
}

// claim adds to writes those that take the values which the decision makes the lead own.
func (c *capture) claim(writes []eventstore.Write, decision lead.Decision, phone, email owner) ([]eventstore.Write, error) {
	for _, taken := range c.takes(decision, phone, email) {
		write, err := c.write(c.Admission.Caller.withoutOrigin(), taken.stream, taken.expect, c.after(taken.since),
			event.ClaimTaken{Kind: string(taken.kind), Holder: decision.LeadID})
		if err != nil {
			return nil, err
		}
		writes = append(writes, write)
	}
	return writes, nil
}

// waive is for leads that the claims name and that do not have the values: it closes their streams to whoever may still be
// about to give them the values.
func (c *capture) waive(decision lead.Decision, phone, email owner) ([]eventstore.Write, error) {
	if phone.named == nil && email.named == nil { // as for most who arrive
		return nil, nil
	}
	var by []*holder
	claims := map[string][]string{}
	for _, taken := range c.takes(decision, phone, email) {
		named := taken.named
		if named == nil || named.lead.ID == decision.LeadID {
			continue
		}
		if claims[named.stream] == nil {
			by = append(by, named)
		}
		claims[named.stream] = append(claims[named.stream], taken.stream)
	}
	var writes []eventstore.Write
	for _, named := range by {
		closed, err := c.closing(c.Admission.Caller.Account, *named, claims[named.stream]...)
		if err != nil {
			return nil, err
		}
		writes = append(writes, closed...)
	}
	return writes, nil
}
