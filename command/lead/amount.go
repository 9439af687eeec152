package lead

import (
	"errors"
	"strconv"
	"strings"

	"github.com/leadlog/leadlog/command/contact"
)

const (
	// maxAmountInput is the maximum size of input, in bytes.
	maxAmountInput = 100

	// maxAmountDigits keeps every amount exact in a reader's float64, which
	// carries 15 decimal digits. They are counted on both sides of the point.
	maxAmountDigits = 15

	// maxAmountDecimals suits every currency: ISO 4217 has none with more.
	maxAmountDecimals = 4

	// maxExponent bounds an exponent before anything is computed with it. With
	// at most 100 bytes of mantissa, none beyond it yields a valid amount, unless
	// the mantissa is 0.
	maxExponent = 200
)

var (
	errAmount         = errors.New("is not a number such as 1250.50")
	errAmountNegative = errors.New("must not be negative")
	errAmountDigits   = errors.New("must have at most 15 digits")
	errAmountDecimals = errors.New("must have at most 4 decimals")
)

// Amount is a sum of money without its currency: an exact decimal, not negative,
// of at most 15 digits and at most 4 decimals. Amounts are equal (==) when their
// values are, and the zero Amount is the amount 0.
type Amount struct {
	canonical string // digits without needless zeros; "" for 0
}

// String returns the amount in plain digits, such as "120000.5".
func (a Amount) String() string {
	if a.canonical == "" {
		return "0"
	}
	return a.canonical
}

// AmountFromNumber reads the literal of a JSON number, exponent and all. The
// bounds apply to the value, not to its spelling: 1.50000 and 15e-1 are 1.5,
// and -0 is 0. The error's text suits the caller and never holds the literal.
func AmountFromNumber(literal string) (Amount, error) {
	if len(literal) > maxAmountInput {
		return Amount{}, errAmountDigits
	}
	rest, negative := strings.CutPrefix(literal, "-")
	mantissa, exponent, err := cutExponent(rest)
	if err != nil {
		return Amount{}, err
	}
	whole, fraction, pointed := strings.Cut(mantissa, ".")
	if !contact.IsDigits(whole) || whole[0] == '0' && len(whole) > 1 || pointed && !contact.IsDigits(fraction) {
		return Amount{}, errAmount
	}
	amount, err := newAmount(whole, fraction, exponent)
	if negative && (err != nil || amount != Amount{}) {
		return Amount{}, errAmountNegative
	}
	return amount, err
}

func cutExponent(s string) (mantissa string, exponent int, err error) {
	at := strings.IndexAny(s, "eE")
	if at < 0 {
		return s, 0, nil
	}
	unsigned := strings.TrimPrefix(s[at+1:], "-")
	if len(unsigned) == len(s[at+1:]) {
		unsigned = strings.TrimPrefix(unsigned, "+")
	}
	if !contact.IsDigits(unsigned) {
		return "", 0, errAmount
	}
	exponent, err = strconv.Atoi(s[at+1:])
	switch {
	case strings.Trim(s[:at], "0.") == "": // 0 stays 0 with any exponent
		return s[:at], 0, nil
	case err == nil && -maxExponent <= exponent && exponent <= maxExponent:
		return s[:at], exponent, nil
	case s[at+1] == '-':
		return "", 0, errAmountDecimals
	default:
		return "", 0, errAmountDigits
	}
}

// newAmount returns the amount whole.fraction × 10^exponent of strings of digits.
// It checks the bounds before it writes out the zeros of the exponent.
func newAmount(whole, fraction string, exponent int) (Amount, error) {
	all := whole + fraction
	significant := strings.TrimLeft(all, "0")
	point := len(whole) + exponent - (len(all) - len(significant))
	significant = strings.TrimRight(significant, "0")
	if significant == "" {
		return Amount{}, nil
	}
	decimals := max(len(significant)-point, 0)
	switch {
	case decimals > maxAmountDecimals:
		return Amount{}, errAmountDecimals
	case max(point, 0)+decimals > maxAmountDigits:
		return Amount{}, errAmountDigits
	case point <= 0:
		return Amount{"0." + strings.Repeat("0", -point) + significant}, nil
	case decimals == 0:
		return Amount{significant + strings.Repeat("0", point-len(significant))}, nil
	default:
		return Amount{significant[:point] + "." + significant[point:]}, nil
	}
}
