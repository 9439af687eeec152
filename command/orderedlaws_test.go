package command_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// known is the whole log, folded by nothing but the deciders.
type known struct {
	w         *world
	account   account.State
	leads     map[string]lead.State // by stream
	owners    map[string]string     // of kind and value, the lead's stream
	released  map[string][]string   // of kind and value, ids of leads that had it
	forgotten map[string]bool       // ids of leads
	claims    map[string]claim.State
	tokens    map[string]bool // that live, by stream
	endpoints map[string]bool
	effects   map[string][]eventstore.Recorded // facts about leads, by request
	at        map[eventstore.Position]eventstore.Recorded
	leadAt    map[eventstore.Position]lead.State
}

// obey folds the log event by event, and requires of each what must hold at any moment; then of the end, and of every
// answer that was given.
func (w *world) obey() *known {
	w.t.Helper()
	k := &known{
		w: w, leads: map[string]lead.State{}, owners: map[string]string{}, released: map[string][]string{}, forgotten: map[string]bool{}, claims: map[string]claim.State{},
		tokens: map[string]bool{}, endpoints: map[string]bool{}, effects: map[string][]eventstore.Recorded{},
		at: map[eventstore.Position]eventstore.Recorded{}, leadAt: map[eventstore.Position]lead.State{},
	}
	for _, r := range w.events() {
		k.note(r)
	}
	for value, stream := range k.owners {
		kind, plain, _ := strings.Cut(value, " ")
		held := k.claims[claim.NewNames(claimKey()).Stream("acme", claim.Kind(kind), plain)]
		require.Equal(w.t, k.heir(event.LeadID(stream)), k.heir(held.Holder), "the claim on %s", value)
	}
	for _, a := range w.arrived {
		k.answered(a)
	}
	k.keys()
	return k
}

func (k *known) note(r eventstore.Recorded) {
	t := k.w.t
	fact, err := r.Fact()
	require.NoError(t, err)
	k.at[r.Position] = r
	switch data := fact.Data.(type) {
	case event.AccountConfigured:
		k.account = account.Evolve(k.account, fact)
	case event.LeadCreated, event.LeadMerged, event.LeadRefused:
		k.decided(r, fact)
		k.effects[r.Metadata.RequestID] = append(k.effects[r.Metadata.RequestID], r)
	case event.LeadReleased:
		for _, name := range []string{string(claim.Phone) + " " + data.Phone, string(claim.Email) + " " + data.Email} {
			delete(k.owners, name)
			k.released[name] = append(k.released[name], event.LeadID(r.Stream))
		}
	case event.LeadErased:
		k.whole(r.Stream)
		k.forget(append(data.Leads, event.LeadID(r.Stream)))
	case event.LeadDeparted:
		require.Equal(t, lead.Live, k.leads[event.LeadStream(data.Into)].Phase, "departs into a lead that is gone")
		k.whole(r.Stream)
	case event.LeadJoined:
		k.inherited(data)
	case event.TokenCreated:
		k.tokens[r.Stream] = true
		require.LessOrEqual(t, len(k.tokens), token.MaxPerAccount)
	case event.TokenDeleted:
		delete(k.tokens, r.Stream)
	case event.WebhookRegistered:
		k.endpoints[r.Stream] = true
		require.LessOrEqual(t, len(k.endpoints), webhook.MaxPerAccount)
	case event.WebhookDeleted:
		delete(k.endpoints, r.Stream)
	case event.ClaimTaken, event.ClaimReleased, event.ClaimBound:
		k.claims[r.Stream] = claim.Evolve(k.claims[r.Stream], fact)
	case event.LeadWaived:
		require.NotEmpty(t, data.Claims)
	}
	if !strings.HasPrefix(r.Stream, event.LeadPrefix) {
		return
	}
	before := k.leads[r.Stream]
	after := lead.Evolve(before, fact)
	require.EqualValues(t, r.Revision, after.Revision)
	if _, erased := fact.Data.(event.LeadErased); !erased || before.Phase == lead.Erased {
		require.NotContains(t, []lead.Phase{lead.Abandoned, lead.Departed, lead.Erased}, before.Phase, "nothing follows the end of a lead")
	}
	k.leads[r.Stream], k.leadAt[r.Position] = after, after
	for kind, values := range map[claim.Kind][]string{claim.Phone: after.Phones, claim.Email: after.Emails} {
		for _, value := range values {
			name := string(kind) + " " + value
			require.Contains(t, []string{"", r.Stream}, k.owners[name], "two leads have %s", name)
			k.owners[name] = r.Stream
		}
	}
}

