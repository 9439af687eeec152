package eventstore_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

func TestConflict_WrappedError(t *testing.T) {
	t.Parallel()
	conflict := &eventstore.ConflictError{Stream: "lead-1", Expected: eventstore.NoStream, Actual: eventstore.At(2)}
	require.Same(t, conflict, eventstore.Conflict(conflict))
	require.Same(t, conflict,
		eventstore.Conflict(fmt.Errorf("capture: %w", errors.Join(errors.New("other"), conflict))))
	require.Nil(t, eventstore.Conflict(errors.New("other")))
	require.Nil(t, eventstore.Conflict(nil))
}

func TestConflictError_Message(t *testing.T) {
	t.Parallel()
	for message, conflict := range map[string]eventstore.ConflictError{
		"stream lead-1 is at revision 2, expected no stream": {
			Stream: "lead-1", Expected: eventstore.NoStream, Actual: eventstore.At(2),
		},
		"stream lead-1 is at no stream, expected revision 0": {
			Stream: "lead-1", Expected: eventstore.At(0), Actual: eventstore.NoStream,
		},
		"stream token-1 is at revision 12, expected revision 3": {
			Stream: "token-1", Expected: eventstore.At(3), Actual: eventstore.At(12),
		},
	} {
		require.EqualError(t, &conflict, message)
	}
	require.Equal(t, "any", eventstore.Any.String())
}

func TestFilter_Matches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		filter eventstore.Filter
		want   bool // of lead-1, lead.created.v1
	}{
		{"the empty filter selects all", eventstore.Filter{}, true},
		{"a prefix", eventstore.Filter{StreamPrefixes: []string{"lead-"}}, true},
		{"one of several prefixes", eventstore.Filter{StreamPrefixes: []string{"token-", "lead-"}}, true},
		{"another prefix", eventstore.Filter{StreamPrefixes: []string{"token-"}}, false},
		{"text inside a name is no prefix", eventstore.Filter{StreamPrefixes: []string{"ead-"}}, false},
		{"a type", eventstore.Filter{Types: []string{"lead.created.v1"}}, true},
		{"a prefix of a type is another type", eventstore.Filter{Types: []string{"lead.created"}}, false},
		{"both", eventstore.Filter{StreamPrefixes: []string{"lead-"}, Types: []string{"x", "lead.created.v1"}}, true},
		{"prefix without type", eventstore.Filter{StreamPrefixes: []string{"lead-"}, Types: []string{"x"}}, false},
		{
			"type without prefix", eventstore.Filter{StreamPrefixes: []string{"x"}, Types: []string{"lead.created.v1"}},
			false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, c.filter.Matches("lead-1", "lead.created.v1"))
		})
	}
}
