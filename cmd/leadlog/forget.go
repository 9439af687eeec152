package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/term"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/worker/forget"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/query/logtree"
)

type forgetCommand struct {
	service.SealedDatabase `embed:""`

	Who         string        `arg:"" name:"lead" placeholder:"LEAD" help:"Id of the lead to erase; or, to record the loss of its key, the stream of a visitor or arrival, as printed by leadlog verify (visitor-…, arrival-…)."`
	Account     string        `required:"" placeholder:"ID" help:"Account that the lead, visitor or arrival belongs to."`
	Yes         bool          `help:"Do not ask for confirmation."`
	Certificate string        `type:"path" placeholder:"FILE" help:"Also write the certificate of the erasure to this file, once a checkpoint of the log covers it."`
	Wait        time.Duration `default:"40s" help:"With --certificate: how long to wait for that checkpoint, which a running service signs."`
	ClaimKey    string        `env:"LEADLOG_CLAIM_KEY" placeholder:"BASE64" help:"32 bytes: the HMAC key of claim names, the same as that of the service."`
}

var errNotConfirmed = errors.New("not confirmed: nothing was erased")

// Run is leadlog forget. It has the effect of DELETE of a lead over HTTP, whether or not a service is running.
func (f *forgetCommand) Run(ctx context.Context, c cli.Output) error {
	keys, err := f.Keys(f.ClaimKey)
	if err != nil {
		return err
	}
	if !event.ValidID(f.Who) && !f.visitor() && !f.arrival() {
		return cli.Usagef("%q is not the id of a lead, nor the name of a visitor or arrival that leadlog verify prints",
			f.Who)
	}
	if !event.ValidID(f.Who) && f.Certificate != "" {
		return cli.Usagef("--certificate is of a lead's erasure only")
	}
	if f.Certificate != "" { // before the erasure, which cannot be undone
		var check cli.Checker
		if check.File("--certificate", f.Certificate); check.Err() != nil {
			return check.Err()
		}
	}
	h, err := f.OpenStores(ctx, c)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := projection.CheckLog(ctx, h.Pool, h.Store); err != nil {
		return err
	}
	handlers := command.NewHandlers(command.Options{
		Store: h.Store, Claims: claim.NewNames(keys.Claim), Log: h.Log,
	})
	if err := handlers.FixClaimKey(ctx); err != nil {
		return err
	}
	if err := f.confirm(ctx, c); err != nil {
		return err
	}
	stop, err := h.RunViews(ctx)
	if err != nil {
		return err
	}
	defer stop()
	caller := command.Caller{Account: f.Account, Actor: "system:forget"}
	switch {
	case f.visitor():
		return f.forgetVisitor(ctx, c, h, handlers, caller)
	case f.arrival():
		return f.discardArrival(ctx, c, h, handlers, caller)
	}
	erased, err := h.Eraser().EraseLead(ctx, handlers.Erasure(caller), f.Who)
	if errors.Is(err, lead.ErrNotFound) {
		return fmt.Errorf("account %s has no lead %s", f.Account, f.Who)
	}
	if err != nil {
		return err
	}
	f.report(c, erased)
	kept, err := forget.Database{Pool: h.Pool}.RemainingValues(ctx, f.Account, erased.Leads)
	if err != nil {
		return fmt.Errorf("the lead is erased, but the campaigns that stay could not be read: %w", err)
	}
	reportRemaining(c, kept)
	if f.Certificate == "" {
		return nil
	}
	return f.certify(ctx, c, h)
}

const certifyPause = 200 * time.Millisecond // between looks for a checkpoint

// certify writes the certificate of the erasure once a checkpoint covers it. The fan-out has queued lead.erased before.
func (f *forgetCommand) certify(ctx context.Context, c cli.Output, h *service.Stores) error {
	tree, err := h.LogTree(ctx)
	if err != nil {
		return err
	}
	erased, err := tree.Erasure(ctx, f.Account, f.Who)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(f.Wait); ; {
		certificate, err := tree.Certificate(ctx, erased, time.Now())
		if errors.Is(err, logtree.ErrNotCovered) && time.Now().Before(deadline) {
			if err := eventstore.Sleep(ctx, certifyPause); err != nil {
				return err
			}
			continue
		}
		if errors.Is(err, logtree.ErrNotCovered) {
			return fmt.Errorf("the lead is erased, but %w: a running service signs one. Later, run this command "+
				"again, or GET /api/v1/crm/leads/%s/erasure-certificate",
				err, f.Who)
		}
		if err != nil {
			return err
		}
		text, err := json.Marshal(certificate, jsontext.WithIndent("  "))
		if err != nil {
			return err
		}
		if err := cli.WriteFile(f.Certificate, append(text, '\n')); err != nil {
			return err
		}
		fmt.Fprintf(c.Err, "%s: certificate of the erasure; leadlog verify --certificate checks it\n", f.Certificate)
		return nil
	}
}

// remainingShown bounds how many campaign parameters are listed.
const remainingShown = 50

