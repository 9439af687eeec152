package lead

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParseAmount_Forms(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"0": "0", "0.00": "0", "000": "0", "5": "5", "007": "7", "120000.50": "120000.5", "0.0001": "0.0001",
		"1.50000":             "1.5",
		"999999999999999":     "999999999999999",
		"99999999999.9999":    "99999999999.9999",
		"00000000000000000.5": "0.5",

		// grouping
		"1,234": "1234", "1.234": "1.234", "12,34,567": "1234567", "1,20,000.50": "120000.5", "1,200.50": "1200.5",
		"1,234,567": "1234567", "123,456": "123456", "1.234.567": "1234567", "1.234,56": "1234.56",
		"1.234.567,8": "1234567.8", "1 234,56": "1234.56", "1 234.56": "1234.56", "1 234 567": "1234567",
		"1'234": "1234", "1'234'567.89": "1234567.89", "1\u00a0234,56": "1234.56", "1\u202f234,56": "1234.56",
		"1\u2009234": "1234", "1’234.50": "1234.5",
		"1,234.5678": "1234.5678",

		// the decimal comma
		"1,23": "1.23", "12,50": "12.5", "0,5": "0.5", "1500,5": "1500.5", "1 234,567": "1234.567",

		// marks of currency
		"₹1,20,000": "120000", "₹ 1,20,000.50": "120000.5", "Rs. 500": "500", "Rs.500": "500", "rs 500": "500",
		"RS500": "500", "Re 1": "1", "INR 1,200": "1200", "inr1200": "1200", "1200 INR": "1200", "500 Rs": "500",
		"500/-": "500", "Rs. 1,200/-": "1200", "₨500": "500", "$1,200.50": "1200.5", "US$ 1,200": "1200", "A$5": "5",
		"CA$5": "5", "R$ 1.234,56": "1234.56", "USD $5": "5", "$1,200 USD": "1200", "€12,50": "12.5",
		"12,50 €": "12.5", "1.234,56\u00a0€": "1234.56", "EUR 5": "5",
		"£5": "5", "CHF 1'234.50": "1234.5", "kr 500": "500", "500 zł": "500", "¥5": "5", "￥５": "5",
		"Rp 1.500.000": "1500000", "AED 5": "5", "R500": "500", "\u200f5 ₪": "5", "  5  ": "5",

		// one dot and a currency that is grouped by dots
		"1.500 €": "1500", "€ 1.500": "1500", "€1.500": "1500", "1.500\u00a0€": "1500", "12.500 EUR": "12500",
		"EUR 12.500": "12500", "123.456 eur": "123456", "R$ 1.500": "1500", "R$1.500": "1500", "R $ 1.500": "1500",
		"BRL 1.500": "1500", "Rp 1.500": "1500", "Rp. 1.500": "1500", "IDR 1.500": "1500", "₫1.500": "1500",
		"1.500 ₫": "1500", "kr 1.500": "1500", "1.500 kr.": "1500", "1.500 DKK": "1500", "₺1.500": "1500",
		"1.500 zł": "1500", "0.500 €": "0.5", "1234.500 €": "1234.5", "012.500 €": "12.5", "1.50 €": "1.5",
		"1.5000 €": "1.5", "1.500,25 €": "1500.25", "12,500 €": "12500", "$1.500": "1.5", "US$ 1.500": "1.5",
		"£1.500": "1.5", "₹1.500": "1.5", "Rs. 1.500": "1.5", "¥1.500": "1.5", "1.500": "1.5", "1.500 USD": "1.5",
		"CHF 1.500": "1.5", "1.500 KWD": "1.5", "€ ١٫٥٠٠": "1.5", "\ufffc1.500\ufe0f €": "1500",
		"Rs. 50,000/-": "50000",
		"50,000/-":     "50000",

		// digits of other scripts
		"₹१,२०,०००": "120000", "١٬٢٣٤٫٥": "1234.5", "１２３": "123",
	} {
		got, err := ParseAmount(raw)
		require.NoError(t, err, "%q", raw)
		require.Equal(t, want, got.String(), "%q", raw)
	}
}

