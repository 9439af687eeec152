package systemtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// What the specification says of API tokens, as a model of one account: at most five, each with one value that works,
// which ends at once when the token is rotated or deleted.

// tokenAsk is a request: create, rotate, delete, or the use of a value.
type tokenAsk struct{ account, do, token, value string }

// tokenTold is what it was answered.
type tokenTold struct {
	unknown      bool // no answer, or 503: it may have had its effect, or may have it yet
	status       int
	token, value string
}

// accountTokens are those of an account that are not deleted, by id. It can be compared.
type accountTokens struct {
	count int
	held  [5]heldToken
}

// heldToken has no id when its creation was not answered, and no value when its last rotation was not.
type heldToken struct{ id, value string }

var tokenModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		accounts := map[string][]porcupine.Operation{}
		for _, o := range history {
			of := o.Input.(tokenAsk).account
			accounts[of] = append(accounts[of], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range accounts {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return accountTokens{} },
	Step: func(state, input, output any) (bool, any) {
		return state.(accountTokens).step(input.(tokenAsk), output.(tokenTold))
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// step tells whether a request may have this answer now, and what holds after it.
func (a accountTokens) step(in tokenAsk, out tokenTold) (bool, accountTokens) {
	at := slices.IndexFunc(a.held[:a.count], func(h heldToken) bool {
		return in.do == "use" && h.value == in.value && in.value != "" || in.token != "" && h.id == in.token
	})
	status := 200
	switch {
	case in.do == "create" && a.count == len(a.held):
		status = 409
	case in.do == "create":
		status = 201
		a.held[a.count] = heldToken{out.token, out.value}
		a.count++
	case in.do == "use" && at < 0:
		status = 401
	case at < 0:
		status = 404
	case in.do == "rotate":
		a.held[at].value = out.value
	case in.do == "delete":
		a.count--
		a.held[at] = a.held[a.count]
		a.held[a.count] = heldToken{}
	}
	slices.SortFunc(a.held[:a.count], func(x, y heldToken) int { return strings.Compare(x.id+x.value, y.id+y.value) })
	return out.unknown || out.status == status, a
}

func (in tokenAsk) request() request {
	const tokens = tokensPath + "/"
	switch in.do {
	case "create":
		return request{method: "POST", path: tokensPath, body: `{"name":"one of many","expiresInDays":30}`}
	case "rotate":
		return request{method: "POST", path: tokens + in.token + "/rotate"}
	case "delete":
		return request{method: "DELETE", path: tokens + in.token}
	}
	return request{method: "POST", path: leadsPath, bearer: in.value, body: `{"email":"used@example.com","metadata":{"source":"website"}}`}
}

func (in tokenAsk) outcome(got answer) tokenTold {
	out := tokenTold{status: got.status}
	if in.do == "use" && out.status == 201 {
		out.status = 200
	}
	if in.do == "create" || in.do == "rotate" {
		out.token, _ = got.data()["tokenId"].(string)
		out.value, _ = got.data()["plainToken"].(string)
	}
	return out
}
