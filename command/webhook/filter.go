package webhook

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/expression"
)

// filterCost is the limit of a filter's cost: about five milliseconds. An account applies up to MaxPerAccount filters
// to one event.
const filterCost = 10_000

// filterEnvironment has the variables of filters: members of a delivery's body.
var filterEnvironment = expression.NewEnvironment(filterCost, map[string]expression.Type{
	"type": expression.Text, "data": expression.Any, "changes": expression.Any, "touch": expression.Any,
	"consent": expression.Any,
})

// Filter decides by a delivery's body whether it is made. It is safe for concurrent use.
type Filter struct{ program *expression.Program }

// CompileFilter compiles a filter. The error's text suits its author.
func CompileFilter(source string) (*Filter, error) {
	program, err := filterEnvironment.Compile(source, expression.Bool)
	if err != nil {
		return nil, err
	}
	return &Filter{program}, nil
}

// FilterInput returns the variables of filters from a delivery's body. The first filter that uses a member parses it
// for all. A body without changes gives an empty list, and one without a touch or a consent an empty object.
func FilterInput(body []byte) (map[string]any, error) {
	var members struct {
		Type    string         `json:"type"`
		Data    jsontext.Value `json:"data"`
		Changes jsontext.Value `json:"changes"`
		Touch   jsontext.Value `json:"touch"`
		Consent jsontext.Value `json:"consent"`
	}
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, err
	}
	input := map[string]any{
		"type": members.Type, "data": map[string]any{}, "changes": []any{}, "touch": map[string]any{},
		"consent": map[string]any{},
	}
	for name, raw := range map[string]jsontext.Value{
		"data": members.Data, "changes": members.Changes, "touch": members.Touch, "consent": members.Consent,
	} {
		if raw != nil {
			input[name] = expression.Later(raw)
		}
	}
	return input, nil
}

// Matches reports whether a delivery is made, and its cost. The error, for example of a filter that reads a missing
// member, quotes nothing of the body.
func (f *Filter) Matches(input map[string]any) (matches bool, steps uint64, err error) {
	return f.program.Bool(input)
}
