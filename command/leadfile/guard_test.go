package leadfile_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/leadfile"
)

func TestDefused_EscapesFormulas(t *testing.T) {
	t.Parallel()
	for _, cell := range []string{"=1", "+1", "-1", "@x", "\tx", "\rx", "'=1", "''+1", "\nx", "＝1", "＠x", `"=1`,
		"\ufeff=1", "\u200b=1", "\u00ad=1", "\u202e=1", "\u200b'\u2060=1", "\x00=1", "\ufe0f=1", "\u3164+1"} {
		require.Equal(t, "'"+cell, leadfile.Defused(cell))
	}
	for _, cell := range []string{"", "x", "1", "a=b", "é", "'", "'x", "''", "a; b", "a\nb", "a;b=c", "a\r\n"} {
		require.Equal(t, cell, leadfile.Defused(cell))
	}
	for cell, want := range map[string]string{
		"x;=cmd|' /c calc'!A0": "x;'=cmd|' /c calc'!A0", "x;'=1;;-1": "x;''=1;;'-1", "x\t+1": "x\t'+1",
		"x\n=1": "x\n'=1", "x\r\n@a": "x\r\n'@a", `x;"=1`: `x;'"=1`, "x;\u200b=1": "x;'\u200b=1", "x\n\n=1": "x\n\n'=1",
		"x;\u00ad\n=1": "x;\u00ad\n'=1", "x;＝1": "x;'＝1", "=1;=2": "'=1;'=2", "\t=1": "'\t'=1",
	} {
		require.Equal(t, want, leadfile.Defused(cell), "a spreadsheet may split at another delimiter than the comma")
	}
}

// An import reads exported texts unchanged.
func TestDefused_ImportRestoresText(t *testing.T) {
	t.Parallel()
	columns, err := leadfile.MapColumns([]string{"Notes"}, leadfile.Options{})
	require.NoError(t, err)
	part := rapid.SampledFrom([]string{
		"=", "+", "＝", "@", "'", `"`, ";", "\n", "\r", "\t", "\ufeff", "\u200b", "\u00ad", "\u202e", "\u3164", "\x1f",
		"x", " ",
	})
	rapid.Check(t, func(t *rapid.T) {
		text := "x" + strings.Join(rapid.SliceOf(part).Draw(t, "text"), "")
		text = text[rapid.IntRange(0, 1).Draw(t, "from"):]
		if strings.TrimSpace(text) == "" {
			return
		}
		record, err := columns.Record([]string{leadfile.Defused(text)}, lead.Rules{})
		require.NoError(t, err)
		var read map[string]string
		require.NoError(t, json.Unmarshal(record.Body["customFields"], &read))
		require.Equal(t, text, read["Notes"])
	})
}
