package attribution

import (
	"cmp"
	"math/big"
	"math/bits"
	"slices"
	"strings"
)

// Units in which conversions are divided.
const (
	ConversionUnits = 1_000_000 // in one conversion
	ValueUnits      = 10_000    // in 1 of the account's currency
)

// appendWeights appends a weight for each touch. Touches are in order, and there is at least one.
func (r Rules) appendWeights(weights []uint64, touches []Touch) []uint64 {
	n := len(touches)
	for i := range touches {
		weight := uint64(1)
		switch {
		case r.Model == First && i > 0, r.Model == Last && i < n-1:
			weight = 0
		case r.Model == Position && n > 2 && (i == 0 || i == n-1):
			weight = 2 * uint64(n-2) // 40 % of 5(n-2), and each of the n-2 between has 1
		case r.Model == TimeDecay:
			// The sum of n weights fits into 63 bits.
			weight = decay(touches[n-1].At-touches[i].At, r.HalfLife.Milliseconds()) >> bits.Len(uint(n))
		}
		weights = append(weights, weight)
	}
	return weights
}

// decayOne is the weight of the last touch: weights of TimeDecay are fixed-point numbers with 63 binary decimals.
const decayOne = 1 << 63

// factors has the powers of 2 that the fraction of a negative exponent is made of: of its 63 binary decimals, part i
// has nine, and factors[i][n] is the power for those that are the number n. The power of one binary decimal is the
// square root of that of the one before it, and that of several is their product. All are rounded down to 63 binary
// decimals.
var factors = func() (factors [7][512]uint64) {
	square := new(big.Int).Lsh(big.NewInt(1), 2*63-1) // 1/2, with 126
	for i := range factors {
		factors[i][0] = decayOne
		for bit := 256; bit > 0; bit /= 2 {
			root := new(big.Int).Sqrt(square)
			factors[i][bit] = root.Uint64()
			square.Lsh(root, 63)
		}
		for n := range factors[i] {
			if rest := n & (n - 1); rest != 0 { // without the last bit
				factors[i][n] = product(factors[i][rest], factors[i][n-rest])
			}
		}
	}
	return factors
}()

// product multiplies numbers up to 1 with 63 binary decimals, and rounds down.
func product(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high<<1 | low>>63
}

// decay returns 2^(-age/halfLife). It is defined by whole numbers, so that it is the same on every machine: the
// fraction of the half-lives has 63 binary decimals, rounded down, and the weight is the product of its factors.
func decay(age, halfLife int64) uint64 {
	whole, rest := uint64(age/halfLife), uint64(age%halfLife)
	if whole > 63 {
		return 0
	}
	fraction, _ := bits.Div64(rest>>1, rest<<63, uint64(halfLife))
	weight := factors[0][fraction>>54]
	for i := 1; i < len(factors); i++ {
		weight = product(weight, factors[i][fraction>>(54-9*i)&511])
	}
	return weight >> whole
}

type remainder struct {
	of    uint64
	touch int
}

// appendShares divides units in proportion to weights, by largest remainder: each touch gets its share rounded down,
// and the touches with the largest remainders get one more of the remaining units, of equal remainders the earlier
// touch. The sum of the weights is less than 2^63, and not 0.
func appendShares(shares []uint64, remainders []remainder, units uint64, weights []uint64) ([]uint64, []remainder) {
	var sum uint64
	for _, weight := range weights {
		sum += weight
	}
	left := units
	remainders = remainders[:0]
	for i, weight := range weights {
		high, low := bits.Mul64(units, weight)
		share, rest := bits.Div64(high, low, sum)
		shares, remainders = append(shares, share), append(remainders, remainder{rest, i})
		left -= share
	}
	if left > 0 {
		slices.SortStableFunc(remainders, func(a, b remainder) int { return cmp.Compare(b.of, a.of) })
		for _, r := range remainders[:left] {
			shares[r.touch]++
		}
	}
	return shares, remainders
}

// Sum is a sum of units, which may be larger than each of them can be.
type Sum struct{ high, low uint64 }

func (s *Sum) add(units uint64) {
	var carry uint64
	s.low, carry = bits.Add64(s.low, units, 0)
	s.high += carry
}

// SumOf returns the sum of numbers.
func SumOf(units ...uint64) (s Sum) {
	for _, u := range units {
		s.add(u)
	}
	return s
}

// Decimal writes a sum whose unit is the last of a number of decimals: 12345 with 4 is 1.2345.
func (s Sum) Decimal(decimals int) string {
	return decimal(s.integer(), decimals)
}

func (s Sum) integer() *big.Int {
	digits := new(big.Int).SetUint64(s.high)
	return digits.Lsh(digits, 64).Or(digits, new(big.Int).SetUint64(s.low))
}

func decimal(units *big.Int, decimals int) string {
	text := units.String()
	if len(text) <= decimals {
		text = strings.Repeat("0", decimals+1-len(text)) + text
	}
	return text[:len(text)-decimals] + "." + text[len(text)-decimals:]
}

// ParseValue reads an amount as leads have it, exact and with at most 4 decimals, as ValueUnits. No amount is 0.
func ParseValue(amount string) (units uint64, ok bool) {
	if amount == "" {
		return 0, true
	}
	whole, fraction, _ := strings.Cut(amount, ".")
	if whole == "" || len(whole) > 15 || len(fraction) > 4 {
		return 0, false
	}
	for _, digit := range []byte(whole + fraction + "0000"[len(fraction):]) {
		if digit < '0' || digit > '9' {
			return 0, false
		}
		units = 10*units + uint64(digit-'0')
	}
	return units, true
}
