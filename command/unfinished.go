package command

import (
	"context"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// On a store without transactions a claim can name a holder that does not have what was claimed for it: not born yet, or
// alive and without the value. The process that claimed it was killed, or met a conflict, or is about to append to the
// holder's stream the very fact that is missing; nobody can tell which.
//
// So the claim never moves by itself. First the holder's own stream is closed to that fact, at the revision where it is
// not there: either this gets the conflict, and the holder has what was claimed for it after all, or the other does, and
// decides again.

// holder is a stream that a claim names, as it was found: of a lead, or of a refused arrival.
type holder struct {
	stream  string
	expect  eventstore.Expected
	lead    lead.State
	awaited []string
}

// leadFold is what a lead's stream comes to.
type leadFold struct {
	Lead    lead.State
	Awaited []string `json:",omitzero"` // ids of leads that were announced and did not come
}

// leadFolds says how leads are folded. Some streams are long: those of leads that arrive or are changed again and again. Only
// live leads are kept in memory: their state rests on sealed events, which become unreadable when the person is forgotten.
var leadFolds = eventstore.FoldRules[leadFold]{
	Evolve: func(f leadFold, fact event.Fact) leadFold {
		return leadFold{lead.Fold(f.Lead, fact), awaits(f.Awaited, fact)}
	},
	Keep: func(f leadFold) bool { return f.Lead.Phase == lead.Live },
	Long: 128, Memory: 8 << 20,
}

// endpointFolds says how endpoints are folded. A stream is long if a program keeps testing the endpoint or asking for its
// deliveries again.
var endpointFolds = eventstore.FoldRules[webhook.State]{
	Evolve: webhook.Evolve,
	Keep:   func(webhook.State) bool { return true }, // it says nothing of a person
	Long:   128, Memory: 1 << 20,
}

func (h *Handlers) holderOf(ctx context.Context, stream string) (holder, error) {
	known, expect, err := h.leads.Load(ctx, h.store, stream)
	return holder{stream, expect, known.Lead, known.Awaited}, err
}

// closing is the write after which a holder can never get what was claimed for it. A holder that has ended needs none.
func (h *Handlers) closing(account string, held holder, claims ...string) ([]eventstore.Write, error) {
	var closed eventstore.Write
	var err error
	switch {
	case held.expect == eventstore.NoStream:
		closed, err = h.abandonment(account, held.stream, event.LeadAbandoned{})
	case held.lead.Phase == lead.Live:
		closed, err = h.write(claimKeeper(account), held.stream, held.expect, held.lead.UpdatedAt, event.LeadWaived{Claims: claims})
	default:
		return nil, nil
	}
	return []eventstore.Write{closed}, err
}

// abandonment is the write after which a holder can never be born. A conflict means that it was born after all.
func (h *Handlers) abandonment(account, stream string, abandoned event.Data) (eventstore.Write, error) {
	return h.write(claimKeeper(account), stream, eventstore.NoStream, h.timestamp(), abandoned)
}

// close appends closing. A conflict means that something came first: perhaps the very fact that was missing.
func (h *Handlers) close(ctx context.Context, account string, held holder, claims ...string) error {
	closed, err := h.closing(account, held, claims...)
	if err == nil && closed != nil {
		_, err = h.store.Append(ctx, closed...)
	}
	return err
}

// claimKeeper is the actor that closes holders, and releases what they do not have.
func claimKeeper(account string) Caller { return Caller{Account: account, Actor: "system:claims"} }