func TestParseAmount_Refuses(t *testing.T) {
	t.Parallel()
	for message, raws := range map[string][]string{
		"is not a number such as 1250.50": {
			"", " ", "NaN", "Infinity", "inf", "1e5", "1E5", "0x10", "0b1", "1_000", "10k", "10K", "5 lakh", "10L",
			"1.5 Cr", "5 lac", "5 LAK", "5L", "2 Cr", "5 crore", "1M", "1.5m", "5 mil", "10 bn", "(500)", "($500)",
			"1,2,3", "1.2.3", "1,,234", "1..5", "1,234,56", "123,45,678", "1,234,56,789", "12,3456",
			"1,2345", "1234,567", "0,234", "0,123,456", "01,234", "1,23.45", "1,234.5.6", "1.234,5,6", "1.20.000",
			"1,234 567", "1  234", "1 23", "12 34 567", "1'23", "1 234'567", "1'234 567", "1.234 567", "5.", ".5", ",5",
			"5,", "Rs", "₹", "₹₹5", "INR INR 5", "+5", "5%", "5 for 2", "5-10",
			"5 - 10", "500-", "10²", "½", "5 only", "XYZ 5", "k$5", "5 k$", "five", "null", "true", "1\n2", "5\x00",
			"\xff5", "5;5", "RS. . 5", "1/-5", strings.Repeat("1", 101), strings.Repeat(" ", 1<<20) + "5",
		},
		"must not be negative": {
			"-1", "-0", "- 5", "−5", "-₹500", "₹-500", "₹ -1,234.50", "-1.234,56 €",
		},
		"must have at most 15 digits": {
			"1000000000000000", "9999999999999999", "999999999999.9999", "1,00,00,00,00,00,00,00,000",
		},
		"must have at most 4 decimals": {
			"0.00001", "1.23456", "1,234.56789", "₹0.12345",
		},
	} {
		for _, raw := range raws {
			got, err := ParseAmount(raw)
			require.EqualError(t, err, message, "%q gave %s", raw, got)
			require.Zero(t, got)
		}
	}
}

func TestAmountFromNumber_JSON(t *testing.T) {
	t.Parallel()
	for literal, want := range map[string]string{
		"0": "0", "-0": "0", "-0.0": "0", "0e5": "0", "-0e-5": "0", "5": "5", "120000.50": "120000.5", "1e3": "1000",
		"1E+3": "1000", "1.5e3": "1500", "15e-1": "1.5", "1e-4": "0.0001", "12345e-4": "1.2345", "0.00005e1": "0.0005",
		"1e14": "100000000000000", "1000e-3": "1", "1.50000": "1.5",
		"100000000000000000e-10": "10000000", "0.0000000000000000001e19": "1", "1e003": "1000",
		"0." + strings.Repeat("0", 90) + "1e91": "1", "1." + strings.Repeat("0", 98): "1",
		"0e201": "0", "0.0e99999999999999999999": "0", "-0e-9223372036854775808": "0",
	} {
		got, err := AmountFromNumber(literal)
		require.NoError(t, err, literal)
		require.Equal(t, want, got.String(), literal)
	}
	for message, literals := range map[string][]string{
		"is not a number such as 1250.50": {
			"", "-", "+5", "01", "1.", ".5", "1e", "1e+", "1e+-5", "1e-+5", "1e5.0", "e5", "0x10", "NaN", " 5", "5 ",
			`"5"`, "null", "1,234", "--5", "1e5e5", "٥",
		},
		"must not be negative": {"-1", "-0.5", "-1e3", "-1.23456", "-1e15"},
		"must have at most 15 digits": {
			"1e15", "1e300", "1e10000000", "1e9223372036854775807", "1e99999999999999999999", "9999999999999999",
			"1." + strings.Repeat("0", 99), strings.Repeat("1", 1<<20),
		},
		"must have at most 4 decimals": {
			"0.00001", "1e-5", "1e-10000000", "1e-9223372036854775808", "1e-99999999999999999999", "1.23456",
		},
	} {
		for _, literal := range literals {
			got, err := AmountFromNumber(literal)
			require.EqualError(t, err, message, "%.40q gave %s", literal, got)
			require.Zero(t, got)
		}
	}
}

