package contact

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nyaruka/phonenumbers"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParsePhone_Forms(t *testing.T) {
	t.Parallel()
	const asha = "+919876543210"
	for _, c := range []struct{ name, raw, region, want string }{
		{"ten digits in India", "9876543210", "IN", asha},
		{"E.164", "+919876543210", "IN", asha},
		{"plus in parentheses", "(+91) 98765 43210", "IN", asha},
		{"E.164 in any region", "+919876543210", "US", asha},
		{"E.164 without a region", "+919876543210", "", asha},
		{"with the trunk zero", "09876543210", "IN", asha},
		{"country code without plus", "919876543210", "IN", asha},
		{"international prefix 00", "00919876543210", "IN", asha},
		{"international prefix of the US", "011 91 98765 43210", "US", asha},
		{"trunk zero in parentheses", "+91 (0) 98765 43210", "IN", asha},
		{"trunk zero after the country code", "+91 098765 43210", "IN", asha},
		{"spaces", " 98765 43210 ", "IN", asha},
		{"hyphens", "+91-98765-43210", "IN", asha},
		{"dots", "98765.43210", "IN", asha},
		{"slash", "98765/43210", "IN", asha},
		{"parentheses", "(98765) 43210", "IN", asha},
		{"tel URI", "tel:+91-98765-43210", "US", asha},
		{"tel URI in capitals, with a space", "TEL: 9876543210", "IN", asha},
		{"whatsapp", "whatsapp:+919876543210", "IN", asha},
		{"lead ad", "p:+919876543210", "IN", asha},
		{"extension ext", "9876543210 ext 12", "IN", asha},
		{"extension ext.", "9876543210 Ext. 12", "IN", asha},
		{"extension extn", "9876543210extn12", "IN", asha},
		{"extension x", "9876543210x12", "IN", asha},
		{"extension #", "9876543210 #12", "IN", asha},
		{"extension of a URI", "tel:+919876543210;ext=1234", "IN", asha},
		{"no-break space", "98765\u00a043210", "IN", asha},
		{"full-width digits and plus", "＋９１９８７６５４３２１０", "IN", asha},
		{"Arabic-Indic digits", "٩٨٧٦٥٤٣٢١٠", "IN", asha},
		{"Persian digits", "۹۸۷۶۵۴۳۲۱۰", "IN", asha},
		{"Devanagari digits", "९८७६५४३२१०", "IN", asha},
		{"direction marks around it", "\u202a+91 98765 43210\u202c", "IN", asha},
		{"zero-width space inside", "98765\u200b43210", "IN", asha},
		{"en dash", "98765\u201343210", "IN", asha},
		{"non-breaking hyphen", "98765\u201143210", "IN", asha},
		{"minus sign", "98765\u221243210", "IN", asha},
		{"Indian landline", "022-2345 6789", "IN", "+912223456789"},
		{"US number at home", "(202) 555-0123", "US", "+12025550123"},
		{"US number abroad", "+1 202 555 0123", "IN", "+12025550123"},
		{"UK number with (0)", "+44 (0)20 7946 0958", "IN", "+442079460958"},
		{"Italian landline keeps its zero", "+39 06 6982 1234", "IN", "+390669821234"},
		{"valid in no region but exact E.164", "+15550100000", "IN", "+15550100000"},
		{"exact E.164 after tel:", "tel:+15550100000", "IN", "+15550100000"},
		{"exact E.164, shortest", "+9112345", "IN", "+9112345"},
		{"exact E.164, longest", "+919876543210123", "IN", "+919876543210123"},
		{"universal freephone", "+800 1234 5678", "IN", "+80012345678"},
		{"variation selector", "98765\ufe0f 43210", "IN", asha},
		{"object replacement character", "\ufffc+91 98765 43210", "IN", asha},
		{"Hangul filler", "\u3164 98765 43210", "IN", asha},
		{"byte order mark and soft hyphens", "\ufeff98765\u00ad432\u00ad10", "IN", asha},
		{"extension in full", "9876543210 extension 12", "IN", asha},
		{"extension with a colon", "9876543210 ext: 12", "IN", asha},
		{"extension after a comma", "98765 43210, ext 12", "IN", asha},
		{"extension with a hyphen", "9876543210 Ext-12", "IN", asha},
		{"extension in parentheses", "9876543210 (ext. 12)", "IN", asha},
		{"trunk zero and country code", "0919876543210", "IN", asha},
		{"the same with punctuation", "091-98765 43210", "IN", asha},
		{"00 where it is not the prefix", "0091 98765 43210", "US", asha},
		{"00 1 in the US", "001-202-555-0123x1234", "US", "+12025550123"},
		{"011 where it is not the prefix", "011 91 98765 43210", "IN", asha},
		{"zero after the plus", "+0919876543210", "IN", asha},
		{"00 after the plus", "+00 91 98765 43210", "US", asha},
		{"country code twice", "+91 919876543210", "IN", asha},
		{"country code twice, in parts", "+91 (91) 98765-43210", "US", asha},
		{"country code twice, trunk zero between", "+91 0919876543210", "IN", asha},
		{"country code twice without plus", "91 91 98765 43210", "IN", asha},
		{"country code twice, but E.164", "+91919876543210", "IN", "+91919876543210"},
		{"international digits in Germany", "4915123456789", "DE", "+4915123456789"},
		{"German number with its trunk zero", "0491 1234567", "DE", "+494911234567"},
		{"international digits in Indonesia", "62811769287", "ID", "+62811769287"},
		{"Indonesian number at home", "0811-769-287", "ID", "+62811769287"},
		{"international digits in Sweden", "46701234567", "SE", "+46701234567"},
		{"international digits in Kosovo", "38344123456", "XK", "+38344123456"},
		{"international digits in Myanmar", "9592123456", "MM", "+9592123456"},
		{"Indian mobile that begins like +91", "9123456789", "IN", "+919123456789"},
		{"Indian mobile that may be a freephone number", "9118003687", "IN", "+919118003687"},
		{"Indian mobile that begins like +65", "6591234568", "IN", "+916591234568"},
		{"Polish number as it is written at home", "48 303 27 70", "PL", "+48483032770"},
		{"WhatsApp id with its label", "whatsapp:6591234568", "US", "+6591234568"},
	} {
		got, err := ParsePhone(c.raw, c.region, Hint{})
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, got, c.name)
	}
}

