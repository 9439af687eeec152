package contact

import (
	"maps"
	"strconv"
	"strings"
	"unicode"

	"github.com/nyaruka/phonenumbers"
	"golang.org/x/text/language"
	"golang.org/x/text/language/display"
	"golang.org/x/text/unicode/norm"
)

// RegionOf returns the region, an ISO 3166 alpha-2 code in capitals, that a text names: by its country code (+49, 0049,
// 49), its code in ISO 3166 (DE, DEU) or its name in English, German, French, Spanish, Portuguese, Italian, Dutch or
// Hindi. It is empty for any other text. Of several regions with one country code it is the main one, whose numbering
// plan has the numbers of all.
func RegionOf(country string) string {
	if len(country) > maxCountry {
		return ""
	}
	if region := regions[countryKey(country)]; region != "" {
		return region
	}
	before, _, _ := strings.Cut(country, "(")
	if region := regions[countryKey(before)]; region != "" {
		return region
	}
	return regionOfCode(country)
}

// maxCountry is the maximum size of input, in bytes.
const maxCountry = 200

// regionOfCode returns the main region of a country code. What may follow, in North America, is an area code.
func regionOfCode(country string) string {
	code := strings.Map(func(r rune) rune {
		if r = ASCIIDigit(r); r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, country)
	code = strings.TrimPrefix(code, "00")
	if len(code) > len("1") && code[0] == '1' && len(code) <= len("1876") {
		code = "1"
	}
	number, err := strconv.Atoi(code)
	if region := phonenumbers.GetRegionCodeForCountryCode(number); err == nil && KnownRegion(region) {
		return region
	}
	return ""
}

// countryKey reduces the name of a country to lower-case letters without marks, so that spellings of one name are
// equal.
func countryKey(name string) string {
	return strings.ToLower(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.Is(unicode.Mc, r) {
			return r
		}
		return -1
	}, norm.NFKD.String(name)))
}

// dictionaries have the names of regions, by the Unicode CLDR.
var dictionaries = [...]display.Namer{
	display.English.Regions(), display.German.Regions(), display.French.Regions(), display.Spanish.Regions(),
	display.Portuguese.Regions(), display.Italian.Regions(), display.Dutch.Regions(), display.Hindi.Regions(),
}

// regions has the region of each name and code of ISO 3166, by countryKey.
var regions = func() map[string]string {
	keys := make(map[string]string, 2048)
	parts := map[string]string{} // of names with brackets; empty if two regions have the part
	for region := range phonenumbers.GetSupportedRegions() {
		parsed, err := language.ParseRegion(region)
		if err != nil {
			continue
		}
		keys[countryKey(region)], keys[countryKey(parsed.ISO3())] = region, region
		for _, names := range dictionaries {
			name := names.Name(parsed)
			before, inside, _ := strings.Cut(name, "(") // Myanmar (Burma)
			keys[countryKey(name)] = region
			for _, part := range []string{before, inside} {
				key := countryKey(part)
				if other, known := parts[key]; known && other != region {
					parts[key] = ""
				} else {
					parts[key] = region
				}
			}
		}
	}
	for key, region := range parts {
		if _, whole := keys[key]; !whole && region != "" {
			keys[key] = region
		}
	}
	delete(keys, "")
	maps.Copy(keys, otherNames)
	return keys
}()

// otherNames are names that people write and the dictionaries lack.
var otherNames = map[string]string{
	"uk": "GB", "greatbritain": "GB", "britain": "GB", "england": "GB", "scotland": "GB", "wales": "GB",
	"northernireland": "GB", "usa": "US", "america": "US", "unitedstatesofamerica": "US", "uae": "AE",
	"emirates": "AE", "ksa": "SA", "bharat": "IN", "republicofindia": "IN", "holland": "NL",
	"thenetherlands": "NL", "czechrepublic": "CZ", "korea": "KR", "southkorea": "KR", "republicofkorea": "KR",
	"hongkong": "HK", "macau": "MO", "macao": "MO", "turkiye": "TR", "russianfederation": "RU",
	"ivorycoast": "CI", "drc": "CD", "drcongo": "CD", "swaziland": "SZ", "eswatini": "SZ", "macedonia": "MK",
	"northmacedonia": "MK", "capeverde": "CV", "easttimor": "TL", "palestine": "PS", "brasil": "BR",
	"peoplesrepublicofchina": "CN", "mainlandchina": "CN", "thephilippines": "PH", "thebahamas": "BS",
	"thegambia": "GM",
}