func TestAmount_Equal(t *testing.T) {
	t.Parallel()
	written, err := ParseAmount("Rs. 1,500.00")
	require.NoError(t, err)
	number, err := AmountFromNumber("1.5e3")
	require.NoError(t, err)
	require.True(t, written == number)
	zero, err := ParseAmount("0.00")
	require.NoError(t, err)
	require.True(t, zero == Amount{})
}

func requireAmountLaws(t require.TestingT, raw string) {
	written, err := ParseAmount(raw)
	requireCanonical(t, raw, written, err)
	literal, err := AmountFromNumber(raw)
	requireCanonical(t, raw, literal, err)
}

func requireCanonical(t require.TestingT, raw string, got Amount, err error) {
	if err != nil {
		require.Zero(t, got, "%q", raw)
		return
	}
	s := got.String()
	require.Regexp(t, regexp.MustCompile(`^(0|[1-9][0-9]{0,14})(\.[0-9]{0,3}[1-9])?$`), s, "%q", raw)
	require.LessOrEqual(t, len(strings.Replace(strings.TrimPrefix(s, "0."), ".", "", 1)), 15, "%q", raw)
	again, err := ParseAmount(s)
	require.NoError(t, err, "%q", raw)
	require.Equal(t, got, again, "%q", raw)
	again, err = AmountFromNumber(s)
	require.NoError(t, err, "%q", raw)
	require.Equal(t, got, again, "%q", raw)
}

func TestParseAmount_Grouping(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		plain := rapid.StringMatching(`[1-9][0-9]{3,10}`).Draw(t, "plain")
		cents := rapid.StringMatching(`[0-9]{3}[1-9]`).Draw(t, "decimals")
		want, err := AmountFromNumber(plain + "." + cents)
		require.NoError(t, err)
		for _, written := range []string{
			plain + "." + cents,
			grouped(plain, ",", 3) + "." + cents,
			grouped(plain, ",", 2) + "." + cents,
			"€ " + grouped(plain, " ", 3) + "," + cents,
			grouped(plain, "'", 3) + "." + cents + " CHF",
		} {
			got, err := ParseAmount(written)
			require.NoError(t, err, written)
			require.Equal(t, want, got, written)
		}
	})
}

// grouped sets a separator before the last three digits and then every size digits.
func grouped(digits, separator string, size int) string {
	if len(digits) <= 3 {
		return digits
	}
	head, tail := digits[:len(digits)-3], digits[len(digits)-3:]
	for len(head) > size {
		tail = head[len(head)-size:] + separator + tail
		head = head[:len(head)-size]
	}
	return head + separator + tail
}

func TestParseAmount_Idempotent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		requireAmountLaws(t, rapid.OneOf(
			rapid.StringMatching(
				`(₹|Rs\.?|US\$|R\$|INR|EUR)? ?-?[0-9]{1,4}([,. '][0-9]{1,3}){0,4}([.,][0-9]{1,5})?( ?(INR|€|/-))?`,
			),
			rapid.StringMatching(`-?(0|[1-9][0-9]{0,16})(\.[0-9]{1,8})?([eE][+-]?[0-9]{1,4})?`),
			rapid.String(),
		).Draw(t, "raw"))
	})
}

func FuzzParseAmount(f *testing.F) {
	for _, raw := range []string{
		"0", "-0", "1,20,000.50", "1.234,56", "1 234,56", "1'234", "₹ 500/-", "Rs.500", "US$5", "1e5", "1E-4",
		"1e10000000", "(500)", "1,2,3", "10k", "१,२०,०००", "١٬٢٣٤٫٥", "\u200f5 ₪", "\xff5",
		"0.00001e1", "$-5",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) { requireAmountLaws(t, raw) })
}
