package console

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/query"
)

// tokenList is the page of API tokens.
type tokenList struct {
	parts                  // of the deleted ones
	Tokens   []query.Token // that hold a slot
	Deleted  []query.Token // a part of them
	Slots    int           // of an account
	MayWrite bool          // delete them
	MayIssue bool          // create and rotate them
	Form     tokenForm
	Issued   *issuedToken
}

// tokenForm is the form of a new token, with its errors.
type tokenForm struct {
	Name, Days string
	Wrong      field.Errors
}

// issuedToken is a value, on the one page that shows it.
type issuedToken struct {
	command.TokenIssued
	Rotated bool
}

// Plain is the value.
func (i issuedToken) Plain() string { return i.Value.Reveal() }

func (v *visit) tokens() (screen, error) {
	return v.tokenScreen(tokenForm{Days: strconv.Itoa(defaultDays)}, nil)
}

const defaultDays = 90 // that a token is offered to live

func (v *visit) tokenScreen(form tokenForm, issued *issuedToken) (screen, error) {
	p := v.params()
	held, err := v.Query.HeldTokens(v.ctx, v.identity.Account, query.Page{Limit: rows})
	if err != nil {
		return screen{}, err
	}
	page := p.page()
	deleted, err := v.Query.DeletedTokens(v.ctx, v.identity.Account, page)
	if err != nil {
		return screen{}, err
	}
	shown := tokenList{
		Tokens: held.Items, Deleted: deleted.Items, Slots: token.MaxPerAccount,
		MayWrite: v.identity.May("tokens:write"),
		MayIssue: v.identity.May("tokens:write") && v.identity.May("leads:write"), Form: form, Issued: issued,
		parts: p.parts(page, deleted.NextCursor),
	}
	list := v.get("tokens:read", "The tokens, deleted ones too", "/api/v1/crm/tokens")
	return screen{name: "tokens", title: "API tokens", data: shown, live: v.reads(), calls: v.calls(list)}, nil
}

// Free is how many tokens may still be made.
func (l tokenList) Free() int { return max(0, l.Slots-len(l.Tokens)) }

// SlotsUsed are the slots, each taken or not.
func (l tokenList) SlotsUsed() []bool {
	used := make([]bool, l.Slots)
	for i := range min(len(l.Tokens), l.Slots) {
		used[i] = true
	}
	return used
}

func (v *visit) createToken() (screen, error) {
	form, err := v.form()
	if err != nil {
		return screen{}, err
	}
	asked := tokenForm{Name: form.Get("name"), Days: form.Get("expiresInDays")}
	days, err := strconv.Atoi(asked.Days)
	if err != nil {
		days = 0 // which the command refuses
	}
	created, err := v.Commands.CreateToken(v.ctx, command.CreateToken{
		Caller: v.caller, Name: asked.Name, ExpiresInDays: days,
	})
	if faults, ok := wrong(err); ok {
		asked.Wrong = faults
		shown, err := v.tokenScreen(asked, nil)
		shown.status = http.StatusBadRequest
		return shown, err
	}
	if err != nil {
		return screen{}, err
	}
	return v.issued(created, false)
}

// issued shows a value, once.
func (v *visit) issued(t command.TokenIssued, rotated bool) (screen, error) {
	v.waitForViews(t.Position, query.TokenView)
	return v.tokenScreen(tokenForm{Days: strconv.Itoa(defaultDays)}, &issuedToken{t, rotated})
}

// confirmation is the page before an action that cannot be undone.
type confirmation struct {
	Title, Question, Consequence string
	Verb                         string
	Action, Back                 string
	Grave                        bool
}

func (v *visit) confirmRotation() (screen, error) {
	return v.confirmToken("rotate", "Rotate",
		"The current value stops working at once. Its users need the new value, which is shown once.")
}

func (v *visit) confirmDeletion() (screen, error) {
	return v.confirmToken("delete", "Delete",
		"It stops working at once. Its record stays for the audit, and its slot becomes free. This cannot be undone.")
}

func (v *visit) confirmToken(action, verb, consequence string) (screen, error) {
	t, err := v.Query.Token(v.ctx, v.identity.Account, v.id("id"))
	if errors.Is(err, query.ErrNotFound) || err == nil && t.Status == "deleted" {
		return screen{}, token.ErrNotFound
	}
	if err != nil {
		return screen{}, err
	}
	title := verb + " token " + t.Name
	return screen{name: "confirm", title: title, data: confirmation{
		Title: title, Question: verb + " the token “" + t.Name + "” (" + t.Prefix + "…)?",
		Consequence: consequence, Verb: verb, Action: v.path("/tokens/" + t.TokenID + "/" + action),
		Back: v.path("/tokens"), Grave: action == "delete",
	}}, nil
}

func (v *visit) rotateToken() (screen, error) {
	rotated, err := v.Commands.RotateToken(v.ctx, command.RotateToken{Caller: v.caller, TokenID: v.id("id")})
	if err != nil {
		return screen{}, err
	}
	return v.issued(rotated, true)
}

func (v *visit) deleteToken() (screen, error) {
	position, err := v.Commands.DeleteToken(v.ctx, command.DeleteToken{Caller: v.caller, TokenID: v.id("id")})
	if err != nil {
		return screen{}, err
	}
	v.waitForViews(position, query.TokenView)
	return screen{redirect: v.path("/tokens")}, nil
}
