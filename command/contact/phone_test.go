package contact

import (
	"regexp"
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
	} {
		got, err := ParsePhone(c.raw, c.region)
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
		"too short":                         "12345",
		"too long":                          "98765432109876543",
		"no number of this region":          "0000000000",
		"zero before a bare country code":   "0919876543210",
		"exact, but of 6 digits":            "+911234",
		"exact, but of 16 digits":           "+9198765432101234",
		"unknown country code":              "+2101234567",
		"country code zero":                 "+0919876543210",
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
		got, err := ParsePhone(raw, "IN")
		require.Error(t, err, "%s: got %s", name, got)
		require.Empty(t, got, name)
		require.Equal(t, "is not a valid phone number", err.Error())
	}
	_, err := ParsePhone("9876543210", "")
	require.Error(t, err, "a national number without a region")
	_, err = ParsePhone("9876543210", "ZZ")
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

// Example numbers of every numbering plan of the library: no trunk or carrier prefix changes a canonical number.
func TestParsePhone_EveryRegion(t *testing.T) {
	t.Parallel()
	types := []phonenumbers.PhoneNumberType{phonenumbers.FIXED_LINE, phonenumbers.MOBILE, phonenumbers.TOLL_FREE, phonenumbers.UAN}
	seen := 0
	for region := range phonenumbers.GetSupportedRegions() {
		for _, kind := range types {
			example := phonenumbers.GetExampleNumberForType(region, kind)
			if example == nil || !phonenumbers.IsValidNumber(example) {
				continue
			}
			e164 := phonenumbers.Format(example, phonenumbers.E164)
			if !isE164(e164) { // an island with four-digit numbers
				continue
			}
			for _, written := range []string{
				e164,
				phonenumbers.Format(example, phonenumbers.INTERNATIONAL),
			} {
				got, err := ParsePhone(written, "IN")
				require.NoError(t, err, written)
				again, err := ParsePhone(got, region)
				require.NoError(t, err, written)
				require.Equal(t, got, again, written)
				require.Equal(t, e164, got, written)
			}
			seen++
		}
	}
	require.Greater(t, seen, 400)
}

func TestParsePhone_ShortcutAgrees(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.StringMatching(`\+(91[6-9][0-9]{9}|1[2-9][0-9]{9})`).Draw(t, "raw")
		require.True(t, canonical(raw))
		// A leading space disables the shortcut and is trimmed.
		got, err := ParsePhone(" "+raw, "IN")
		require.NoError(t, err)
		require.Equal(t, raw, got)
	})
	for _, raw := range []string{"+9109876543210", "+915876543210", "+11234567890", "+91987654321", "+91 9876543210", "+9198765432１", "+91987654321x", "+91x876543210", "+1202555012x", "+1x025550123"} {
		require.False(t, canonical(raw), raw)
	}
}

func requirePhoneLaws(t require.TestingT, raw, region string) {
	got, err := ParsePhone(raw, region)
	if err != nil {
		require.Empty(t, got)
		return
	}
	require.Regexp(t, regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`), got)
	for _, r := range []string{region, "IN", "US", "DE", ""} {
		again, err := ParsePhone(got, r)
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
		parsed, err := ParsePhone(form, "IN")
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
}

func TestFoldPhone_Laws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		phone := rapid.StringMatching(`\+(52[1-9]?[2-9][0-9]{9}|55[1-9][1-9]9?[2-9][0-9]{7}|229(01)?[24-9][0-9]{7}|549?11[2-9][0-9]{7}|[1-9][0-9]{6,14})`).
			Filter(func(phone string) bool { _, err := ParsePhone(phone, "IN"); return err == nil }).Draw(t, "phone")
		phone, err := ParsePhone(phone, "IN")
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
		requirePhoneLaws(t, raw, rapid.SampledFrom([]string{"IN", "US", "DE", "IT", "MX", "AR", "BR", ""}).Draw(t, "region"))
	})
}

func FuzzParsePhone(f *testing.F) {
	for _, raw := range []string{
		"9876543210", "+919876543210", "00919876543210", "+91 (0) 98765-43210", "tel:+1-202-555-0123;ext=5",
		"+551187654321", "+5521987654321", "+22997123456", "+2290197123456", "+525512345678", "９８７６５４３２１０", "٩٨٧٦٥٤٣٢١٠", "98765\u00a043210", "p:+5215512345678", "+54 9 11 2345 6789", "+390669821234", "+55 0 21 11 2345-6789", "\xff",
	} {
		f.Add(raw, "IN")
		f.Add(raw, "BR")
	}
	f.Fuzz(func(t *testing.T, raw, region string) { requirePhoneLaws(t, raw, region) })
}
