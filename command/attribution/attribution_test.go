package attribution

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// day returns a time that is a number of days and hours after an arbitrary start.
func day(days, hours int64) int64 { return 1_700_000_000_000 + (days*24+hours)*3_600_000 }

func rulesOf(model Model) Rules {
	return Rules{Model: model, Window: DefaultWindow, HalfLife: DefaultHalfLife}
}

// line is a row as an answer has it.
type line struct {
	key         string
	touches     int64
	conversions string
	value       string
}

func linesOf(rows []Row) (lines []line) {
	for _, r := range rows {
		lines = append(lines, line{r.Key, r.Touches, r.Conversions.Decimal(6), r.Value.Decimal(4)})
	}
	return lines
}

func valueOf(t require.TestingT, amount string) uint64 {
	units, ok := ParseValue(amount)
	require.True(t, ok, amount)
	return units
}

func TestReport_Models(t *testing.T) {
	website, google, whatsapp := Touch{day(0, 0), 1, "website"}, Touch{day(7, 0), 2, "google_ad"},
		Touch{day(14, 0), 3, "whatsapp"}
	referral := Touch{day(10, 0), 4, "referral"}
	for name, of := range map[string]struct {
		model   Model
		value   string
		touches []Touch
		want    []line
	}{
		"first": {
			First, "100", []Touch{website, google, whatsapp},
			[]line{
				{"google_ad", 1, "0.000000", "0.0000"}, {"website", 1, "1.000000", "100.0000"},
				{"whatsapp", 1, "0.000000", "0.0000"},
			},
		},
		"last": {
			Last, "100", []Touch{website, google, whatsapp},
			[]line{
				{"google_ad", 1, "0.000000", "0.0000"}, {"website", 1, "0.000000", "0.0000"},
				{"whatsapp", 1, "1.000000", "100.0000"},
			},
		},
		"linear, remainder 0.0001": {
			Linear, "100", []Touch{website, google, whatsapp},
			[]line{
				{"google_ad", 1, "0.333333", "33.3333"}, {"website", 1, "0.333334", "33.3334"},
				{"whatsapp", 1, "0.333333", "33.3333"},
			},
		},
		"linear, remainder 0.0002": {
			Linear, "0.0002", []Touch{website, google, whatsapp},
			[]line{
				{"google_ad", 1, "0.333333", "0.0001"}, {"website", 1, "0.333334", "0.0001"},
				{"whatsapp", 1, "0.333333", "0.0000"},
			},
		},
		"position, one touch": {
			Position, "10", []Touch{google}, []line{{"google_ad", 1, "1.000000", "10.0000"}},
		},
		"position, two touches": {
			Position, "0.0003", []Touch{website, google},
			[]line{{"google_ad", 1, "0.500000", "0.0001"}, {"website", 1, "0.500000", "0.0002"}},
		},
		"position, three touches": {
			Position, "10", []Touch{website, google, whatsapp},
			[]line{
				{"google_ad", 1, "0.200000", "2.0000"}, {"website", 1, "0.400000", "4.0000"},
				{"whatsapp", 1, "0.400000", "4.0000"},
			},
		},
		"position, four touches": {
			Position, "10", []Touch{website, google, referral, whatsapp},
			[]line{
				{"google_ad", 1, "0.100000", "1.0000"}, {"referral", 1, "0.100000", "1.0000"},
				{"website", 1, "0.400000", "4.0000"}, {"whatsapp", 1, "0.400000", "4.0000"},
			},
		},
		"time decay by half-lives": {
			TimeDecay, "7", []Touch{website, google, whatsapp},
			[]line{
				{"google_ad", 1, "0.285714", "2.0000"}, {"website", 1, "0.142857", "1.0000"},
				{"whatsapp", 1, "0.571429", "4.0000"},
			},
		},
		"time decay, equal times": {
			TimeDecay, "0.0001", []Touch{{day(3, 0), 8, "b"}, {day(3, 0), 7, "a"}},
			[]line{{"a", 1, "0.500000", "0.0001"}, {"b", 1, "0.500000", "0.0000"}},
		},
		"no value": {
			Linear, "", []Touch{website, google},
			[]line{{"google_ad", 1, "0.500000", "0.0000"}, {"website", 1, "0.500000", "0.0000"}},
		},
		"largest value": {
			Linear, "999999999999999", []Touch{website, google},
			[]line{
				{"google_ad", 1, "0.500000", "499999999999999.5000"},
				{"website", 1, "0.500000", "499999999999999.5000"},
			},
		},
		"two touches of one key": {
			Linear, "1", []Touch{website, google, {day(8, 0), 9, "website"}},
			[]line{{"google_ad", 1, "0.333333", "0.3333"}, {"website", 2, "0.666667", "0.6667"}},
		},
		"an empty key": {
			Last, "1", []Touch{{day(8, 0), 9, ""}}, []line{{"(none)", 1, "1.000000", "1.0000"}},
		},
		"no touch": {TimeDecay, "1", nil, []line{{"(unattributed)", 0, "1.000000", "1.0000"}}},
		"a touch after the conversion": {
			First, "1", []Touch{{day(14, 1), 9, "api"}}, []line{{"(unattributed)", 0, "1.000000", "1.0000"}},
		},
		"keys by bytes, case kept": {
			Linear, "0", []Touch{{day(1, 0), 1, "b"}, {day(2, 0), 2, "B"}, {day(3, 0), 3, "é"}, {day(4, 0), 4, "a"}},
			[]line{
				{"B", 1, "0.250000", "0.0000"}, {"a", 1, "0.250000", "0.0000"}, {"b", 1, "0.250000", "0.0000"},
				{"é", 1, "0.250000", "0.0000"},
			},
		},
		"ordered by time": {
			First, "1", []Touch{{day(2, 0), 1, "late"}, {day(1, 0), 2, "early"}},
			[]line{{"early", 1, "1.000000", "1.0000"}, {"late", 1, "0.000000", "0.0000"}},
		},
		"equal times, ordered by position": {
			Last, "1", []Touch{{day(2, 0), 6, "later"}, {day(2, 0), 5, "earlier"}},
			[]line{{"earlier", 1, "0.000000", "0.0000"}, {"later", 1, "1.000000", "1.0000"}},
		},
		"the smallest value, two touches": {
			Linear, "0.0001", []Touch{whatsapp, website},
			[]line{{"website", 1, "0.500000", "0.0001"}, {"whatsapp", 1, "0.500000", "0.0000"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			report := NewReport(rulesOf(of.model))
			report.Add(Conversion{At: day(14, 0), Value: valueOf(t, of.value), Touches: of.touches})
			require.Equal(t, of.want, linesOf(report.Rows()))
		})
	}
}

func TestReport_WindowEnds(t *testing.T) {
	rules := Rules{Model: Linear, Window: 2 * Day}
	report := NewReport(rules)
	at := day(10, 0)
	report.Add(Conversion{At: at, Touches: []Touch{
		{day(8, 0) - 1, 1, "before"}, {day(8, 0), 2, "first"}, {at, 3, "last"}, {at + 1, 4, "after"},
	}})
	require.Equal(t, []line{{"first", 1, "0.500000", "0.0000"}, {"last", 1, "0.500000", "0.0000"}},
		linesOf(report.Rows()))
}

func TestReport_SinceAndUntil(t *testing.T) {
	rules := rulesOf(Last)
	rules.Since, rules.Until = time.UnixMilli(day(1, 0)), time.UnixMilli(day(2, 0))
	report := NewReport(rules)
	for _, at := range []int64{day(1, 0) - 1, day(1, 0), day(2, 0) - 1, day(2, 0)} {
		report.Add(Conversion{At: at})
	}
	require.Equal(t, "2.000000", report.Total().Conversions.Decimal(6))

	rules.Since = time.UnixMilli(day(1, 0)).Add(time.Nanosecond)
	require.False(t, rules.Counts(day(1, 0)))
	require.True(t, rules.Counts(day(1, 0)+1))
}

func TestReport_TotalExceeds64Bits(t *testing.T) {
	report := NewReport(rulesOf(Last))
	for range 3 {
		report.Add(Conversion{At: day(1, 0), Value: valueOf(t, "999999999999999")})
	}
	require.Equal(t, "2999999999999997.0000", report.Total().Value.Decimal(4))
}

func TestCredits_OfOneConversion(t *testing.T) {
	c := Conversion{
		At: day(5, 0), Value: 5, Touches: []Touch{{day(2, 0), 2, "b"}, {day(1, 0), 1, "a"}, {day(6, 0), 3, "c"}},
	}
	require.Equal(t, []Credit{
		{Touch{day(1, 0), 1, "a"}, 500_000, 3}, {Touch{day(2, 0), 2, "b"}, 500_000, 2},
	}, rulesOf(Linear).Credits(c))
	require.Empty(t, rulesOf(Linear).Credits(Conversion{At: day(0, 0), Touches: c.Touches}))
}

func TestDecay_HalfLives(t *testing.T) {
	const half = 1000
	require.Equal(t, uint64(1)<<63, decay(0, half))
	require.Equal(t, uint64(1)<<62, decay(half, half))
	require.Equal(t, uint64(1), decay(63*half, half))
	require.Zero(t, decay(64*half, half))
	require.Equal(t, uint64(6521908912666391106), decay(half/2, half), "2^63 / sqrt 2, rounded down")
	for age := int64(1); age < 5*half; age++ {
		require.LessOrEqual(t, decay(age, half), decay(age-1, half))
		require.InEpsilon(t, math.Exp2(-float64(age)/half), float64(decay(age, half))/decayOne, 1e-14)
	}
}

func TestParseValue_Amounts(t *testing.T) {
	for amount, want := range map[string]uint64{
		"": 0, "0": 0, "0.0001": 1, "1": 10_000, "120000.5": 1_200_005_000, "12.34": 123_400,
		"999999999999999": 9_999_999_999_999_990_000,
	} {
		units, ok := ParseValue(amount)
		require.True(t, ok, amount)
		require.Equal(t, want, units, amount)
	}
	for _, amount := range []string{"x", "-1", "1.00001", ".5", "1e3", "1000000000000000", "1,5"} {
		_, ok := ParseValue(amount)
		require.False(t, ok, amount)
	}
}

func FuzzParseValue(f *testing.F) {
	f.Add("120000.5")
	f.Fuzz(func(t *testing.T, amount string) {
		units, ok := ParseValue(amount)
		if !ok || amount == "" {
			return
		}
		want, valid := new(big.Rat).SetString(amount)
		require.True(t, valid)
		require.Zero(t, want.Cmp(new(big.Rat).SetFrac(new(big.Int).SetUint64(units), big.NewInt(ValueUnits))))
	})
}

// someConversions draws conversions with touches of few keys and close times, so that ties are frequent.
func someConversions(t *rapid.T) []Conversion {
	touch := rapid.Custom(func(t *rapid.T) Touch {
		return Touch{
			At:       day(0, rapid.Int64Range(0, 24*120).Draw(t, "hour")),
			Position: rapid.Int64Range(1, 1<<40).Draw(t, "position"),
			Key:      rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "key"),
		}
	})
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Conversion {
		return Conversion{
			At:      day(rapid.Int64Range(0, 120).Draw(t, "day"), 0),
			Value:   rapid.Uint64Range(0, 9_999_999_999_999_990_000).Draw(t, "value"),
			Touches: rapid.SliceOfNDistinct(touch, 0, 12, func(t Touch) int64 { return t.Position }).Draw(t, "touches"),
		}
	}), 0, 8).Draw(t, "conversions")
}

