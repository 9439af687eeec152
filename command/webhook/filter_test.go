package webhook

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFilter_ExamplesOfManual(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../deploy/docs/expressions.md")
	require.NoError(t, err)
	_, manual, found := strings.Cut(string(raw), "## Filters of webhook endpoints")
	require.True(t, found)
	input, err := FilterInput([]byte(regexp.MustCompile("(?s)```json\n(.*?)```").FindStringSubmatch(manual)[1]))
	require.NoError(t, err)
	examples := regexp.MustCompile("(?m)^\\|.*\\| `([^`]+)` \\| `(true|false)` \\|$").FindAllStringSubmatch(manual, -1)
	require.Len(t, examples, 6)
	for _, example := range examples {
		filter, err := CompileFilter(example[1])
		require.NoError(t, err, example[1])
		matches, _, err := filter.Matches(input)
		require.NoError(t, err, example[1])
		require.Equal(t, example[2] == "true", matches, example[1])
	}
}

func TestFilter_Input(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body, filter string
		matches      bool
		fails        bool
	}{
		"no changes": {
			`{"type":"token.created","data":{}}`, `size(changes) == 0 && !has(touch.source)`, true, false,
		},
		"missing member": {`{"type":"lead.created","data":{}}`, `data.status == 'won'`, false, true},
		"no bool":        {`{"type":"lead.created","data":{"hot":"yes"}}`, `data.hot`, false, true},
		"compares numbers": {
			`{"type":"lead.created","data":{"opportunityValue":7}}`, `data.opportunityValue > 6.5`, true, false,
		},
	} {
		filter, err := CompileFilter(c.filter)
		require.NoError(t, err, name)
		input, err := FilterInput([]byte(c.body))
		require.NoError(t, err, name)
		matches, _, err := filter.Matches(input)
		require.Equal(t, c.fails, err != nil, name)
		require.Equal(t, c.matches, matches, name)
	}
	for _, body := range []string{"", "[]", "7"} {
		_, err := FilterInput([]byte(body))
		require.Error(t, err, body)
	}
}

// One fan-out evaluates the filters of all accounts, so their cost limit is much lower than that of mappings.
func TestFilter_CostLimit(t *testing.T) {
	t.Parallel()
	_, err := CompileFilter(`changes.exists(a, changes.exists(b, a.field != b.field))`)
	require.ErrorContains(t, err, "could cost more than 10000 steps")
	filter, err := CompileFilter(`data.metadata.m.matches("(a?){40}c")`)
	require.NoError(t, err)
	input, err := FilterInput(
		[]byte(`{"type":"lead.created","data":{"metadata":{"m":"` + strings.Repeat("a", 30_000) + `"}}}`),
	)
	require.NoError(t, err)
	_, _, err = filter.Matches(input)
	require.ErrorContains(t, err, "costs too much")
	_, err = CompileFilter(`data.metadata.all(k, omit(data.metadata, ["a"]).all(j, j != k))`)
	require.ErrorContains(t, err, "could cost more than 10000 steps")
	for _, typical := range []string{
		`changes.exists(c, c.field == 'status' && c.new in ['won', 'lost'] && c.old != 'contacted')`,
		`data.customFields.exists(k, k.startsWith('x') && string(data.customFields[k]).contains('gold'))`,
		`type.startsWith('lead.') && has(data.email) && data.email.matches('@(example|example2)\\.(com|org)$')`,
	} {
		_, err := CompileFilter(typical)
		require.NoError(t, err, typical)
	}
}
