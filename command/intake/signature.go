package intake

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore/event"
)

// DefaultTolerance is how far a signed timestamp may be from now.
const DefaultTolerance = 5 * time.Minute

// maxTolerance is the longest tolerance that a signature may have.
const maxTolerance = 24 * time.Hour

// Placeholders in the format of a signature's header and in the text that is signed.
const (
	placeholderSignature = "{signature}"
	placeholderTimestamp = "{timestamp}"
	placeholderID        = "{id}"
	placeholderBody      = "{body}"
)

// kindSignatures is how the senders of each kind sign. Those of kind webhook sign as its settings say. A kind with
// several signs in one of these ways.
var kindSignatures = map[string][]event.IntakeSignature{
	MetaLeadAds: metaSignatures,
	WhatsApp:    metaSignatures,
	Typeform:    {{Header: "Typeform-Signature", Format: "sha256={signature}", Encoding: base64Encoding}},
	Razorpay:    {{Header: "X-Razorpay-Signature"}},
	// standardwebhooks.com; Svix, from which it comes, has other names of headers
	StandardWebhooks: {standardSignature("webhook-"), standardSignature("svix-")},
}

var metaSignatures = []event.IntakeSignature{{Header: "X-Hub-Signature-256", Format: "sha256={signature}"}}

func standardSignature(prefix string) event.IntakeSignature {
	return event.IntakeSignature{
		Header: prefix + "signature", IDHeader: prefix + "id", TimestampHeader: prefix + "timestamp",
		Format: "v1,{signature}", Signed: "{id}.{timestamp}.{body}", Encoding: base64Encoding,
	}
}

const base64Encoding = "base64"

// signatureOver is the proof of one way of signing: the HMAC of a text with the body in it, with one of the keys. Ok is
// false if no body has this proof: a header is missing, or the signed timestamp is too far from now.
func signatureOver(
	s event.IntakeSignature, keys [][]byte, header func(name string) string, now time.Time,
) (proves overBody, ok bool) {
	given := readSignatures(s, header)
	if len(given.signatures) == 0 || len(keys) == 0 {
		return nil, false
	}
	signed := partsOf(signedText(s))
	if slices.Contains(signed, placeholderTimestamp) && !recent(given.timestamp, now, tolerance(s)) {
		return nil, false
	}
	if slices.Contains(signed, placeholderID) && given.id == "" {
		return nil, false
	}
	return func(body []byte) bool {
		return slices.ContainsFunc(keys, func(key []byte) bool {
			mac := hmac.New(algorithm(s.Algorithm), key)
			for _, part := range signed {
				switch part {
				case placeholderBody:
					_, _ = mac.Write(body) // a hash returns no error
				case placeholderTimestamp:
					_, _ = io.WriteString(mac, given.timestamp)
				case placeholderID:
					_, _ = io.WriteString(mac, given.id)
				default:
					_, _ = io.WriteString(mac, part)
				}
			}
			sum := mac.Sum(nil)
			return slices.ContainsFunc(given.signatures, func(one []byte) bool { return hmac.Equal(one, sum) })
		})
	}, true
}

// signedText is the text that a sender signs, with placeholders.
func signedText(s event.IntakeSignature) string {
	if s.Signed == "" {
		return placeholderBody
	}
	return s.Signed
}

// signatureFormat is the format of the header of a signature.
func signatureFormat(s event.IntakeSignature) string {
	if s.Format == "" {
		return s.Prefix + placeholderSignature
	}
	return s.Format
}

func tolerance(s event.IntakeSignature) time.Duration {
	if duration, err := time.ParseDuration(s.Tolerance); err == nil {
		return duration
	}
	return DefaultTolerance
}

// sentSignatures are the signatures of a post, and what it says to be signed beside the body.
type sentSignatures struct {
	signatures    [][]byte
	timestamp, id string
}

