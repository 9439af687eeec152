package contact

import (
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

func TestDigits_EveryScript(t *testing.T) {
	t.Parallel()
	for want, scripts := range []string{
		"0０٠۰०০๐𝟎𝟘𞥐", "1１١۱१১๑𝟏𝟙𞥑", "2２٢۲२২๒𝟐𝟚𞥒",
		"3３٣۳३৩๓𝟑𝟛𞥓",
	} {
		for _, r := range scripts {
			require.Equal(t, '0'+rune(want), ASCIIDigit(r), "%q", r)
		}
	}
	for _, r := range "9९９٩𝟿𞥙" {
		require.Equal(t, '9', ASCIIDigit(r), "%q", r)
	}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if got := ASCIIDigit(r); unicode.IsDigit(r) != (got >= '0' && got <= '9') {
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
