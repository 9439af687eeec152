package command

import (
	"context"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// What can be revealed.
const (
	RevealOne     = "lead"    // one lead
	RevealLeads   = "leads"   // an export of leads
	RevealSources = "sources" // an export of the source history
	RevealArrival = "arrival" // what was posted
)

// Reveal asks to see personal data without a mask.
type Reveal struct {
	Caller Caller
	What   string
	LeadID string // of RevealOne
	// ArrivalID is of RevealArrival. The caller has checked that the account has it.
	ArrivalID string
}

// Reveal records that a user is about to see personal data. The fact is on the log before anything is shown. The errors are
// lead.ErrNotFound and those of the store.
func (h *Handlers) Reveal(ctx context.Context, cmd Reveal) (eventstore.Position, error) {
	if cmd.What == RevealOne {
		held, err := h.loadLead(ctx, event.LeadStream(cmd.LeadID))
		if err != nil {
			return 0, err
		}
		there := held.lead.Phase == lead.Live || held.lead.Phase == lead.Joined // a joined lead can still be read
		if !there || held.lead.Account != cmd.Caller.Account {
			return 0, lead.ErrNotFound
		}
	}
	id, err := h.newID()
	if err != nil {
		return 0, err
	}
	caller := cmd.Caller
	caller.RequestID = caller.ownRequestID() // this record outlives the person
	write, err := h.write(caller, event.RevealStream(id.String()), eventstore.NoStream, h.timestamp(),
		event.LeadRevealed{LeadID: cmd.LeadID, ArrivalID: cmd.ArrivalID, What: cmd.What})
	if err != nil {
		return 0, err
	}
	return h.store.Append(ctx, write)
}
