package contact

import (
	"slices"
	"strconv"
	"testing"

	"github.com/nyaruka/phonenumbers"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// sameLead reports whether two phones find the same lead.
func sameLead(a, b string) bool { return FoldPhone(a) == FoldPhone(b) }

// validNumber draws a valid number of a region: its example of a kind, with other last digits.
func validNumber(t *rapid.T, region string) (*phonenumbers.PhoneNumber, bool) {
	kind := rapid.SampledFrom([]phonenumbers.PhoneNumberType{
		phonenumbers.MOBILE, phonenumbers.FIXED_LINE, phonenumbers.FIXED_LINE_OR_MOBILE, phonenumbers.VOIP,
		phonenumbers.TOLL_FREE,
	}).Draw(t, "kind")
	example := phonenumbers.GetExampleNumberForType(region, kind)
	if example == nil {
		return nil, false
	}
	digits := []byte(phonenumbers.GetNationalSignificantNumber(example))
	for i := len(digits) - rapid.IntRange(0, 5).Draw(t, "changed"); i < len(digits); i++ {
		if i > 0 {
			digits[i] = byte('0' + rapid.IntRange(0, 9).Draw(t, "digit"))
		}
	}
	number, err := phonenumbers.Parse("+"+strconv.Itoa(int(example.GetCountryCode()))+string(digits), region)
	return number, err == nil && phonenumbers.IsValidNumberForRegion(number, region)
}

// In every region, a valid number in any of its forms is the same lead or an error, never another number.
func TestParsePhone_FormsOfEveryRegion(t *testing.T) {
	t.Parallel()
	for region := range phonenumbers.GetSupportedRegions() {
		if testing.Short() &&
			!slices.Contains([]string{"DE", "ID", "SE", "XK", "MM", "IN", "US", "MX", "BR", "AR", "IT", "VN"}, region) {
			continue // all take seconds
		}
		t.Run(region, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				number, ok := validNumber(t, region)
				if !ok {
					return
				}
				e164 := phonenumbers.Format(number, phonenumbers.E164)
				want, err := ParsePhone(e164, region, Hint{})
				if err != nil {
					require.Greater(t, len(e164), 1+maxPhoneDigits,
						"only a number beyond 15 digits is refused: %s", e164)
					return
				}
				require.True(t, sameLead(e164, want), "%s is %s", e164, want)
				for _, form := range []string{
					phonenumbers.Format(number, phonenumbers.INTERNATIONAL),
					phonenumbers.Format(number, phonenumbers.RFC3966),
				} {
					got, err := ParsePhone(form, region, Hint{})
					require.NoError(t, err, form)
					require.True(t, sameLead(want, got), "%s is %s and not %s", form, got, want)
				}
				national := phonenumbers.Format(number, phonenumbers.NATIONAL)
				for _, form := range []string{
					national, phonenumbers.NormalizeDigitsOnly(national),
					phonenumbers.GetNationalSignificantNumber(number), e164[1:],
				} {
					got, err := ParsePhone(form, region, Hint{
						From: rapid.SampledFrom([]Source{Call, Post, File}).Draw(t, "from"),
					})
					if err == nil {
						require.True(t, sameLead(want, got), "%s of %s is %s and not %s", form, region, got, want)
					}
				}
			})
		})
	}
}

func FuzzParseName(f *testing.F) {
	for _, seed := range []string{
		" Asha\tRao ", "undefined undefined", "{{first}} {{last}}", "%FIRST_NAME%", "\u200bനൻ\u200d", "-", "Null",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		name := ParseName(raw)
		require.Equal(t, name, ParseName(name))
	})
}

func FuzzRegionOf(f *testing.F) {
	for _, seed := range []string{
		"+49", "0049", "DEU", "Deutschland", "Myanmar (Burma)", "भारत", "1-876", "x",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		region := RegionOf(raw)
		require.True(t, region == "" || KnownRegion(region), region)
		require.Equal(t, region, RegionOf(region))
	})
}
