package contact

import (
	"strings"
	"testing"

	"github.com/nyaruka/phonenumbers"
	"github.com/stretchr/testify/require"
	"golang.org/x/text/language"
)

func TestRegionOf_Texts(t *testing.T) {
	t.Parallel()
	for region, texts := range map[string][]string{
		"IN": {
			"IN", "in", "IND", "India", " INDIA ", "भारत", "Inde", "+91", "0091", "91", "(+91)", "९१",
			"India (+91)", "+91 (India)", "IN +91",
		},
		"DE": {"DE", "deu", "Germany", "Deutschland", "Allemagne", "+49", "+49 DE"},
		"US": {
			"US", "USA", "U.S.A.", "United States", "Estados Unidos", "Vereinigte Staaten", "+1", "1", "+1-876", "1876",
		},
		"GB": {"GB", "UK", "United Kingdom", "Great Britain", "England", "44"},
		"AE": {"AE", "UAE", "U.A.E.", "United Arab Emirates", "971"},
		"CI": {"CI", "Côte d'Ivoire", "Cote d’Ivoire", "COTE D IVOIRE", "Ivory Coast", "225"},
		"MM": {"MM", "Myanmar", "Burma", "Myanmar (Burma)"},
		"AT": {"Österreich", "O\u0308sterreich", "Austria"},
		"XK": {"Kosovo", "+383"},
		"MT": {"356"}, // a country code, not the number of India in ISO 3166
		"": {
			"", " ", "Earth", "Congo", "+800", "0", "00", "999999", "12345", "+", "-", strings.Repeat("India", 100),
			"\xff",
		},
	} {
		for _, text := range texts {
			require.Equal(t, region, RegionOf(text), "%q", text)
		}
	}
}

// No two regions have a name in common.
func TestRegionOf_EveryName(t *testing.T) {
	t.Parallel()
	for region := range phonenumbers.GetSupportedRegions() {
		require.Equal(t, region, RegionOf(region))
		parsed, err := language.ParseRegion(region)
		if err != nil {
			continue
		}
		require.Equal(t, region, RegionOf(parsed.ISO3()))
		for _, names := range dictionaries {
			name := names.Name(parsed)
			require.Equal(t, region, RegionOf(name), name)
			require.Equal(t, region, RegionOf(strings.ToUpper(name)), name)
		}
	}
}
