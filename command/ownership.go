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

// owner is who has a value, and what is needed to append to the claim on it.
type owner struct {
	lead   *lead.State         // nil when nobody has it
	expect eventstore.Expected // of the claim's stream
	since  time.Time           // of the claim's latest fact
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
		if looked.stream != stream { // mostly both claims name the same lead, which is read once
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
	if phone, err = c.ownerOf(onPhone, claim.Phone, c.arrival.Phone, look); err == nil {
		email, err = c.ownerOf(onEmail, claim.Email, c.arrival.Email, look)
	}
	if err == nil && phone.lead != nil && email.lead != nil && phone.lead.ID == email.lead.ID {
		phone.lead = email.lead // the one that was read later
	}
	return phone, email, err
}

// recognise reads the lead that guess returns. Ok says that this lead has both the arrival's phone and its email. Then the claims
// need not be read, because nobody else can have either.
func (c *capture) recognise(ctx context.Context) (known holder, ok bool, err error) {
	id, guessed := c.guess()
	if !guessed {
		return holder{}, false, nil
	}
	known, err = c.holderOf(ctx, event.LeadStream(id))
	return known, err == nil && c.hasAll(known.lead), err
}

// hasAll reports whether a live lead has, or ever had, the arrival's phone and email, or the one that the arrival has.
func (c *capture) hasAll(l lead.State) bool {
	return l.Phase == lead.Live &&
		(c.phone == "" || has(l, claim.Phone, c.arrival.Phone)) && (c.email == "" || has(l, claim.Email, c.arrival.Email))
}

// ownedBy returns the owners when one lead has both the arrival's phone and its email. Nothing is claimed then, so the revisions
// of the claims do not matter.
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

// ownerOf returns the lead that a claim names, if it is live and has the value. A claim may name a lead that was erased when it
// could not be read; and the two are read one after the other.
func (c *capture) ownerOf(held held, kind claim.Kind, value string, look func(stream string) (holder, error)) (owner, error) {
	free := owner{expect: held.expect, since: held.UpdatedAt}
	if held.Holder == "" {
		return free, nil
	}
	holder, err := look(event.LeadStream(held.Holder))
	if err != nil {
		return owner{}, err
	}
	if holder.lead.Phase != lead.Live || !has(holder.lead, kind, value) {
		return free, nil
	}
	return owner{lead: &holder.lead, expect: held.expect}, nil
}

// has reports whether a lead has, or ever had, a phone or email.
func has(holder lead.State, kind claim.Kind, value string) bool {
	if kind == claim.Phone {
		value = lead.FoldPhone(value)
	}
	return slices.Contains(values(holder, kind), value)
}

// values returns all phones, folded, or emails that a lead has or ever had.
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

// claim appends to writes the claims on the values that a decision gives to its lead.
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
