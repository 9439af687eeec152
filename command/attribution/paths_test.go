package attribution

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPaths_Steps(t *testing.T) {
	paths := NewPaths(rulesOf(Last))
	paths.Add(Conversion{
		At: day(9, 0), Touches: []Touch{{day(3, 0), 3, "b"}, {day(1, 0), 1, "a"}, {day(2, 0), 2, "a"}},
	})
	paths.Add(Conversion{
		At:      day(9, 0),
		Touches: []Touch{{day(1, 0), 4, "a"}, {day(2, 0), 5, "b"}, {day(10, 0), 6, "after the conversion"}},
	})
	paths.Add(Conversion{At: day(100, 0), Touches: []Touch{{day(9, 0), 7, "before the window"}, {day(99, 0), 8, ""}}})
	paths.Add(Conversion{At: day(9, 0)})
	require.Equal(t, []Step{{"a", "b", 2}, {"b", WonStep, 2}, {None, WonStep, 1}, {"a", "a", 1}}, paths.Steps(10))
	require.Equal(t, []Step{{"a", "b", 2}}, paths.Steps(1))
}

// Each eligible touch starts one step. Each conversion with an eligible touch has one step to WonStep.
func TestPaths_StepsAddUpToTouches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules, conversions := someRules(t), someConversions(t)
		paths := NewPaths(rules)
		for _, c := range conversions {
			paths.Add(c)
		}
		var steps, won, touches, attributed int64
		for _, s := range paths.Steps(1 << 20) {
			steps += s.Count
			if s.To == WonStep {
				won += s.Count
			}
		}
		for _, c := range conversions {
			if n := len(rules.Eligible(c)); n > 0 {
				touches, attributed = touches+int64(n), attributed+1
			}
		}
		require.Equal(t, []int64{touches, attributed}, []int64{steps, won})
	})
}

// The benchmark has as many conversions as a large account has in a year.
func BenchmarkPaths_Add(b *testing.B) {
	sources := []string{"website", "google_ad", "facebook_ad", "whatsapp", "api"}
	rules := rulesOf(Last)
	for b.Loop() {
		paths := NewPaths(rules)
		for i := range 150_000 {
			paths.Add(Conversion{At: day(9, 0), Touches: []Touch{
				{day(1, 0), 1, sources[i%5]}, {day(2, 0), 2, sources[i/5%5]}, {day(3, 0), 3, sources[i/25%5]}}})
		}
	}
}