// whole requires of a lead that ends that whoever departed into it is part of it: one call follows the other, as if a join
// were one step.
func (k *known) whole(stream string) {
	ends := k.leads[stream]
	for _, other := range k.leads {
		if other.Phase == lead.Departed && other.JoinedInto == ends.ID {
			require.Contains(k.w.t, ends.Joined, other.ID, "%s ends without one that has departed into it", stream)
		}
	}
}

// forget lets nobody have what leads had that are erased.
func (k *known) forget(leads []string) {
	for _, id := range leads {
		k.forgotten[id] = true
		for name, stream := range k.owners {
			if stream == event.LeadStream(id) {
				delete(k.owners, name)
				k.released[name] = append(k.released[name], id)
			}
		}
	}
}

// inherited requires that a lead that is joined into another has departed, and lets nobody have what it had, so that the
// other may.
func (k *known) inherited(joined event.LeadJoined) {
	from := event.LeadStream(joined.From)
	require.Equal(k.w.t, lead.Departed, k.leads[from].Phase, "a lead is joined that did not depart")
	for name, stream := range k.owners {
		if stream == from {
			delete(k.owners, name)
		}
	}
}

// heir is the id of the live lead that a lead is part of. It may be the lead itself.
func (k *known) heir(id string) string {
	for range len(k.leads) {
		state := k.leads[event.LeadStream(id)]
		if state.Phase != lead.Departed {
			return id
		}
		id = state.JoinedInto
	}
	require.Fail(k.w.t, "a lead is part of itself")
	return ""
}

// decided requires that an arrival became what it means, given the log before it.
func (k *known) decided(r eventstore.Recorded, fact event.Fact) {
	t := k.w.t
	i := slices.IndexFunc(k.w.arrived, func(a *arrival) bool { return a.request == r.Metadata.RequestID })
	require.NotEqual(t, -1, i)
	rules := lead.Rules{Region: k.account.Region, Stages: k.account.Stages}
	parsed, err := lead.ParseArrival(members(k.w.arrived[i].body), rules, lead.Client{})
	require.NoError(t, err)
	byPhone, byEmail := k.owner(claim.Phone, parsed.Phone), k.owner(claim.Email, parsed.Email)
	if refused, ok := fact.Data.(event.LeadRefused); ok {
		// It is of the moment when it was decided, which may have been earlier, but what is refused stays refused, unless
		// the lead has released it since.
		has := func(owner *lead.State, name string) bool {
			there := k.heir(refused.LeadID)
			return owner != nil && k.heir(owner.ID) == there ||
				slices.ContainsFunc(k.released[name], func(id string) bool { return k.heir(id) == there })
		}
		require.True(t, has(byPhone, string(claim.Phone)+" "+parsed.Phone) || has(byEmail, string(claim.Email)+" "+parsed.Email), "%s", k.w.arrived[i].body)
		return
	}
	decision, err := lead.Decide(parsed, rules, byPhone, byEmail, lead.NewIDs{Lead: event.LeadID(r.Stream)})
	require.NoError(t, err, "%s", k.w.arrived[i].body)
	require.Equal(t, fact.Data.EventType(), decision.Fact.EventType())
	require.Equal(t, r.Stream, event.LeadStream(decision.LeadID), "%s", k.w.arrived[i].body)
}

func (k *known) owner(kind claim.Kind, value string) *lead.State {
	state, ok := k.leads[k.owners[string(kind)+" "+value]]
	if !ok {
		return nil
	}
	return &state
}

// answered requires that an answer is what stands on the log, and that an arrival had at most one effect.
func (k *known) answered(a *arrival) {
	t := k.w.t
	effects := k.effects[a.request]
	require.LessOrEqual(t, len(effects), 1, "%s had several effects", a.body)
	if !a.counts() {
		if errors.Is(a.err, command.ErrKeyReused) {
			require.Empty(t, effects)
		}
		return
	}
	stands, there := k.at[a.position()]
	require.True(t, there)
	if a.replayed() {
		require.Empty(t, effects)
		require.NotEmpty(t, a.key)
	} else {
		require.Len(t, effects, 1)
		require.Equal(t, effects[0].Position, stands.Position)
	}
	if a.err == nil {
		require.Equal(t, k.leadAt[a.position()], a.answer.Lead)
		require.Equal(t, event.Types(event.LeadMerged{})[0] == stands.Type, a.answer.Merged)
		return
	}
	var refused *command.LeadRefused
	require.ErrorAs(t, a.err, &refused)
	fact, err := stands.Fact()
	require.NoError(t, err)
	require.Equal(t, refused.Fact, fact.Data)
}

