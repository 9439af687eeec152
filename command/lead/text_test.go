package lead

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLength_CountsAfterNFC(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, in string
		want     int
	}{
		{"nothing", "", 0},
		{"ASCII", "Asha", 4},
		{"composed accent", "\u00e9", 1},
		{"decomposed accent", "e\u0301", 1},
		{"emoji outside the basic plane", "😀", 1},
		{"Devanagari, vowel signs count", "नमस्ते", 6},
		{"Hangul from its parts", "\u1112\u1161\u11ab", 1},
	} {
		require.Equal(t, c.want, Length(c.in), c.name)
	}
}

func TestBlank_WhiteSpace(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", " ", "\t\r\n", "\u00a0", "\u2003\u3000"} {
		require.True(t, Blank(s), "%q", s)
	}
	for _, s := range []string{"0", " a ", "\u200b", "\x00"} {
		require.False(t, Blank(s), "%q", s)
	}
}

func TestHasControl_Characters(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"a\x00", "\n", "\x7f", "a\u0080b"} {
		require.True(t, HasControl(s), "%q", s)
	}
	for _, s := range []string{"", "budget", "préférence", "a b", "\u00a0"} {
		require.False(t, HasControl(s), "%q", s)
	}
}
