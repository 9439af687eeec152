package expression_test

import (
	"bytes"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/expression"
)

func TestManual_Examples(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../../deploy/docs/expressions.md")
	require.NoError(t, err)
	manual, _, _ = bytes.Cut(manual, []byte("## Filters of webhook endpoints")) // package webhook evaluates those
	sample := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(manual)
	require.NotNil(t, sample)
	body, err := expression.Parse(sample[1])
	require.NoError(t, err)
	env := expression.NewEnvironment(expression.CostLimit, map[string]expression.Type{"body": expression.Any})
	examples := regexp.MustCompile("(?m)^\\|.*\\| `([^`]+)` \\| `([^`]+)` \\|$").
		FindAllStringSubmatch(string(manual), -1)
	require.Len(t, examples, 17)
	for _, example := range examples {
		program, err := env.Compile(example[1], expression.Any, expression.Text, expression.Number,
			expression.Bool, expression.Object)
		require.NoError(t, err, example[1])
		got, _, err := program.JSON(map[string]any{"body": body})
		require.NoError(t, err, example[1])
		require.JSONEq(t, example[2], string(got), example[1])
	}
	for _, name := range []string{"pick", "first", "words", "only", "omit", "merge", "pairs", "minor", "json", "form", "digits"} {
		require.Contains(t, string(manual), "| `"+name+"(")
	}
}
