package lead

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
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

func TestCleanName_Trims(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"  Asha Rao ":              "Asha Rao",
		"Asha\tRao\n":              "Asha Rao",
		"\x07 Asha\x7fRao\u0085":   "Asha Rao",
		"Asha  Rao":                "Asha  Rao",
		"\u00a0Asha\u3000":         "Asha",
		"<b>Asha</b> & O'Neil":     "<b>Asha</b> & O'Neil",
		"\r\n":                     "",
		"José":                     "José",
		"می\u200cخواهم":            "می\u200cخواهم",
		"Asha\r\nX-Header: forged": "Asha  X-Header: forged",
	} {
		require.Equal(t, want, CleanName(in), "%q", in)
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

func TestCleanName_Idempotent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := CleanName(rapid.String().Draw(t, "raw"))
		require.Equal(t, name, CleanName(name))
		require.False(t, HasControl(name))
		require.Equal(t, strings.TrimSpace(name), name)
	})
}

func TestDigits_EveryScript(t *testing.T) {
	t.Parallel()
	for want, scripts := range []string{"0０٠۰०০๐𝟎𝟘𞥐", "1１١۱१১๑𝟏𝟙𞥑", "2２٢۲२২๒𝟐𝟚𞥒", "3３٣۳३৩๓𝟑𝟛𞥓"} {
		for _, r := range scripts {
			require.Equal(t, '0'+rune(want), asciiDigit(r), "%q", r)
		}
	}
	for _, r := range "9९９٩𝟿𞥙" {
		require.Equal(t, '9', asciiDigit(r), "%q", r)
	}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if got := asciiDigit(r); unicode.IsDigit(r) != (got >= '0' && got <= '9') {
			require.Failf(t, "not a digit, or not turned into one", "%U became %q", r, got)
		}
	}
	for _, table := range unicode.Nd.R16 {
		require.Equal(t, uint16(1), table.Stride)
		require.Zero(t, (table.Hi-table.Lo+1)%10)
	}
	for _, table := range unicode.Nd.R32 {
		require.Equal(t, uint32(1), table.Stride)
		require.Zero(t, (table.Hi-table.Lo+1)%10)
	}
}