func TestParsePhone_Refuses(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"nothing":                           "",
		"white space":                       " \t\u00a0",
		"punctuation only":                  "+()-",
		"float of a spreadsheet":            "9.87654321e9",
		"two plus signs":                    "++919876543210",
		"a plus sign in the middle":         "98765+43210",
		"letters at the end":                "98765ABCDE",
		"vanity number":                     "1-800-FLOWERS",
		"words around it":                   "call me 9876543210",
		"words after it":                    "9876543210 evenings",
		"two numbers":                       "9876543210 / 9876543211",
		"two numbers with a comma":          "9876543210, 9876543211",
		"two numbers on two lines":          "9876543210\n9876543211",
		"two numbers joined by x":           "9876543210 x 9876543211",
		"nothing but an extension":          "ext 12",
		"number behind a hash":              "#9876543210",
		"mark without an extension":         "9876543210 ext",
		"two extensions":                    "9876543210 x1 x2",
		"label of an extension alone":       "9876543210 ext:",
		"another country's digits":          "447911123456",
		"zero and another country's code":   "0447911123456",
		"too short":                         "12345",
		"too long":                          "98765432109876543",
		"no number of this region":          "0000000000",
		"exact, but of 6 digits":            "+911234",
		"exact, but of 16 digits":           "+9198765432101234",
		"unknown country code":              "+2101234567",
		"invalid, and not E.164 to the dot": "+1 555 010 0000",
		"plus in the middle":                "91+9876543210",
		"phone context":                     "tel:9876543210;phone-context=+91",
		"NUL":                               "98765\x0043210",
		"invalid UTF-8":                     "98765\xff43210",
		"star code":                         "*123#",
		"emergency number":                  "112",
		"an email":                          "asha@example.com",
		"beyond E.164's 15 digits":          "+491234567890123456",
		"length checked before normalizing": strings.Repeat("\ufdfa", 1<<16),
		"padded beyond the bound":           strings.Repeat(" ", 200) + "9876543210",
	} {
		got, err := ParsePhone(raw, "IN", Hint{})
		require.Error(t, err, "%s: got %s", name, got)
		require.Empty(t, got, name)
		require.Equal(t, "is not a valid phone number", err.Error())
	}
	_, err := ParsePhone("0018002000000", "TH", Hint{})
	require.Error(t, err, "a Thai freephone number, or an American one after 00")
	_, err = ParsePhone("9876543210", "", Hint{})
	require.Error(t, err, "a national number without a region")
	_, err = ParsePhone("9876543210", "ZZ", Hint{})
	require.Error(t, err, "a national number in an unknown region")
}

