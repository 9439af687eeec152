package command

import (
	"context"
	"strings"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// CreateToken is the command that creates an API token of the caller's account.
type CreateToken struct {
	Caller        Caller
	Name          string // 1 to 100 characters
	ExpiresInDays int    // 1 to 365
}

// TokenIssued is the answer of creation and rotation, the only ones that contain the token's value.
type TokenIssued struct {
	ID       string
	Token    token.State
	Value    token.Value
	Position eventstore.Position
}

// CreateToken creates a token and takes a free slot of the account for it, in one append. The errors are field.Errors,
// token.ErrLimit, ErrLeadsHidden and those of the store.
func (h *Handlers) CreateToken(ctx context.Context, cmd CreateToken) (TokenIssued, error) {
	if err := cmd.Validate(); err != nil {
		return TokenIssued{}, err
	}
	var issued TokenIssued
	// no token ever has slot 0: creators of one account queue by its name
	queue := []string{h.claims.Slot(cmd.Caller.Account, claim.TokenSlot, 0)}
	err := h.transact.Do(ctx, queue, func(ctx context.Context) (err error) {
		issued, err = h.createToken(ctx, cmd)
		return err
	})
	return issued, err
}

// createToken makes one attempt.
func (h *Handlers) createToken(ctx context.Context, cmd CreateToken) (TokenIssued, error) {
	account, err := h.mayIssue(ctx, cmd.Caller)
	if err != nil {
		return TokenIssued{}, err
	}
	free, err := h.free(ctx, tokenSlots, cmd.Caller.Account)
	if err != nil {
		return TokenIssued{}, err
	}
	id, err := h.newID()
	if err != nil {
		return TokenIssued{}, err
	}
	issued := TokenIssued{ID: id.String()}
	if issued.Value, err = token.NewValue(issued.ID, h.random); err != nil {
		return TokenIssued{}, err
	}
	at := h.timestamp()
	take, err := h.claimSlot(cmd.Caller, tokenSlots, free, issued.ID)
	if err != nil {
		return TokenIssued{}, err
	}
	fact := token.Create(strings.TrimSpace(cmd.Name), cmd.ExpiresInDays, free.number, issued.Value, at)
	created, err := h.write(cmd.Caller, event.TokenStream(issued.ID), eventstore.NoStream, at, fact)
	if err != nil {
		return TokenIssued{}, err
	}
	issued.Token = token.Evolve(token.State{}, event.Fact{At: at, Metadata: cmd.Caller.metadata(), Data: fact})
	issued.Position, err = h.store.Append(ctx, account, take, created)
	return issued, err
}

// mayIssue returns the check that an append needs which gives the caller a token's value: while the account shows leads
// to tokens, the value reads them, so the caller must too. Otherwise the error is ErrLeadsHidden.
func (h *Handlers) mayIssue(ctx context.Context, caller Caller) (eventstore.Write, error) {
	latest, err := h.directory.ConfirmAccount(ctx, caller.Account)
	if err != nil {
		return eventstore.Write{}, err
	}
	if latest.State.TokensSeeLeads && !caller.ReadsLeads {
		return eventstore.Write{}, ErrLeadsHidden
	}
	return latest.Check(), nil
}

// Validate returns field.Errors if a token cannot have the name or the lifetime.
func (cmd CreateToken) Validate() error {
	var wrong field.Errors
	name := strings.TrimSpace(cmd.Name)
	if n := lead.Length(name); n < 1 || n > token.MaxName || lead.HasControl(name) {
		wrong.Add("name", "must be 1 to 100 characters, none of them a control character")
	}
	if cmd.ExpiresInDays < token.MinDays || cmd.ExpiresInDays > token.MaxDays {
		wrong.Add("expiresInDays", "must be a whole number from 1 to 365")
	}
	return wrong.Err()
}

var tokenSlots = slots{kind: claim.TokenSlot, count: token.MaxPerAccount, full: token.ErrLimit}
