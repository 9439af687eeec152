package contact

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlaceholder_Texts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "-", "--", "N/A", "n/a", "#N/A", "NA", "none", "-None-", "NULL", "null", "nil", "TBD", "t.b.d.",
		"[not provided]", "(blank)", "undefined", "{{phone}}", "k.A.", "#REF!", "<test lead: dummy data for full_name>",
		"Not Available", "\u200b",
	} {
		require.True(t, Placeholder(text), "%q", text)
	}
	for _, text := range []string{"Asha", "0", "new", "No", "9876543210", "none@example.com", "a", "Nonesuch"} {
		require.False(t, Placeholder(text), "%q", text)
	}
}

func TestPlaceholderPhone_Texts(t *testing.T) {
	t.Parallel()
	for _, phone := range []string{
		"0000000000", "9999999999", "+919999999999", "99999 99999", "1234567890", "+911234567890", "9191919191",
		"+919191919191", "+1 111-111-1111",
		"0091 8888888888", "+15555555555",
	} {
		require.True(t, PlaceholderPhone(phone), phone)
	}
	for _, phone := range []string{
		"", "+919876543210", "9999999998", "12345678901", "9191919192", "000", "+12025550123", "+4915123456789",
		"9800000000", "+919800000000",
	} {
		require.False(t, PlaceholderPhone(phone), phone)
	}
}

func TestLooksLike_Texts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"+919876543210", "98765 43210", "098765-43210", "p:+919876543210", "022 2345 6000", "+49 30 1234567",
	} {
		require.True(t, LooksLikePhone(text, "IN"), "%q", text)
	}
	for _, text := range []string{
		"", "asha@example.com", "2026-09-12", "12.09.2026", "20260912", "2026-09-12T15:05:13+05:30", "12/09/2026 10:00",
		"1250000.50", "560001", "120212345678901234", "Asha", "true",
		"61.12.123.145", " 98.76.51.23 ", "2001:db8::98:7651:2345",
	} {
		require.False(t, LooksLikePhone(text, "IN"), "%q", text)
		require.False(t, LooksLikePhone(text, "DE"), "%q", text)
	}
	require.True(t, LooksLikeEmail(" Asha@Example.com"))
	require.False(t, LooksLikeEmail("asha at example.com"))
	require.False(t, LooksLikeEmail("@asha"))
	require.True(t, PlaceholderEmail("test@meta.com"))
	require.False(t, PlaceholderEmail("asha@example.com"))
}