// readSignatures reads a post's headers. Elements of the header that are not in the format, such as those of other
// versions, are left out.
func readSignatures(s event.IntakeSignature, header func(name string) string) (sent sentSignatures) {
	if s.TimestampHeader != "" {
		sent.timestamp = strings.TrimSpace(header(s.TimestampHeader))
	}
	if s.IDHeader != "" {
		sent.id = strings.TrimSpace(header(s.IDHeader))
	}
	f := parseFormat(signatureFormat(s))
	for _, element := range strings.FieldsFunc(header(s.Header), f.separates) {
		for _, known := range f.elements {
			value, ok := strings.CutPrefix(strings.TrimSpace(element), known.prefix)
			if !ok {
				continue
			}
			switch known.placeholder {
			case placeholderTimestamp:
				sent.timestamp = value
			case placeholderID:
				sent.id = value
			case placeholderSignature:
				decoded, err := decoder(s.Encoding)(value)
				if err == nil && len(decoded) == algorithm(s.Algorithm)().Size() {
					sent.signatures = append(sent.signatures, decoded)
				}
			}
		}
	}
	return sent
}

// format is a parsed format: the elements of a header, each a prefix and a value, in any order and number.
type format struct {
	elements  []formatElement
	separator string // between elements; empty: white space or, unless a prefix contains one, a comma
}

type formatElement struct{ prefix, placeholder string }

// placeholder matches what a sender fills in.
var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// partsOf splits a text into its placeholders and the texts between them.
func partsOf(text string) (parts []string) {
	for text != "" {
		at := placeholder.FindStringIndex(text)
		if at == nil {
			return append(parts, text)
		}
		if at[0] > 0 {
			parts = append(parts, text[:at[0]])
		}
		parts, text = append(parts, text[at[0]:at[1]]), text[at[1]:]
	}
	return parts
}

// parseFormat parses a format. The separator of its elements is the first character after a placeholder.
func parseFormat(text string) (f format) {
	prefix := ""
	for i, part := range partsOf(text) {
		switch {
		case placeholder.MatchString(part):
			f.elements = append(f.elements, formatElement{prefix, part})
			prefix = ""
		case i == 0:
			prefix = part
		default:
			f.separator = part[:1]
			prefix = strings.TrimSpace(part[1:])
		}
	}
	return f
}

func (f format) separates(r rune) bool {
	if f.separator != "" {
		return string(r) == f.separator
	}
	return r == ' ' || r == '\t' || r == ',' && !strings.Contains(f.elements[0].prefix, ",")
}

// recent reports whether a timestamp is near now. It is in seconds or milliseconds since 1970, or as in RFC 3339.
func recent(text string, now time.Time, tolerance time.Duration) bool {
	const firstMilliseconds = 1e11 // in seconds, the year 5138
	at, err := time.Parse(time.RFC3339, text)
	if number, notNumber := strconv.ParseInt(text, 10, 64); notNumber == nil {
		err = nil
		if at = time.Unix(number, 0); number >= firstMilliseconds {
			at = time.UnixMilli(number)
		}
	}
	return err == nil && now.Sub(at).Abs() <= tolerance
}

func algorithm(name string) func() hash.Hash {
	switch name {
	case "sha1":
		return sha1.New
	case "sha512":
		return sha512.New
	}
	return sha256.New
}

func decoder(encoding string) func(string) ([]byte, error) {
	if encoding == base64Encoding {
		return decodeBase64
	}
	return hex.DecodeString
}

// decodeBase64 accepts both alphabets, with and without padding.
func decodeBase64(s string) ([]byte, error) {
	s = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(s, "="))
	return base64.RawStdEncoding.DecodeString(s)
}

// signingKey is the key of a kind's HMAC; nil if the secret is none.
func signingKey(kind, secret string) []byte {
	if kind != StandardWebhooks || secret == "" {
		return []byte(secret)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, webhook.SecretPrefix))
	if err != nil {
		return nil
	}
	return key
}