func someRules(t *rapid.T) Rules {
	return Rules{
		Model:    Model(rapid.SampledFrom(Models()).Draw(t, "model")),
		Window:   time.Duration(rapid.IntRange(1, 365).Draw(t, "window")) * Day,
		HalfLife: time.Duration(rapid.IntRange(1, 400).Draw(t, "halfLife")) * time.Hour,
	}
}

func reported(rules Rules, conversions []Conversion) *Report {
	report := NewReport(rules)
	for _, c := range conversions {
		c.Touches = slices.Clone(c.Touches)
		report.Add(c)
	}
	return report
}

func plus(a, b Sum) Sum {
	a.add(b.low)
	a.high += b.high
	return a
}

func TestReport_RowsAddUpToTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		report := reported(someRules(t), someConversions(t))
		var sum Row
		for _, r := range report.Rows() {
			sum = Row{
				Touches: sum.Touches + r.Touches, Conversions: plus(sum.Conversions, r.Conversions),
				Value: plus(sum.Value, r.Value),
			}
		}
		require.Equal(t, report.Total(), sum)
	})
}

func TestReport_IgnoresInputOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules, conversions := someRules(t), someConversions(t)
		want := reported(rules, conversions).Rows()
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		random.Shuffle(len(conversions), func(i, j int) {
			conversions[i], conversions[j] = conversions[j], conversions[i]
		})
		for _, c := range conversions {
			random.Shuffle(len(c.Touches), func(i, j int) { c.Touches[i], c.Touches[j] = c.Touches[j], c.Touches[i] })
		}
		require.Equal(t, want, reported(rules, conversions).Rows())
	})
}

