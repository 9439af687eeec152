package export

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestACellIsNoFormula(t *testing.T) {
	t.Parallel()
	for _, cell := range []string{"=1", "+1", "-1", "@x", "\tx", "\rx", "'=1", "''+1"} {
		require.Equal(t, "'"+cell, Defused(cell))
	}
	for _, cell := range []string{"", "x", "1", "a=b", "é", "'", "'x", "''"} {
		require.Equal(t, cell, Defused(cell))
	}
}
