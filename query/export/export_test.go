package export

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestACellIsNoFormula(t *testing.T) {
	t.Parallel()
	for _, cell := range []string{"=1", "+1", "-1", "@x", "\tx", "\rx", "'=1", "''+1", "\nx", "＝1", "＠x", `"=1`} {
		require.Equal(t, "'"+cell, Defused(cell))
	}
	for _, cell := range []string{"", "x", "1", "a=b", "é", "'", "'x", "''", "a; b", "a\nb", "a;b=c", "a\r\n"} {
		require.Equal(t, cell, Defused(cell))
	}
	for cell, want := range map[string]string{
		"x;=cmd|' /c calc'!A0": "x;'=cmd|' /c calc'!A0", "x;'=1;;-1": "x;''=1;;'-1", "x\t+1": "x\t'+1", "x\n=1": "x\n'=1", "x\r\n@a": "x\r\n'@a",
		`x;"=1`: `x;'"=1`, "x;＝1": "x;'＝1", "=1;=2": "'=1;'=2", "\t=1": "'\t'=1",
	} {
		require.Equal(t, want, Defused(cell), "a spreadsheet that cuts at something else than commas")
	}
}
