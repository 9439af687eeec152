package console

import (
	"github.com/leadlog/leadlog/command"
)

// reveal shows a lead without a mask. That somebody looked is on the log before anything is shown; whoever loads the page
// again looks again.
func (v *visit) reveal() (screen, error) {
	if err := v.noteReveal(command.RevealOne, v.id("id")); err != nil {
		return screen{}, err
	}
	return v.showLead(masker{revealed: true})
}

func (v *visit) noteReveal(what, leadID string) error {
	_, err := v.Commands.Reveal(v.ctx, command.Reveal{Caller: v.caller, What: what, LeadID: leadID})
	return err
}