// signatureMembers are the members of a signature besides its scheme, and the schemes that have them.
var signatureMembers = []struct {
	name    string
	of      func(*event.IntakeSignature) *string
	schemes []string
}{
	{"header", func(s *event.IntakeSignature) *string { return &s.Header }, []string{SchemeHMAC, SchemeHeader}},
	{"algorithm", func(s *event.IntakeSignature) *string { return &s.Algorithm }, []string{SchemeHMAC}},
	{"encoding", func(s *event.IntakeSignature) *string { return &s.Encoding }, []string{SchemeHMAC}},
	{"prefix", func(s *event.IntakeSignature) *string { return &s.Prefix }, []string{SchemeHMAC, SchemeHeader}},
	{"format", func(s *event.IntakeSignature) *string { return &s.Format }, []string{SchemeHMAC}},
	{"timestampHeader", func(s *event.IntakeSignature) *string { return &s.TimestampHeader }, []string{SchemeHMAC}},
	{"idHeader", func(s *event.IntakeSignature) *string { return &s.IDHeader }, []string{SchemeHMAC}},
	{"signed", func(s *event.IntakeSignature) *string { return &s.Signed }, []string{SchemeHMAC}},
	{"tolerance", func(s *event.IntakeSignature) *string { return &s.Tolerance }, []string{SchemeHMAC}},
	{"name", func(s *event.IntakeSignature) *string { return &s.Name }, []string{SchemeQuery}},
}

// OfScheme returns a signature without the members that its scheme does not have.
func OfScheme(s event.IntakeSignature) event.IntakeSignature {
	for _, member := range signatureMembers {
		if !slices.Contains(member.schemes, cmp.Or(s.Scheme, SchemeHMAC)) {
			*member.of(&s) = ""
		}
	}
	return s
}

// checkedSignature returns how the senders of an intake of kind webhook prove themselves, with its defaults, and the
// errors of its fields.
func checkedSignature(s event.IntakeSignature) (event.IntakeSignature, field.Errors) {
	var wrong field.Errors
	oneOf := func(name string, value *string, values ...string) {
		if *value == "" {
			*value = values[0]
		}
		if !slices.Contains(values, *value) {
			wrong.Add("signature."+name, "must be one of "+strings.Join(values, ", "))
		}
	}
	headerName := func(name string, value *string, required bool) {
		*value = strings.TrimSpace(*value)
		if !required && *value == "" {
			return
		}
		if *value == "" || !consistsOf(*value, letters+upper+headerMarks) || len(*value) > maxFieldKey {
			wrong.Add("signature."+name, "must be the name of a header")
		}
	}
	refuse := func(name, message string) {
		if message != "" {
			wrong.Add("signature."+name, message)
		}
	}
	oneOf("scheme", &s.Scheme, SchemeHMAC, SchemeBearer, SchemeBasic, SchemeHeader, SchemeQuery)
	given := s
	if s = OfScheme(s); wrong == nil {
		for _, member := range signatureMembers {
			if *member.of(&given) != *member.of(&s) {
				refuse(member.name, "is no part of scheme "+s.Scheme)
			}
		}
	}
	unsigned := func(name, value, placeholder string) {
		if value != "" && !strings.Contains(s.Signed, placeholder) {
			refuse(name, "has no effect unless signed has "+placeholder)
		}
	}
	switch s.Scheme {
	case SchemeHMAC:
		oneOf("algorithm", &s.Algorithm, "sha256", "sha1", "sha512")
		oneOf("encoding", &s.Encoding, "hex", base64Encoding)
		headerName("header", &s.Header, true)
		headerName("timestampHeader", &s.TimestampHeader, false)
		headerName("idHeader", &s.IDHeader, false)
		if s.Format != "" && s.Prefix != "" {
			refuse("prefix", "is part of the format")
		}
		refuse("format", wrongFormat(s.Format))
		refuse("signed", wrongSigned(s))
		s.Tolerance = strings.TrimSpace(s.Tolerance)
		refuse("tolerance", wrongTolerance(s.Tolerance))
		unsigned("tolerance", s.Tolerance, placeholderTimestamp)
		unsigned("timestampHeader", s.TimestampHeader, placeholderTimestamp)
		unsigned("idHeader", s.IDHeader, placeholderID)
	case SchemeHeader:
		headerName("header", &s.Header, true)
	case SchemeQuery:
		s.Name = cmp.Or(strings.TrimSpace(s.Name), defaultQueryName)
		if !consistsOf(s.Name, letters+upper+"-_.") || len(s.Name) > maxFieldKey {
			refuse("name",
				"must be the name of a query parameter: at most 100 letters, digits, hyphens, dots and underscores")
		}
	}
	if len(s.Prefix) > maxFieldKey || strings.ContainsFunc(s.Prefix, unicode.IsControl) {
		refuse("prefix", "must be at most 100 characters, none of them a control character")
	}
	return s, wrong
}