func TestReport_SingleTouchGetsAllCredit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules, value := someRules(t), rapid.Uint64Range(0, 9_999_999_999_999_990_000).Draw(t, "value")
		report := reported(rules, []Conversion{{At: day(1, 0), Value: value, Touches: []Touch{{day(0, 23), 1, "a"}}}})
		require.Equal(t, []Row{{Key: "a", Touches: 1, Conversions: SumOf(ConversionUnits), Value: SumOf(value)}}, report.Rows())
	})
}

// referenceCredits is a reference implementation: it divides the units one touch at a time by fractions, and the rest
// by searching the largest remainder repeatedly. Weights of TimeDecay are floating-point numbers of 300 bits.
func referenceCredits(rules Rules, conversions []Conversion) map[string]*big.Int {
	credits := map[string]*big.Int{}
	for _, c := range conversions {
		var touches []Touch
		for _, t := range c.Touches {
			if t.At <= c.At && c.At-t.At <= int64(rules.Window/time.Millisecond) {
				at := slices.IndexFunc(touches, func(o Touch) bool {
					return o.At > t.At || o.At == t.At && o.Position > t.Position
				})
				if at < 0 {
					at = len(touches)
				}
				touches = slices.Insert(touches, at, t)
			}
		}
		if len(touches) == 0 {
			touches = []Touch{{Key: Unattributed}}
		}
		n := len(touches)
		weights := make([]*big.Rat, n)
		for i := range touches {
			weights[i] = new(big.Rat)
			switch {
			case rules.Model == First && i == 0, rules.Model == Last && i == n-1:
				weights[i].SetInt64(1)
			case rules.Model == Linear, rules.Model == Position && n <= 2:
				weights[i].SetFrac64(1, int64(n))
			case rules.Model == Position && (i == 0 || i == n-1):
				weights[i].SetFrac64(2, 5)
			case rules.Model == Position:
				weights[i].SetFrac64(1, int64(5*(n-2)))
			case rules.Model == TimeDecay:
				weights[i] = halving(touches[i].At-touches[n-1].At, rules.HalfLife.Milliseconds())
			}
		}
		if rules.Model == TimeDecay {
			sum := new(big.Rat)
			for _, weight := range weights {
				sum.Add(sum, weight)
			}
			for _, weight := range weights {
				weight.Quo(weight, sum)
			}
		}
		rest := new(big.Int).SetUint64(c.Value)
		remainders := make([]*big.Rat, n)
		for i, weight := range weights {
			exact := new(big.Rat).Mul(weight, new(big.Rat).SetInt(new(big.Int).SetUint64(c.Value)))
			units := new(big.Int).Div(exact.Num(), exact.Denom())
			remainders[i] = exact.Sub(exact, new(big.Rat).SetInt(units))
			rest.Sub(rest, units)
			addCredit(credits, touches[i].Key, units)
		}
		for ; rest.Sign() > 0; rest.Sub(rest, big.NewInt(1)) {
			largest := 0
			for i := range remainders {
				if remainders[i].Cmp(remainders[largest]) > 0 {
					largest = i
				}
			}
			remainders[largest].SetInt64(-1)
			addCredit(credits, touches[largest].Key, big.NewInt(1))
		}
	}
	return credits
}

