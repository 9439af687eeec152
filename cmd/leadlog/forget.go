package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/forget"
)

type forgetCommand struct {
	service.SealedDatabase `embed:""`

	Who      string `arg:"" name:"lead" placeholder:"LEAD" help:"Id of the lead whose person is to be forgotten; or a visitor whose key is lost, as leadlog verify names it (visitor-…): what cannot be read of them is to stay so."`
	Account  string `required:"" placeholder:"ID" help:"Account that the lead or visitor belongs to."`
	Yes      bool   `help:"Do not ask."`
	ClaimKey string `env:"LEADLOG_CLAIM_KEY" placeholder:"BASE64" help:"32 bytes: the HMAC key of claim names, as the service has it."`
}

var errNotConfirmed = errors.New("nobody said yes: nothing was erased")

// Run is leadlog forget. It does what DELETE of a lead does over HTTP, whether or not a service is running.
func (f *forgetCommand) Run(ctx context.Context, c cli.Output) error {
	keys, err := f.Keys(f.ClaimKey)
	if err != nil {
		return err
	}
	if !event.ValidID(f.Who) && !f.visitor() {
		return cli.Usagef("%q is not the id of a lead, nor the name of a visitor that leadlog verify prints", f.Who)
	}
	h, err := f.OpenStores(ctx, c)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := projection.Belong(ctx, h.Pool, h.Store); err != nil {
		return err
	}
	handlers := command.NewHandlers(command.Options{
		Store: h.Store, Claims: claim.NewNames(keys.Claim), Log: h.Log,
	})
	if err := handlers.FixClaimKey(ctx); err != nil {
		return err
	}
	if err := f.confirm(c); err != nil {
		return err
	}
	leave, err := h.KeepUp(ctx)
	if err != nil {
		return err
	}
	defer leave()
	caller := command.Caller{Account: f.Account, Actor: "system:forget"}
	if f.visitor() {
		return f.forgetVisitor(ctx, c, h, handlers, caller)
	}
	erased, err := h.Eraser().EraseLead(ctx, handlers.Erasure(caller), f.Who)
	if errors.Is(err, lead.ErrNotFound) {
		return fmt.Errorf("account %s has no lead %s", f.Account, f.Who)
	}
	if err != nil {
		return err
	}
	f.tell(c, erased)
	return nil
}

func (f *forgetCommand) visitor() bool { return strings.HasPrefix(f.Who, event.VisitorPrefix) }

func (f *forgetCommand) forgetVisitor(ctx context.Context, c cli.Output, h *service.Stores, handlers *command.Handlers, caller command.Caller) error {
	forgotten, err := h.Eraser().ForgetVisitor(ctx, handlers.Erasure(caller), f.Who, false)
	switch {
	case errors.Is(err, command.ErrNoVisitor):
		return fmt.Errorf("account %s has no visitor %s", f.Account, f.Who)
	case errors.Is(err, forget.ErrNotLost):
		return fmt.Errorf("whatever %s did can be read: DELETE /api/v1/crm/visitors/{visitorId} forgets it, and so does erasing the last lead that is linked with it", f.Who)
	case err != nil:
		return err
	}
	did := "forgotten"
	if forgotten.Again {
		did = "was forgotten before; what was left to do is done"
	}
	fmt.Fprintf(c.Out, "%s %s (position %d)\n"+
		"gone:   what could not be read of it; a key that is found of that is destroyed\n", f.Who, did, forgotten.Position)
	if forgotten.Rest {
		fmt.Fprintln(c.Out, "stays:  what else it did, which can be read")
	}
	return nil
}

// confirm asks for a yes on the terminal.
func (f *forgetCommand) confirm(c cli.Output) error {
	if f.Yes {
		return nil
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return cli.Usagef("there is no way back from this, and nobody to ask: add --yes")
	}
	says := "Everything that lead %s of account %s told is destroyed, for good."
	if f.visitor() {
		says = "What cannot be read of %s of account %s is to stay so, for good: also when its key is found."
	}
	fmt.Fprintf(c.Err, says+" Type yes to go on: ", f.Who, f.Account)
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil || strings.TrimSpace(answer) != "yes" {
		return errNotConfirmed
	}
	return nil
}

func (f *forgetCommand) tell(c cli.Output, erased forget.LeadErased) {
	did := "erased"
	if erased.Again {
		did = "was erased before; what was left to do is done"
	}
	fmt.Fprintf(c.Out, "lead %s %s (position %d)\n"+
		"destroyed: the key of what is sealed on the log; the lead's rows in the views and in copies of them as of a day; what\n"+
		"           endpoints answered to deliveries about it; the activity of %d visitors that no other lead is linked with\n"+
		"free:      %d phones and emails; who comes with one is a new lead\n"+
		"stays:     that there was a lead, when and from which sources it came, its stages and amounts; keyed hashes that name\n"+
		"           its claims; events from before there were keys; what endpoints were told; backups, until they are gone\n",
		f.Who, did, erased.Position, erased.Visitors, erased.Claims)
}
