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

func (ex *exchange) createToken() (answer, error) {
	body, err := ex.fields("name", "expiresInDays")
	if err != nil {
		return answer{}, err
	}
	cmd := command.CreateToken{Caller: ex.caller, Name: body.text("name")}
	if days := body.integer("expiresInDays"); days != nil {
		cmd.ExpiresInDays = *days
	}
	if body.wrong != nil { // fields of the wrong type are empty here: only validate the others
		return answer{}, body.with(cmd.Validate())
	}
	created, err := ex.Commands.CreateToken(ex.ctx, cmd)
	if err != nil {
		return answer{}, err
	}
	return issued(http.StatusCreated, created), nil
}

func (ex *exchange) rotateToken() (answer, error) {
	rotated, err := ex.Commands.RotateToken(ex.ctx, command.RotateToken{Caller: ex.caller, TokenID: ex.pathID()})
	if err != nil {
		return answer{}, err
	}
	return issued(http.StatusOK, rotated), nil
}

func (ex *exchange) deleteToken() (answer, error) {
	position, err := ex.Commands.DeleteToken(ex.ctx, command.DeleteToken{Caller: ex.caller, TokenID: ex.pathID()})
	return done("Token deleted", position, err)
}

func (ex *exchange) listTokens() (answer, error) {
	p := ex.params()
	return accountList(ex, p, func(page query.Page) (query.List[query.Token], error) {
		return ex.Query.Tokens(ex.ctx, ex.caller.Account, page)
	}, query.TokenView)
}

func (ex *exchange) showToken() (answer, error) {
	return one(ex, ex.params(), errNoToken, ex.Query.Token, query.TokenView)
}

func (ex *exchange) listTokenEvents() (answer, error) {
	return listOf(ex, ex.params(), errNoToken, ex.Query.TokenEvents, query.TokenEventView)
}
