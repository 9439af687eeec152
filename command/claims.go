package command

import (
	"context"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// holderCache has, by the streams of claims, the leads that most likely hold them, so that a person who comes again is
// not first taken for new. The lead's own stream must confirm each. It contains no personal data: the names of claims
// are keyed hashes.
type holderCache = lru.Cache[string, string]

// holderCacheSize is how many claims a process caches, 13 MiB. Without them, a capture of a known person takes
// twice as long.
const holderCacheSize = 1 << 16

func (c *capture) claimOn(kind claim.Kind, value string) string {
	if value == "" {
		return ""
	}
	return c.claims.Stream(c.Admission.Caller.Account, kind, value)
}

func (c *capture) claimStreams() []string {
	var streams []string
	if c.binding != nil {
		streams = append(streams, c.binding.stream)
	}
	for _, stream := range []string{c.phone, c.email} {
		if stream != "" {
			streams = append(streams, stream)
		}
	}
	return streams
}

// guess returns the lead that the cache has for the arrival's phone and email. If it has a different lead for each,
// there is no guess.
func (c *capture) guess() (leadID string, ok bool) {
	for _, stream := range []string{c.phone, c.email} {
		if stream == "" {
			continue
		}
		switch holder, known := c.holders.Get(stream); {
		case !known || holder == leadID:
		case ok:
			return "", false
		default:
			leadID, ok = holder, true
		}
	}
	return leadID, ok
}

// remember puts the owners of the arrival's phone and email into the cache.
func (c *capture) remember(phone, email owner) {
	if c.phone != "" && phone.lead != nil {
		c.holders.Add(c.phone, phone.lead.ID)
	}
	if c.email != "" && email.lead != nil {
		c.holders.Add(c.email, email.lead.ID)
	}
}

// unclaimed replaces owners: it assumes, without reading, that the phone and the email are free.
func unclaimed(context.Context) (phone, email owner, err error) {
	return owner{expect: eventstore.NoStream}, owner{expect: eventstore.NoStream}, nil
}

// owner is the lead that has a value, with the revision of the claim on it.
type owner struct {
	lead   *lead.State         // nil when it is free
	expect eventstore.Expected // of the claim's stream
	since  time.Time           // of the claim's latest fact
}

// owners looks up the leads that have the arrival's phone and email.
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
	look := func(stream string) (_ loadedLead, err error) {
		if looked.stream != stream { // mostly both claims name the same lead, which is read once
			looked, err = c.loadLead(ctx, stream)
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
		phone.lead = email.lead // which was read later
	}
	return phone, email, err
}

// behindError means that leads must be read again, once earlier decisions on them are made.
type behindError struct{ leads []string }

func (*behindError) Error() string { return "behind other decisions on the same leads" }

// queuedOwners is owners after all earlier decisions on them. The error is a *behindError if there may be any.
func (c *capture) queuedOwners(ctx context.Context) (phone, email owner, err error) {
	phone, email, err = c.owners(ctx)
	if err != nil || c.onLeads != nil {
		return phone, email, err
	}
	c.remember(phone, email)
	var leads []string
	for _, of := range []owner{phone, email} {
		if of.lead != nil {
			leads = append(leads, event.LeadStream(of.lead.ID))
		}
	}
	if c.line == nil {
		if c.onLeads = c.transact.Join(leads...); c.onLeads.Ready() {
			return phone, email, nil
		}
	}
	return phone, email, &behindError{leads}
}

// recognise reads the lead that guess returns. Ok reports whether this lead has both the arrival's phone and its email.
// Then the claims need not be read, because no other lead can have either.
func (c *capture) recognise(ctx context.Context) (known loadedLead, ok bool, err error) {
	id, guessed := c.guess()
	if !guessed {
		return loadedLead{}, false, nil
	}
	known, err = c.loadLead(ctx, event.LeadStream(id))
	return known, err == nil && c.hasAll(known.lead), err
}

// hasAll reports whether a live lead has, or ever had, the arrival's phone and email, or the one that the arrival has.
func (c *capture) hasAll(l lead.State) bool {
	return l.Phase == lead.Live &&
		(c.phone == "" || has(l, claim.Phone, c.arrival.Phone)) &&
		(c.email == "" || has(l, claim.Email, c.arrival.Email))
}

// ownedBy returns the owners when one lead has both the arrival's phone and its email. Nothing is claimed then, so the
// revisions of the claims do not matter.
func (c *capture) ownedBy(l *lead.State) (phone, email owner) {
	if c.phone != "" {
		phone.lead = l
	}
	if c.email != "" {
		email.lead = l
	}
	return phone, email
}

// loadedClaim is a claim as it is on the log.
type loadedClaim struct {
	claim.State
	stream string
	expect eventstore.Expected
}

func (c *capture) read(ctx context.Context, stream string) (loadedClaim, error) {
	if stream == "" {
		return loadedClaim{expect: eventstore.NoStream}, nil
	}
	state, expect, err := eventstore.Load(ctx, c.store, stream, claim.Evolve)
	return loadedClaim{state, stream, expect}, err
}

// ownerOf returns the lead that a claim names, if it is live and has the value. A claim may name a lead that was erased
// when it could not be read; and the two are read one after the other.
func (c *capture) ownerOf(
	claimed loadedClaim, kind claim.Kind, value string, look func(stream string) (loadedLead, error),
) (owner, error) {
	free := owner{expect: claimed.expect, since: claimed.UpdatedAt}
	if claimed.Holder == "" {
		return free, nil
	}
	holder, err := look(event.LeadStream(claimed.Holder))
	if err != nil {
		return owner{}, err
	}
	if holder.lead.Phase != lead.Live || !has(holder.lead, kind, value) {
		return free, nil
	}
	return owner{lead: &holder.lead, expect: claimed.expect}, nil
}

// has reports whether a lead has, or ever had, a phone or email.
func has(holder lead.State, kind claim.Kind, value string) bool {
	if kind == claim.Phone {
		value = contact.FoldPhone(value)
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

// ownerChecks returns checks that the phone and the email have these owners at one moment, since they are read one
// after the other. While the stream of a lead is as it was read, its values are claimed by it.
func (c *capture) ownerChecks(phone, email owner) (checks []eventstore.Write) {
	for _, of := range []taking{{stream: c.phone, owner: phone}, {stream: c.email, owner: email}} {
		switch {
		case of.stream == "":
		case of.lead == nil:
			checks = append(checks, eventstore.Check(of.stream, of.expect))
		case len(checks) == 0 || checks[0].Stream != event.LeadStream(of.lead.ID):
			checks = append(checks, leadCheck(of.lead))
		}
	}
	return checks
}

// leadCheck returns the check that a lead is as it was read.
func leadCheck(l *lead.State) eventstore.Write {
	return eventstore.Check(event.LeadStream(l.ID), eventstore.At(eventstore.Revision(l.Revision)))
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
func (c *capture) claim(
	writes []eventstore.Write, decision lead.Decision, phone, email owner,
) ([]eventstore.Write, error) {
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

// slots are an account's numbered slots for tokens or endpoints, from 1 to count. Each is a claim, so that there are
// never more holders than slots, however many are created at once by however many processes.
type slots struct {
	kind  claim.Kind
	count int
	full  error // returned when all are taken
}

// slot is one slot and the revision of its claim to expect when taking it.
type slot struct {
	number int
	stream string
	expect eventstore.Expected
	since  time.Time // of the claim's latest fact
	holder string    // empty: it is free
}

// free finds the first free slot of an account. The error is s.full when there is none. Since the slots are read one
// after the other, an append of checks only then confirms that all were taken at the same moment; otherwise the error
// is its conflict.
func (h *Handlers) free(ctx context.Context, s slots, account string) (slot, error) {
	var checks []eventstore.Write
	for first := 1; first <= s.count; first += slotsAtOnce {
		read, err := h.look(ctx, s, account, first, min(slotsAtOnce, s.count+1-first))
		if err != nil {
			return slot{}, err
		}
		for _, p := range read {
			if p.holder == "" {
				return p, nil
			}
			checks = append(checks, eventstore.Check(p.stream, p.expect))
		}
	}
	if _, err := h.store.Append(ctx, checks...); err != nil {
		return slot{}, err
	}
	return slot{}, s.full
}

// slotsAtOnce is how many slots are read concurrently. Other requests for a slot of the account wait for these reads.
const slotsAtOnce = 5

// look reads n slots at the same time.
func (h *Handlers) look(ctx context.Context, s slots, account string, first, n int) ([]slot, error) {
	read := make([]slot, n)
	looking, ctx := errgroup.WithContext(ctx)
	for i := range read {
		looking.Go(func() error {
			stream := h.claims.Slot(account, s.kind, first+i)
			claimed, expect, err := eventstore.Load(ctx, h.store, stream, claim.Evolve)
			read[i] = slot{first + i, stream, expect, claimed.UpdatedAt, claimed.Holder}
			return err
		})
	}
	return read, looking.Wait()
}

// claimSlot returns the write that gives a free slot to a holder.
func (h *Handlers) claimSlot(caller Caller, s slots, free slot, holder string) (eventstore.Write, error) {
	return h.write(caller.withoutOrigin(), free.stream, free.expect, h.after(free.since), event.ClaimTaken{
		Kind: string(s.kind), Holder: holder,
	})
}

// releaseSlot returns the write that frees the slot of a holder.
func (h *Handlers) releaseSlot(
	ctx context.Context, caller Caller, s slots, number int, holder string,
) ([]eventstore.Write, error) {
	return h.releaseClaim(ctx, caller, h.claims.Slot(caller.Account, s.kind, number), holder)
}

// releaseClaim returns the write that frees a claim, if it is one of these holders'.
func (h *Handlers) releaseClaim(
	ctx context.Context, caller Caller, stream string, holders ...string,
) ([]eventstore.Write, error) {
	claimed, expect, err := eventstore.Load(ctx, h.store, stream, claim.Evolve)
	if err != nil || !slices.Contains(holders, claimed.Holder) {
		return nil, err
	}
	release, err := h.write(caller.withoutOrigin(), stream, expect, h.after(claimed.UpdatedAt), event.ClaimReleased{
		Kind: string(claimed.Kind), Holder: claimed.Holder,
	})
	return []eventstore.Write{release}, err
}
