package main

import (
	"context"
	"fmt"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/verify"
)

// note prints which erasures are not finished. They are no difference between the log and the views.
func (v *verifyCommand) note(c cli.Output, left []verify.Leftover) {
	for _, l := range left[:min(v.Most, len(left))] {
		fmt.Fprintln(c.Out, "note:", l.Says)
	}
	if more := len(left) - v.Most; more > 0 {
		fmt.Fprintf(c.Out, "note: %d more like these\n", more)
	}
	if len(left) > 0 && !v.Heal {
		fmt.Fprintln(c.Out, "note: an erasure under way looks the same; one that a killed process left is finished by leadlog verify --heal")
	}
}

// heal finishes the erasures that were left, and prints each. It refuses a claim key that is not the log's.
func heal(ctx context.Context, c cli.Output, h *service.Stores, keys service.Keys, left []verify.Leftover) error {
	if err := projection.Belong(ctx, h.Pool, h.Store); err != nil {
		return err
	}
	if len(left) == 0 {
		return nil
	}
	handlers := command.NewHandlers(command.Options{
		Store: h.Store, Claims: claim.NewNames(keys.Claim), Secrets: delivery.NewSecrets(h.Pool, h.Store.Box), Log: h.Log,
	})
	if err := handlers.FixClaimKey(ctx); err != nil {
		return err
	}
	for _, l := range left {
		if err := finishErasure(ctx, c, h, handlers, l); err != nil {
			return err
		}
	}
	return nil
}

// finishErasure completes the erasure of a lead or visitor that a process began and did not finish.
func finishErasure(ctx context.Context, c cli.Output, h *service.Stores, handlers *command.Handlers, left verify.Leftover) error {
	leave, err := h.KeepUp(ctx)
	if err != nil {
		return err
	}
	defer leave()
	caller := command.Caller{Account: left.Account, Actor: "system:claims"}
	if left.Visitor != "" {
		if _, err := h.Eraser().ForgetVisitor(ctx, handlers.Erasure(caller), left.Visitor, true); err != nil {
			return fmt.Errorf("forget %s: %w", left.Visitor, err)
		}
		fmt.Fprintf(c.Out, "healed: %s: its erasure is finished\n", left.Visitor)
		return nil
	}
	if _, err := h.Eraser().EraseLead(ctx, handlers.Erasure(caller), left.Lead); err != nil {
		return fmt.Errorf("erase lead %s: %w", left.Lead, err)
	}
	fmt.Fprintf(c.Out, "healed: lead-%s: its erasure is finished\n", left.Lead)
	return nil
}
