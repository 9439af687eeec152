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
	named  *holder             // a live lead that the claim names but that does not have the value, or not yet
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
		// Mostly both claims name the same lead, which is read once. One that did not exist is read again: its stream may have
		// been closed meanwhile.
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

// inherited returns the owner of a value whose claim names a departed lead: the heir, if it has the value. If it does not, then
// either the heir has released the value or the departed lead never got it, and nobody can still be about to give it to either.
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

// waive returns the writes that close the streams of leads which a claim names but which do not have the value: another process
// may still be about to give it to them, and must meet a conflict.
func (c *capture) waive(decision lead.Decision, phone, email owner) ([]eventstore.Write, error) {
	if phone.named == nil && email.named == nil { // the usual case
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
