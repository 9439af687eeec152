package contact

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseIgnored(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"99999 99999": "+919999999999", "+91-9999999999": "+919999999999", "0000000000": "0000000000",
		"00000 00000": "0000000000", " Test@Test.com ": "test@test.com", "*@Mailinator.com": "*@mailinator.com",
		"noreply@*": "noreply@*", "NoReply@*": "noreply@*", "*@münchen.example": "*@xn--mnchen-3ya.example",
		"+5215512345678": "+525512345678", "": "", "*": "", "@": "", "*@*": "", "*@": "", "@*": "", "a@b@*": "",
		"*@x@y.example": "", "x*@y.example": "x*@y.example", "call me": "", "12": "",
	} {
		got, err := ParseIgnored(raw, "IN")
		require.Equal(t, want, got, raw)
		if want == "" {
			require.ErrorIs(t, err, errIgnored, raw)
			continue
		}
		require.NoError(t, err, raw)
		again, err := ParseIgnored(got, "US")
		require.NoError(t, err, raw)
		require.Equal(t, got, again, "a parsed entry stays, in any region")
	}
}

func TestIgnored_Has(t *testing.T) {
	t.Parallel()
	list := Ignored{"+919999999999", "0000000000", "+525512345678", "test@test.com", "*@mailinator.com", "noreply@*"}
	for phone, want := range map[string]bool{
		"+919999999999": true, "+5215512345678": true, "+525512345678": true, "+919876543210": false, "": false,
		"0000000000": true,
	} {
		require.Equal(t, want, list.HasPhone(phone), phone)
	}
	for raw, want := range map[string]bool{
		"0000000000": true, "000-000-0000": true, "000000000": false, "x": false, "": false,
	} {
		require.Equal(t, want, list.HasDigits(raw), raw)
	}
	for email, want := range map[string]bool{
		"test@test.com": true, "a@mailinator.com": true, "noreply@shop.example": true, "a@x.mailinator.com": false,
		"a@notmailinator.com": false, "xnoreply@shop.example": false, "asha@example.com": false, "": false,
	} {
		require.Equal(t, want, list.HasEmail(email), email)
	}
	require.False(t, Ignored(nil).HasEmail("test@test.com"))
	require.False(t, Ignored(nil).HasPhone("+919999999999"))
}

func FuzzParseIgnored(f *testing.F) {
	for _, seed := range []string{
		"99999 99999", "*@mailinator.com", "noreply@*", "test@test.com", "0000000000", "*@*", "@",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		entry, err := ParseIgnored(raw, "IN")
		if err != nil {
			require.Empty(t, entry)
			return
		}
		again, err := ParseIgnored(entry, "IN")
		require.NoError(t, err)
		require.Equal(t, entry, again)
	})
}
