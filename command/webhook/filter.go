package webhook

import (
	"fmt"

	"github.com/leadlog/leadlog/command/expression"
)

// filterEnvironment is what filters can refer to: members of a delivery's body.
var filterEnvironment = expression.NewEnvironment(map[string]expression.Type{
	"type": expression.Text, "data": expression.Any, "changes": expression.Any, "touch": expression.Any,
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

// FilterInput reads a body for filters. A body without changes has none, and one without a touch has an empty one.
func FilterInput(body []byte) (map[string]any, error) {
	parsed, err := expression.Parse(body)
	if err != nil {
		return nil, err
	}
	object, ok := parsed.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the body is no object")
	}
	input := map[string]any{"type": object["type"], "data": object["data"], "changes": object["changes"], "touch": object["touch"]}
	if input["changes"] == nil {
		input["changes"] = []any{}
	}
	if input["touch"] == nil {
		input["touch"] = map[string]any{}
	}
	return input, nil
}

// Matches reports whether a delivery is made. The error, of a filter that reads what a body does not have, for example, quotes nothing
// of the body.
func (f *Filter) Matches(input map[string]any) (bool, error) {
	matches, _, err := f.program.Bool(input)
	return matches, err
}