func reportRemaining(c cli.Output, remaining []forget.RemainingValue) {
	if len(remaining) == 0 {
		return
	}
	fmt.Fprintln(c.Out, "           these campaign parameters of its arrivals and visits, in plain text:")
	for _, k := range remaining[:min(len(remaining), remainingShown)] {
		fmt.Fprintf(c.Out, "             %s %q\n", k.Name, k.Value)
	}
	if more := len(remaining) - remainingShown; more > 0 {
		fmt.Fprintf(c.Out, "             and %d more\n", more)
	}
}

func (f *forgetCommand) visitor() bool { return strings.HasPrefix(f.Who, event.VisitorPrefix) }

func (f *forgetCommand) forgetVisitor(
	ctx context.Context, c cli.Output, h *service.Stores, handlers *command.Handlers, caller command.Caller,
) error {
	forgotten, err := h.Eraser().ForgetVisitor(ctx, handlers.Erasure(caller), f.Who, false)
	switch {
	case errors.Is(err, command.ErrNoVisitor):
		return fmt.Errorf("account %s has no visitor %s", f.Account, f.Who)
	case errors.Is(err, forget.ErrNotLost):
		return fmt.Errorf("all activity of %s can be read: DELETE /api/v1/crm/visitors/{visitorId} forgets it, and "+
			"so does erasing the last lead linked with it", f.Who)
	case err != nil:
		return err
	}
	did := "forgotten"
	if forgotten.Again {
		did = "was forgotten before; the rest of it is done now"
	}
	fmt.Fprintf(c.Out, "%s %s (position %d)\n"+
		"gone:   what could not be read; a key for it that is found later is destroyed\n",
		f.Who, did, forgotten.Position)
	if forgotten.Remaining {
		fmt.Fprintln(c.Out, "stays:  the activity that can be read")
	}
	return nil
}

func (f *forgetCommand) arrival() bool {
	return strings.HasPrefix(f.Who, event.ArrivalPrefix) && event.ValidID(event.ArrivalID(f.Who))
}

// discardArrival has the effect of DELETE of an arrival over HTTP.
func (f *forgetCommand) discardArrival(
	ctx context.Context, c cli.Output, h *service.Stores, handlers *command.Handlers, caller command.Caller,
) error {
	position, err := h.Eraser().DiscardArrival(ctx, handlers.Erasure(caller), event.ArrivalID(f.Who))
	switch {
	case errors.Is(err, arrival.ErrNotFound):
		return fmt.Errorf("account %s has no arrival %s", f.Account, event.ArrivalID(f.Who))
	case err != nil && !errors.Is(err, arrival.ErrExpired):
		return err
	case position == 0:
		fmt.Fprintf(c.Out, "%s was discarded or expired before\n", f.Who)
	default:
		fmt.Fprintf(c.Out, "%s discarded (position %d)\n", f.Who, position)
	}
	return nil
}

// confirm asks for confirmation on the terminal.
func (f *forgetCommand) confirm(ctx context.Context, c cli.Output) error {
	if f.Yes {
		return nil
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return cli.Usagef("this cannot be undone, and stdin is no terminal to confirm it on: add --yes")
	}
	question := "All personal data of lead %s of account %s will be destroyed. This cannot be undone."
	switch {
	case f.arrival():
		question = "The body of %s of account %s will be destroyed. This cannot be undone."
	case f.visitor():
		question = "What cannot be read of %s of account %s will stay unreadable, even if its key is found. This " +
			"cannot be undone."
	}
	fmt.Fprintf(c.Err, question+" Type yes to continue: ", f.Who, f.Account)
	return confirmed(ctx, os.Stdin)
}

// confirmed reads the answer. Ctrl-C ends the wait, although the read goes on.
func confirmed(ctx context.Context, from io.Reader) error {
	answers := make(chan string, 1)
	go func() {
		answer, err := bufio.NewReader(from).ReadString('\n')
		if err != nil {
			answer = ""
		}
		answers <- answer
	}()
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotConfirmed, ctx.Err())
	case answer := <-answers:
		if strings.TrimSpace(answer) != "yes" {
			return errNotConfirmed
		}
		return nil
	}
}

func (f *forgetCommand) report(c cli.Output, erased forget.LeadErased) {
	did := "erased"
	if erased.Again {
		did = "was erased before; the rest of it is done now"
	}
	fmt.Fprintf(c.Out, "lead %s %s (position %d)\n"+
		"destroyed: the key of what is sealed on the log; the lead's rows in the views and in as-of copies; "+
		"endpoints' answers to\n"+
		"           deliveries about it; the activity of %d visitors that no other lead is linked with\n"+
		"free:      %d phones and emails; the next capture with one creates a lead\n"+
		"stays:     that there was a lead, when and from which sources it came, its stages and amounts; keyed hashes "+
		"that name\n"+
		"           its claims; events from before there were keys; what endpoints received; backups, until they "+
		"are deleted\n",
		f.Who, did, erased.Position, erased.Visitors, erased.Claims)
}
