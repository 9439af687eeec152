package lead

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/leadlog/leadlog/command/contact"
)

// ParseAmount reads an amount as people write it: with a currency symbol, code
// or local mark before or after it, thousands grouped the Western, the Indian or
// the continental way, digits of any script. A blank string is an error here;
// where it means "none", the caller looks first.
//
// One separator can mean two things. A single dot is the decimal point ("1.234"
// is 1.234), unless the currency is one whose sums are grouped by dots: then it
// groups thousands when three digits follow ("1.500 €" is 1500). A single comma groups thousands when three digits
// follow ("1,234" is
// 1234) and is a decimal comma when one or two do ("12,50" is 12.5, "1,23" is
// 1.23), since no way of grouping ends in so few. Whatever fits no single reading
// ("1,2,3", "0,234", "1234,567") is refused: a wrong sum is worse than none.
//
// The error's text suits the caller and never holds the value.
func ParseAmount(raw string) (Amount, error) {
	if len(raw) > maxAmountInput {
		return Amount{}, errAmount
	}
	dots := !strings.ContainsRune(raw, arabicDecimal)
	if !contact.IsASCII(raw) {
		raw = strings.Map(plainAmountRune, raw)
	}
	body, marks, negative, ok := cutMarks(strings.TrimSpace(raw))
	if !ok {
		return Amount{}, errAmount
	}
	whole, fraction, ok := cutFraction(body, dots && (groupsByDots(marks[0]) || groupsByDots(marks[1])))
	if !ok {
		return Amount{}, errAmount
	}
	if negative {
		return Amount{}, errAmountNegative
	}
	return newAmount(whole, fraction, 0)
}

// plainAmountRune brings digits, spaces and separators of other scripts and of
// good typography to ASCII. There is no Unicode normalization here: it would
// make 10² a hundred and two.
func plainAmountRune(r rune) rune {
	switch {
	case contact.Invisible(r): // such as direction marks of right-to-left formats
		return -1
	case unicode.Is(unicode.Zs, r):
		return ' '
	}
	switch r {
	case '\u2019', '\u066C': // Swiss apostrophe, Arabic thousands separator
		return '\''
	case arabicDecimal:
		return '.'
	case '\u2212': // minus sign
		return '-'
	}
	return contact.ASCIIDigit(r)
}

const arabicDecimal = '\u066B' // the decimal separator of Arabic

// cutMarks returns what is between the first and the last digit and the marks
// around it, if these are marks of currency or a minus sign. In India "/-" ends
// a sum.
func cutMarks(s string) (body string, marks [2]string, negative, ok bool) {
	first := strings.IndexAny(s, "0123456789")
	if first < 0 {
		return "", marks, false, false
	}
	last := strings.LastIndexAny(s, "0123456789")
	before, after := strings.TrimSpace(s[:first]), strings.TrimSpace(s[last+1:])
	after = strings.TrimSpace(strings.TrimPrefix(after, "/-"))
	if unsigned, found := strings.CutPrefix(before, "-"); found {
		before, negative = strings.TrimSpace(unsigned), true
	} else if unsigned, found := strings.CutSuffix(before, "-"); found {
		before, negative = strings.TrimSpace(unsigned), true
	}
	return s[first : last+1], [2]string{before, after}, negative, isMark(before) && isMark(after)
}

const (
	// Active codes of ISO 4217 for money. LAK is left out: after a number it is
	// more often an Indian lakh (100,000) misspelt than a Lao kip.
	currencyCodes = " AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN " +
		"BZD CAD CDF CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF " +
		"GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LBP LKR LRD " +
		"LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP " +
		"PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND " +
		"TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VES VND VUV WST XAF XCD XOF XPF YER ZAR ZMW ZWG "

	// Marks in letters. K, L, M, Cr and the like are not among them, nor may
	// they be: after a number they multiply it.
	localMarks = " RS RS. RE RE. R RM RP RP. TK TK. DH DH. DHS DHS. KSH KR KR. FR FR. ZŁ KČ "

	// Letters that say whose dollar (or real) a $ is.
	dollarPrefixes = " US U A AU C CA NZ HK S SG NT MX R "

	// Marks of currencies whose sums have a comma before the decimals and are
	// grouped by dots, as the Unicode CLDR has it for the languages of their
	// countries, or by spaces where dots are common too. None has three
	// decimals.
	dotGrouping = " EUR € BRL R$ IDR RP RP. VND ₫ DKK NOK SEK ISK KR KR. TRY ₺ ARS CLP COP UYU PYG ₲ CRC " +
		"₡ VES BOB" +
		" RON MDL RSD BAM MKD AZN ₼ PLN ZŁ CZK KČ HUF "
)