// keys requires that one key had one effect and one answer.
func (k *known) keys() {
	positions, effects := map[string]eventstore.Position{}, map[string]int{}
	for _, a := range k.w.arrived {
		if a.key == "" {
			continue
		}
		effects[a.key] += len(k.effects[a.request])
		require.LessOrEqual(k.w.t, effects[a.key], 1, "effects of the key %s", a.key)
		if !a.counts() {
			continue
		}
		if positions[a.key] == 0 {
			positions[a.key] = a.position()
		}
		require.Equal(k.w.t, positions[a.key], a.position(), "answers of the key %s", a.key)
	}
}

// obeyAndServe requires that the laws hold, and then that nobody is in anybody's way: whoever comes with any one of the
// values is who the log says, and every free place can be taken.
func (w *world) obeyAndServe() {
	w.t.Helper()
	k := w.obey()
	p := w.process(nil)
	for _, c := range []struct {
		kind  claim.Kind
		value string
	}{
		{claim.Phone, "+919876500001"}, {claim.Phone, "+919876500002"}, {claim.Phone, "+919876500009"},
		{claim.Email, "one@example.com"}, {claim.Email, "three@example.com"}, {claim.Email, "nine@example.com"}, {claim.Email, "ten@example.com"},
	} {
		owner := k.owner(c.kind, c.value)
		a := w.capture(p, fmt.Sprintf(`{%q:%q,"metadata":{"source":"website"}}`, c.kind, c.value), "")
		require.NoError(w.t, a.err)
		require.Equal(w.t, owner != nil, a.answer.Merged, "%s", c.value)
		if owner != nil {
			require.Equal(w.t, k.heir(owner.ID), a.answer.Lead.ID)
		}
	}
	if w.places[claim.TokenSlot] {
		for range token.MaxPerAccount - len(k.tokens) {
			_, err := p.CreateToken(w.t.Context(), w.newToken())
			require.NoError(w.t, err)
		}
		_, err := p.CreateToken(w.t.Context(), w.newToken())
		require.ErrorIs(w.t, err, token.ErrLimit)
	}
	if w.places[claim.WebhookSlot] {
		for range webhook.MaxPerAccount - len(k.endpoints) {
			_, err := p.RegisterWebhookEndpoint(w.t.Context(), w.newEndpoint())
			require.NoError(w.t, err)
		}
		_, err := p.RegisterWebhookEndpoint(w.t.Context(), w.newEndpoint())
		require.ErrorIs(w.t, err, webhook.ErrLimit)
	}
	w.obey()
}

// healed requires that healing leaves nothing: every claim's holder has what was claimed for it.
func (w *world) healed() {
	w.t.Helper()
	_, err := w.heal(w.process(nil))
	require.NoError(w.t, err)
	k := w.obey()
	for stream, state := range k.leads {
		heir := k.leads[event.LeadStream(k.heir(state.ID))]
		if heir.Phase == lead.Erased {
			require.True(w.t, k.forgotten[state.ID], "%s is part of a lead that is erased, and is not", stream)
		} else if state.Phase == lead.Departed {
			require.Contains(w.t, heir.Joined, state.ID, "%s has departed and is nowhere", stream)
		}
	}
	for stream, held := range k.claims {
		switch held.Kind {
		case claim.Phone, claim.Email:
			holder := k.leads[event.LeadStream(held.Holder)]
			owner := holder.Phase == lead.Live && slices.ContainsFunc(slices.Concat(holder.Phones, holder.Emails), func(value string) bool {
				return claim.NewNames(claimKey()).Stream("acme", held.Kind, value) == stream
			})
			require.True(w.t, held.Holder == "" || owner, "%s of kind %s", stream, held.Kind)
		case claim.TokenSlot:
			require.True(w.t, held.Holder == "" || k.tokens[event.TokenStream(held.Holder)])
		case claim.WebhookSlot:
			require.True(w.t, held.Holder == "" || k.endpoints[event.WebhookStream(held.Holder)])
		case claim.Idempotency:
			require.True(w.t, held.Bound.EventID == "" || slices.ContainsFunc(w.events(), func(r eventstore.Recorded) bool {
				return r.ID.String() == held.Bound.EventID && r.Stream == held.Bound.Stream
			}))
		}
	}
	did, err := w.heal(w.process(nil))
	require.NoError(w.t, err)
	require.Empty(w.t, did, "what is healed stays so")
}