func TestKnownRegion_Codes(t *testing.T) {
	t.Parallel()
	for _, r := range []string{"IN", "US", "GB", "AE", "DE"} {
		require.True(t, KnownRegion(r), r)
	}
	for _, r := range []string{"", "in", "IND", "ZZ", "001", "91"} {
		require.False(t, KnownRegion(r), r)
	}
	for r := range phonenumbers.GetSupportedRegions() {
		require.Regexp(t, `^[A-Z]{2}$`, r)
	}
}

// written returns a number as it may be written in its region.
func written(number *phonenumbers.PhoneNumber) map[string]string {
	national := phonenumbers.Format(number, phonenumbers.NATIONAL)
	e164 := phonenumbers.Format(number, phonenumbers.E164)
	return map[string]string{
		"national": national, "international": phonenumbers.Format(number, phonenumbers.INTERNATIONAL),
		"RFC 3966": phonenumbers.Format(number, phonenumbers.RFC3966), "E.164": e164,
		"international digits": e164[1:], "national digits": phonenumbers.NormalizeDigitsOnly(national),
	}
}

// A valid number of any region is read as itself, in each form that an account of the region may get, or refused. It is
// another number only if the same digits are the national form of that.
func TestParsePhone_EveryRegion(t *testing.T) {
	t.Parallel()
	plans := numberingPlans(t)
	rapid.Check(t, func(t *rapid.T) {
		plan := rapid.SampledFrom(plans).Draw(t, "plan")
		number, err := phonenumbers.Parse("+"+plan.code+rapid.StringMatching(plan.pattern).Draw(t, "number"), "")
		if err != nil || !phonenumbers.IsValidNumber(number) ||
			phonenumbers.GetRegionCodeForNumber(number) != plan.region {
			return
		}
		e164 := phonenumbers.Format(number, phonenumbers.E164)
		if !isE164(e164) { // an island with four-digit numbers
			return
		}
		for form, text := range written(number) {
			got, err := ParsePhone(text, plan.region, Hint{})
			if form == "E.164" || form == "international" || form == "RFC 3966" {
				require.NoError(t, err, "%s: %s", form, text)
			}
			if err != nil || FoldPhone(got) == FoldPhone(e164) {
				continue
			}
			other, err := phonenumbers.Parse(got, "")
			require.NoError(t, err)
			require.Equal(t, "international digits", form, "%s of %s is read as %s", text, e164, got)
			require.True(t, written(other)["national digits"] == text || plan.region == "IN" && indianMobile(text),
				"%s of %s is read as %s", text, e164, got)
		}
	})
}

// numberingPlan has the numbers of one type in a region.
type numberingPlan struct{ region, code, pattern string }

func numberingPlans(t *testing.T) (plans []numberingPlan) {
	collection, err := phonenumbers.MetadataCollection()
	require.NoError(t, err)
	for _, region := range collection.GetMetadata() {
		if !KnownRegion(region.GetId()) {
			continue
		}
		for _, numbers := range []*phonenumbers.PhoneNumberDesc{
			region.GetFixedLine(), region.GetMobile(), region.GetTollFree(), region.GetUan(), region.GetVoip(),
			region.GetPersonalNumber(), region.GetSharedCost(), region.GetPremiumRate(),
		} {
			if pattern := numbers.GetNationalNumberPattern(); pattern != "" && pattern != "NA" {
				plans = append(plans, numberingPlan{
					region.GetId(), strconv.Itoa(int(region.GetCountryCode())), pattern,
				})
			}
		}
	}
	require.Greater(t, len(plans), 800)
	return plans
}