// halving returns 2^(age/halfLife) for an age of 0 or less, by repeated square roots.
func halving(age, halfLife int64) *big.Rat {
	const precision = 300
	exponent := new(big.Rat).SetFrac64(-age, halfLife)
	result := new(big.Float).SetPrec(precision).SetInt64(1)
	root := new(big.Float).SetPrec(precision).SetFloat64(0.5)
	integer := new(big.Int).Div(exponent.Num(), exponent.Denom())
	exponent.Sub(exponent, new(big.Rat).SetInt(integer))
	result.SetMantExp(result, -int(integer.Int64()))
	for range 200 {
		root.Sqrt(root)
		exponent.Mul(exponent, big.NewRat(2, 1))
		if exponent.Cmp(big.NewRat(1, 1)) >= 0 {
			exponent.Sub(exponent, big.NewRat(1, 1))
			result.Mul(result, root)
		}
	}
	exact, _ := result.Rat(nil)
	return exact
}

func addCredit(credits map[string]*big.Int, key string, units *big.Int) {
	if key == "" {
		key = None
	}
	if credits[key] == nil {
		credits[key] = new(big.Int)
	}
	credits[key].Add(credits[key], units)
}

func TestReport_EqualsReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules, conversions := someRules(t), someConversions(t)
		for i := range conversions {
			conversions[i].Value %= 1_000_000_000 // beyond that, 63 binary decimals of a weight may be too few
		}
		want := referenceCredits(rules, conversions)
		rows := reported(rules, conversions).Rows()
		require.Len(t, rows, len(want))
		for _, r := range rows {
			require.Equal(t, want[r.Key].String(), new(big.Int).SetUint64(r.Value.low).String(), r.Key)
			require.Zero(t, r.Value.high)
		}
	})
}
