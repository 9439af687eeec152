package command

import (
	"context"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// On a store without transactions, a claim can name a holder that does not have what was claimed for it: its stream is empty, or
// it lives without the value. The process that wrote the claim was killed, or met a conflict, or is just about to append the
// missing fact to the holder's stream; nobody can tell which.
//
// So before the claim is given to somebody else, the holder's own stream is closed at the revision where the fact is missing.
// Either this append meets a conflict, and the holder has what was claimed for it after all; or the other process does, and
// decides again.

// holder is a stream that a claim names, as it was found: of a lead, or of a refused arrival.
type holder struct {
	stream  string
	expect  eventstore.Expected
	lead    lead.State
	awaited []string
}

// leadFold is the fold of a lead's stream.
type leadFold struct {
	Lead    lead.State
	Awaited []string `json:",omitzero"` // ids of leads that announced that they would join this one, and have not
}

// leadFolds says how leads are folded and which folds stay in memory. Streams are long of leads that arrive or are changed again
// and again. Only live leads are kept: their events become unreadable when the person is forgotten, as Keep requires.
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
	Keep:   func(webhook.State) bool { return true }, // it contains no personal data
	Long:   128, Memory: 1 << 20,
}

func (h *Handlers) holderOf(ctx context.Context, stream string) (holder, error) {
	known, expect, err := h.leads.Load(ctx, h.store, stream)
	return holder{stream, expect, known.Lead, known.Awaited}, err
}

// closing returns the write after which a holder can never get what was claimed for it. A holder that has ended needs none.
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

// abandonment returns the write that closes an empty stream for good. A conflict means that the holder was created after all.
func (h *Handlers) abandonment(account, stream string, abandoned event.Data) (eventstore.Write, error) {
	return h.write(claimKeeper(account), stream, eventstore.NoStream, h.timestamp(), abandoned)
}

// close appends what closing returns. A conflict means that another append came first, perhaps of the missing fact itself.
func (h *Handlers) close(ctx context.Context, account string, held holder, claims ...string) error {
	closed, err := h.closing(account, held, claims...)
	if err == nil && closed != nil {
		_, err = h.store.Append(ctx, closed...)
	}
	return err
}

// claimKeeper is the caller for what commands do about unfinished claims, on nobody's behalf.
func claimKeeper(account string) Caller { return Caller{Account: account, Actor: "system:claims"} }