func TestParsePhone_ShortcutAgrees(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.StringMatching(`\+(91[6-9][0-9]{9}|1[2-9][0-9]{9})`).Draw(t, "raw")
		require.True(t, canonical(raw))
		// A leading space disables the shortcut and is trimmed.
		got, err := ParsePhone(" "+raw, "IN", Hint{})
		require.NoError(t, err)
		require.Equal(t, raw, got)
	})
	for _, raw := range []string{
		"+9109876543210", "+915876543210", "+11234567890", "+91987654321", "+91 9876543210", "+9198765432１",
		"+91987654321x", "+91x876543210", "+1202555012x", "+1x025550123",
	} {
		require.False(t, canonical(raw), raw)
	}
}

func TestParsePhone_FormerPlans(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ raw, region, want, fold string }{
		{"+52 1 55 1234 5678", "IN", "+5215512345678", "+525512345678"},
		{"whatsapp:5215512345678", "IN", "+5215512345678", "+525512345678"},
		{"5215512345678", "MX", "+5215512345678", "+525512345678"},
		{"1 55 1234 5678", "MX", "+5215512345678", "+525512345678"},
		{"0052 1 55 1234 5678", "IN", "+5215512345678", "+525512345678"},
		{"044 55 1234 5678", "MX", "+525512345678", "+525512345678"},
		{"+52 01 55 1234 5678", "IN", "+525512345678", "+525512345678"},
		{"+55 (11) 8765-4321", "IN", "+551187654321", "+5511987654321"},
		{"(11) 8765-4321", "BR", "+551187654321", "+5511987654321"},
		{"551187654321", "BR", "+551187654321", "+5511987654321"},
		{"+229 97 12 34 56", "IN", "+22997123456", "+2290197123456"},
		{"97 12 34 56", "BJ", "+22997123456", "+2290197123456"},
		{"22997123456", "BJ", "+22997123456", "+2290197123456"},
		{"+225 07 12 34 56", "IN", "+22507123456", "+2250707123456"},
		{"07 12 34 56", "CI", "+22507123456", "+2250707123456"},
		{"45 12 34 56", "CI", "+22545123456", "+2250545123456"},
		{"20 21 22 23", "CI", "+22520212223", "+2252720212223"},
		{"63 12 34 56", "CI", "", ""}, // no operator had 63
		{"0168 123 4567", "VN", "+841681234567", "+84381234567"},
		{"+84 120 123 4567", "IN", "+841201234567", "+84701234567"},
		{"841991234567", "VN", "+841991234567", "+84591234567"},
		{"+57 (1) 234 5678", "IN", "+5712345678", "+576012345678"},
		{"5712345678", "CO", "+5712345678", "+576012345678"},
		{"03 1 234 5678", "CO", "+5712345678", "+576012345678"},
		{"03 300 123 4567", "CO", "+573001234567", "+573001234567"},
		{"300 123 4567", "CO", "+573001234567", "+573001234567"},
		{"+241 06 03 12 34", "IN", "+24106031234", "+24166031234"},
		{"06 03 12 34", "GA", "+24106031234", "+24166031234"},
		{"066 03 12 34", "GA", "+24166031234", "+24166031234"},
		{"+241 6 03 12 34", "IN", "+2416031234", "+24166031234"},
		{"+241 1 76 16 16", "IN", "+2411761616", "+24111761616"},
	} {
		got, err := ParsePhone(c.raw, c.region, Hint{})
		require.Equal(t, c.want, got, "%s in %s: %v", c.raw, c.region, err)
		require.Equal(t, c.fold, FoldPhone(got), c.raw)
	}
}

func TestParsePhone_Country(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, raw, region string
		hint              Hint
		want              string
	}{
		{"no country", "0151 23456789", "IN", Hint{}, ""},
		{"code", "0151 23456789", "IN", Hint{Country: "49"}, "+4915123456789"},
		{"code with plus", "0151 23456789", "IN", Hint{Country: "+49"}, "+4915123456789"},
		{"ISO code", "0151 23456789", "IN", Hint{Country: "de"}, "+4915123456789"},
		{"name", "0151 23456789", "IN", Hint{Country: "Germany"}, "+4915123456789"},
		{"digits with the country's code", "4915123456789", "IN", Hint{Country: "DE"}, "+4915123456789"},
		{"former plan", "(11) 8765-4321", "IN", Hint{Country: "Brazil"}, "+551187654321"},
		{"a plus comes first", "+91 98765 43210", "US", Hint{Country: "DE"}, "+919876543210"},
		{"not valid there, but at home", "(202) 555-0123", "US", Hint{Country: "Singapore"}, "+12025550123"},
		{"no country at all", "98765 43210", "IN", Hint{Country: "Earth"}, "+919876543210"},
		{"Indian mobile in a call", "9123456789", "IN", Hint{Country: "DE"}, "+919123456789"},
		{"Indian mobile of another account", "9123456789", "AE", Hint{Country: "IN"}, "+919123456789"},
		{"the same digits in a file", "9123456789", "IN", Hint{Country: "DE", From: File}, "+499123456789"},
		{"the same digits at an intake", "9123456789", "IN", Hint{Country: "DE", From: Post}, "+499123456789"},
	} {
		got, _ := ParsePhone(c.raw, c.region, c.hint)
		require.Equal(t, c.want, got, c.name)
	}
}

