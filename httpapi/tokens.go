package httpapi

import (
	"net/http"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/query"
)

// issuedToken is the answer of creation and rotation, the only ones that show a token's value.
type issuedToken struct {
	TokenID    string          `json:"tokenId"`
	Name       string          `json:"name"`
	Prefix     string          `json:"prefix"`
	PlainToken string          `json:"plainToken"`
	ExpiresAt  query.Timestamp `json:"expiresAt"`
}

func issued(status int, t command.TokenIssued) answer {
	return answer{
		status: status, position: t.Position,
		body: envelope{Success: true, Data: issuedToken{
			TokenID: t.ID, Name: t.Token.Name, Prefix: t.Token.Prefix,
			PlainToken: t.Value.Reveal(), ExpiresAt: query.Timestamp(t.Token.ExpiresAt),
		}},
	}
}

func (x *exchange) createToken() (answer, error) {
	body, err := x.fields()
	if err != nil {
		return answer{}, err
	}
	cmd := command.CreateToken{Caller: x.caller, Name: body.text("name")}
	if days := body.integer("expiresInDays"); days != nil {
		cmd.ExpiresInDays = *days
	}
	// A field of the wrong type is left empty, and neither may be: the command then refuses it too.
	created, err := x.Commands.CreateToken(x.ctx, cmd)
	if err := body.with(err); err != nil {
		return answer{}, err
	}
	return issued(http.StatusCreated, created), nil
}

func (x *exchange) rotateToken() (answer, error) {
	rotated, err := x.Commands.RotateToken(x.ctx, command.RotateToken{Caller: x.caller, TokenID: x.pathID()})
	if err != nil {
		return answer{}, err
	}
	return issued(http.StatusOK, rotated), nil
}

func (x *exchange) deleteToken() (answer, error) {
	position, err := x.Commands.DeleteToken(x.ctx, command.DeleteToken{Caller: x.caller, TokenID: x.pathID()})
	return done("Token deleted", position, err)
}

func (x *exchange) listTokens() (answer, error) {
	p := x.params()
	return accountList(x, p, func(page query.Page) (query.List[query.Token], error) {
		return x.Query.Tokens(x.ctx, x.caller.Account, page)
	}, query.TokenView)
}

func (x *exchange) showToken() (answer, error) {
	return one(x, x.params(), errNoToken, x.Query.Token, query.TokenView)
}

func (x *exchange) listTokenEvents() (answer, error) {
	return listOf(x, x.params(), errNoToken, x.Query.TokenEvents, query.TokenEventView)
}