// groupsByDots reports whether a mark is one of a currency whose sums are
// grouped by dots. The dollar sign alone is not: most who write it are not.
func groupsByDots(mark string) bool {
	mark = strings.ReplaceAll(mark, " ", "")
	return mark != "" && listed(dotGrouping, mark)
}

// isMark reports whether s is empty, a currency symbol, an ISO 4217 code or a
// local mark, or a symbol after the code or letters of its country.
func isMark(s string) bool {
	if s == "" {
		return true
	}
	symbol, size := utf8.DecodeLastRuneInString(s)
	if !unicode.Is(unicode.Sc, symbol) {
		return listed(currencyCodes, s) || listed(localMarks, s)
	}
	letters := strings.TrimSpace(s[:len(s)-size])
	return letters == "" || listed(currencyCodes, letters) ||
		symbol == '$' && listed(dollarPrefixes, letters)
}

func listed(list, mark string) bool {
	return !strings.Contains(mark, " ") && strings.Contains(list, " "+strings.ToUpper(mark)+" ")
}

// cutFraction splits digits and separators, which begin and end with a digit,
// into the digits on both sides of the decimal mark. Dots says that one dot may
// group thousands.
func cutFraction(s string, dots bool) (whole, fraction string, ok bool) {
	group, decimal, ok := separators(s, dots)
	if !ok {
		return "", "", false
	}
	if decimal != "" {
		s, fraction, _ = strings.Cut(s, decimal)
		if !contact.IsDigits(fraction) {
			return "", "", false
		}
	}
	if group != "" {
		s, ok = ungroup(s, group)
	}
	return s, fraction, ok && contact.IsDigits(s)
}

// separators returns which separator groups thousands in s and which one marks
// decimals; either may be missing.
func separators(s string, byDots bool) (group, decimal string, ok bool) {
	dots, commas := strings.Count(s, "."), strings.Count(s, ",")
	spaces, apostrophes := strings.Count(s, " "), strings.Count(s, "'")
	comma := strings.LastIndex(s, ",")
	switch {
	case spaces > 0 && apostrophes > 0:
		return "", "", false
	case spaces > 0:
		group = " "
	case apostrophes > 0:
		group = "'"
	case dots > 0 && commas > 0 && comma < strings.LastIndex(s, "."):
		return ",", ".", dots == 1
	case dots > 0 && commas > 0:
		return ".", ",", commas == 1
	case commas > 1, commas == 1 && len(s)-comma-1 == 3:
		return ",", "", true
	case commas == 1:
		return "", ",", len(s)-comma-1 <= 2
	case dots > 1, dots == 1 && byDots && isThousand(s):
		return ".", "", true
	}
	switch {
	case dots+commas > 1:
		return "", "", false
	case dots == 1:
		decimal = "."
	case commas == 1:
		decimal = ","
	}
	return group, decimal, true
}

// isThousand reports whether a dot in s has one to three digits before it, not
// with a 0 in front, and three behind.
func isThousand(s string) bool {
	dot := strings.IndexByte(s, '.')
	return dot >= 1 && dot <= 3 && s[0] != '0' && len(s)-dot-1 == 3
}

// ungroup joins groups of thousands: 1,234,567 with any separator, and 12,34,567
// with commas, the Indian way.
func ungroup(s, separator string) (string, bool) {
	groups := strings.Split(s, separator)
	lead, last := groups[0], len(groups)-1
	if last == 0 || lead == "" || lead[0] == '0' || len(groups[last]) != 3 {
		return "", false
	}
	western, indian := len(lead) <= 3, len(lead) <= 2 && separator == ","
	for _, g := range groups[1:last] {
		western = western && len(g) == 3
		indian = indian && len(g) == 2
	}
	return strings.Join(groups, ""), western || indian
}