func requirePhoneLaws(t require.TestingT, raw, region string) {
	got, err := ParsePhone(raw, region, Hint{})
	if err != nil {
		require.Empty(t, got)
		return
	}
	require.Regexp(t, regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`), got)
	for _, r := range []string{region, "IN", "US", "DE", ""} {
		again, err := ParsePhone(got, r, Hint{})
		require.NoError(t, err, "%q in %s", raw, r)
		require.Equal(t, got, again, "%q in %s", raw, r)
	}
	requireFoldLaws(t, got)
}

// requireFoldLaws requires the properties of the fold of an E.164 number.
func requireFoldLaws(t require.TestingT, phone string) {
	fold, forms := FoldPhone(phone), PhoneForms(phone)
	require.Equal(t, fold, FoldPhone(fold), "folding is idempotent")
	require.Contains(t, forms, phone)
	require.Contains(t, forms, fold)
	for _, form := range forms {
		require.Equal(t, fold, FoldPhone(form), form)
		require.ElementsMatch(t, forms, PhoneForms(form), form)
		parsed, err := ParsePhone(form, "IN", Hint{})
		require.NoError(t, err, form)
		require.Equal(t, form, parsed, "every form is canonical")
	}
}

func TestFoldPhone_Forms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, phone, want string }{
		{"Mexican mobile with the 1", "+5215512345678", "+525512345678"},
		{"Mexican number today", "+525512345678", "+525512345678"},
		{"Mexican number of eleven digits without a 1", "+5225512345678", "+5225512345678"},
		{"Brazilian mobile of eight digits with 9", "+551197654321", "+5511997654321"},
		{"with 8", "+552187654321", "+5521987654321"},
		{"with 7", "+551171234567", "+5511971234567"},
		{"with 6", "+551163654321", "+5511963654321"},
		{"Brazilian mobile today", "+5511987654321", "+5511987654321"},
		{"Brazilian radio number", "+551178654321", "+551178654321"},
		{"Brazilian land line", "+551132654321", "+551132654321"},
		{"an invalid Brazilian area code", "+550187654321", "+550187654321"},
		{"Benin of eight digits", "+22997123456", "+2290197123456"},
		{"Benin today", "+2290197123456", "+2290197123456"},
		{"a service in Benin", "+22981123456", "+22981123456"},
		{"Moov mobile in Côte d'Ivoire", "+22501123456", "+2250101123456"},
		{"MTN mobile", "+22556123456", "+2250556123456"},
		{"Orange mobile", "+22549123456", "+2250749123456"},
		{"MTN land line", "+22521012345", "+2252521012345"},
		{"Moov land line", "+22523812345", "+2252123812345"},
		{"Orange land line", "+22532712345", "+2252732712345"},
		{"no operator's", "+22563123456", "+22563123456"},
		{"no operator's land line", "+22520112345", "+22520112345"},
		{"a number of today cut short", "+22527203456", "+22527203456"},
		{"Côte d'Ivoire today", "+2250707123456", "+2250707123456"},
		{"Gabon, land line with 0", "+24101761616", "+24111761616"},
		{"Gabon, land line without 0", "+2411761616", "+24111761616"},
		{"Libertis", "+24106031234", "+24166031234"},
		{"Moov in Gabon", "+24102031234", "+24162031234"},
		{"Airtel", "+2414031234", "+24174031234"},
		{"an operator that had left", "+2413031234", "+24103031234"},
		{"Gabon today", "+24177280150", "+24177280150"},
		{"MobiFone", "+841211234567", "+84791234567"},
		{"VinaPhone", "+841271234567", "+84811234567"},
		{"Viettel", "+841621234567", "+84321234567"},
		{"Vietnamobile", "+841861234567", "+84561234567"},
		{"a prefix that was never used", "+841871234567", "+841871234567"},
		{"Vietnamese freephone", "+841800123456", "+841800123456"},
		{"Vietnam today", "+84381234567", "+84381234567"},
		{"Colombian land line", "+5746123456", "+576046123456"},
		{"Colombian mobile", "+573001234567", "+573001234567"},
		{"Colombia today", "+576012345678", "+576012345678"},
		{"Argentine mobile", "+5491123456789", "+5491123456789"},
		{"Argentine number without the 9", "+541123456789", "+541123456789"},
		{"Indian mobile", "+919876543210", "+919876543210"},
		{"North American number", "+12025550123", "+12025550123"},
		{"nothing", "", ""},
	} {
		require.Equal(t, c.want, FoldPhone(c.phone), c.name)
	}
	require.Equal(t, []string{"+525512345678", "+5215512345678"}, PhoneForms("+525512345678"))
	require.Equal(t, []string{"+919876543210"}, PhoneForms("+919876543210"))
	require.ElementsMatch(t, []string{"+24166031234", "+24106031234", "+2416031234"}, PhoneForms("+2416031234"))
}

func TestFoldPhone_Laws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		phone :=
			rapid.StringMatching(`\+(52[1-9]?[2-9][0-9]{9}|55[1-9][1-9]9?[2-9][0-9]{7}|229(01)?[24-9][0-9]{7}|549?11[2-9][0-9]{7}`+
				`|225(0[157]|2[157])?[0-9]{8}|241[0167]?[1-7][0-9]{6}|84(1[2689])?[0-9]{8}|57(60)?[1-8][0-9]{7}|[1-9][0-9]{6,14})`).
				Filter(func(phone string) bool {
					_, err := ParsePhone(phone, "IN", Hint{})
					return err == nil
				}).Draw(t, "phone")
		phone, err := ParsePhone(phone, "IN", Hint{})
		require.NoError(t, err)
		requireFoldLaws(t, phone)
	})
}

func TestParsePhone_Idempotent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.OneOf(
			rapid.StringMatching(`[ (+]{0,2}[0-9]{1,4}[-. )/]?[0-9]{2,6}[-. ]?[0-9]{2,6}( ?(x|ext\.?|#)[0-9]{1,4})?`),
			rapid.StringMatching(`\+[1-9][0-9]{6,14}`),
			rapid.String(),
		).Draw(t, "raw")
		requirePhoneLaws(t, raw,
			rapid.SampledFrom([]string{"IN", "US", "DE", "ID", "IT", "MX", "AR", "BR", "CI", "CO", "GA", "VN", ""}).
				Draw(t, "region"))
	})
}

func FuzzParsePhone(f *testing.F) {
	for _, raw := range []string{
		"9876543210", "+919876543210", "00919876543210", "+91 (0) 98765-43210", "tel:+1-202-555-0123;ext=5",
		"+551187654321", "+5521987654321", "+22997123456", "+2290197123456", "+525512345678",
		"９８７６５４３２１０", "٩٨٧٦٥٤٣٢١٠", "98765\u00a043210", "p:+5215512345678",
		"+54 9 11 2345 6789", "+390669821234", "+55 0 21 11 2345-6789", "\xff",
		"0919876543210", "+91 919876543210", "4915123456789", "001-202-555-0123x1234", "whatsapp:5215512345678",
		"044 55 1234 5678", "0168 123 4567", "06 03 12 34", "07 12 34 56", "(1) 234 5678", "98765 43210, ext: 12",
	} {
		f.Add(raw, "IN")
		f.Add(raw, "BR")
	}
	f.Add("0151 23456789", "VN")
	f.Fuzz(func(t *testing.T, raw, region string) {
		requirePhoneLaws(t, raw, region)
		_, _ = ParsePhone(raw, region, Hint{Country: region})
		require.True(t, KnownRegion(RegionOf(raw)) || RegionOf(raw) == "")
	})
}