func wrongTolerance(text string) string {
	if text == "" {
		return ""
	}
	if d, err := time.ParseDuration(text); err != nil || d <= 0 || d > maxTolerance {
		return "must be a duration up to 24h, such as 5m"
	}
	return ""
}

const maxTemplate = 200 // bytes of a format, and of a signed text

func wrongFormat(text string) string {
	parts := partsOf(text)
	switch placeholders := placeholdersOf(parts); {
	case text == "":
		return ""
	case len(text) > maxTemplate || strings.ContainsFunc(text, unicode.IsControl):
		return "must be at most 200 bytes, none of them a control character"
	case count(placeholders, placeholderSignature) != 1 || !only(placeholders, placeholderSignature, placeholderTimestamp, placeholderID):
		return "must have {signature} once, and may have {timestamp} and {id}, such as t={timestamp},v1={signature}"
	case !placeholder.MatchString(parts[len(parts)-1]):
		return "must end with a placeholder"
	}
	separator := ""
	for i, part := range parts[1:] {
		if !placeholder.MatchString(parts[i]) {
			continue // part is the placeholder after a prefix
		}
		if strings.IndexByte(",;& ", part[0]) < 0 || separator != "" && part[:1] != separator {
			return "must have one of , ; & or a space between its placeholders, always the same"
		}
		separator = part[:1]
	}
	return ""
}

func wrongSigned(s event.IntakeSignature) string {
	placeholders := placeholdersOf(partsOf(s.Signed))
	switch {
	case s.Signed == "":
		return ""
	case len(s.Signed) > maxTemplate:
		return "must be at most 200 bytes"
	case count(placeholders, placeholderBody) != 1 || !only(placeholders, placeholderBody, placeholderTimestamp, placeholderID):
		return "must have {body} once, and may have {timestamp} and {id}, such as {timestamp}.{body}"
	case slices.Contains(placeholders, placeholderTimestamp) && s.TimestampHeader == "" &&
		!strings.Contains(s.Format, placeholderTimestamp):
		return "has a {timestamp} that neither timestampHeader nor format gives"
	case slices.Contains(placeholders, placeholderID) && s.IDHeader == "" && !strings.Contains(s.Format, placeholderID):
		return "has an {id} that neither idHeader nor format gives"
	}
	return ""
}

func placeholdersOf(parts []string) []string {
	return slices.DeleteFunc(slices.Clone(parts), func(part string) bool { return !placeholder.MatchString(part) })
}

func count(placeholders []string, name string) (n int) {
	for _, one := range placeholders {
		if one == name {
			n++
		}
	}
	return n
}

// only reports whether all placeholders are known, and none but the body and the signature, which are counted, is there
// twice.
func only(placeholders []string, known ...string) bool {
	for _, one := range placeholders {
		if !slices.Contains(known, one) || count(placeholders, one) > 1 {
			return false
		}
	}
	return true
}
