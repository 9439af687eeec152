package intake

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore/event"
)

// ErrProof means that a post does not prove that its sender knows the intake's secret.
var ErrProof = errors.New("missing or invalid proof")

// Schemes by which senders of kind webhook prove that they know the secret.
const (
	SchemeHMAC   = "hmac"
	SchemeBearer = "bearer"
	SchemeBasic  = "basic"
	SchemeHeader = "header"
)

// Tolerance is how far the timestamp of a signature may be from now.
const Tolerance = 5 * time.Minute

const (
	googleKey           = "google_key"
	headerMeta          = "X-Hub-Signature-256"
	headerTypeform      = "Typeform-Signature"
	headerRazorpay      = "X-Razorpay-Signature"
	headerAuthorization = "Authorization"
)

// Verify checks the proof of a post over its raw body. Secrets are compared in constant time. The header is a function such as
// http.Header.Get. The error is ErrProof.
func Verify(settings event.IntakeSettings, secrets Secrets, header func(name string) string, body []byte, now time.Time) error {
	if proves, ok := readProof(settings, secrets, header, now); !ok || proves != nil && !proves(body) {
		return ErrProof
	}
	return nil
}

// VerifyHeaders checks what the headers alone prove, before the body is read. Proven is false if the proof depends on the body too. The
// error is ErrProof.
func VerifyHeaders(settings event.IntakeSettings, secrets Secrets, header func(name string) string, now time.Time) (proven bool, err error) {
	proves, ok := readProof(settings, secrets, header, now)
	if !ok {
		return false, ErrProof
	}
	return proves == nil, nil
}

// overBody reports whether a body has the proof that was read from the headers.
type overBody func(body []byte) bool

// readProof reads the proof in the headers. Ok is false if no body has it. A nil function means that every body has it.
func readProof(settings event.IntakeSettings, secrets Secrets, header func(name string) string, now time.Time) (proves overBody, ok bool) {
	switch settings.Kind {
	case Form:
		return nil, true // its address is public
	case GoogleLeadForm:
		return func(body []byte) bool { return same(memberText(body, googleKey), secrets.Secret) }, true
	case MetaLeadAds:
		return signed(header(headerMeta), "sha256=", sha256.New, decodeHex, secrets.Signing())
	case Typeform:
		return signed(header(headerTypeform), "sha256=", sha256.New, decodeBase64, secrets.Secret)
	case Razorpay:
		return signed(header(headerRazorpay), "", sha256.New, decodeHex, secrets.Secret)
	case StandardWebhooks:
		return standardSigned(header, secrets.Secret, now)
	case Webhook:
		return webhookProof(settings.Signature, secrets.Secret, header)
	}
	return nil, false
}

// Authenticate returns the value of WWW-Authenticate that asks for the proof of an intake; empty when no scheme of HTTP does.
func Authenticate(settings event.IntakeSettings) string {
	if settings.Signature == nil || settings.Signature.Header != "" && !strings.EqualFold(settings.Signature.Header, headerAuthorization) {
		return ""
	}
	switch settings.Signature.Scheme {
	case SchemeBearer:
		return "Bearer"
	case SchemeBasic:
		return `Basic realm="intake", charset="UTF-8"`
	}
	return ""
}

// same compares a secret in constant time. An empty secret equals nothing.
func same(given, secret string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(secret)) // so that the length does not show either
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && secret != ""
}

// signed is the proof of a header with the HMAC of the body.
func signed(header, prefix string, algorithm func() hash.Hash, decode func(string) ([]byte, error), secret string) (overBody, bool) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(header), prefix)
	if !ok || secret == "" {
		return nil, false
	}
	signature, err := decode(encoded)
	mac := hmac.New(algorithm, []byte(secret))
	if err != nil || len(signature) != mac.Size() {
		return nil, false
	}
	return func(body []byte) bool {
		_, _ = mac.Write(body) // a hash returns no error
		return hmac.Equal(signature, mac.Sum(nil))
	}, true
}

func decodeHex(s string) ([]byte, error) { return hex.DecodeString(s) }

// decodeBase64 accepts both alphabets, with and without padding.
func decodeBase64(s string) ([]byte, error) {
	s = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(s, "="))
	return base64.RawStdEncoding.DecodeString(s)
}

// standardSigned is the proof of the Standard Webhooks specification (standardwebhooks.com). The header may have several signatures.
func standardSigned(header func(string) string, secret string, now time.Time) (overBody, bool) {
	id, timestamp := header("webhook-id"), header("webhook-timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || id == "" || secret == "" {
		return nil, false
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > Tolerance || age < -Tolerance {
		return nil, false
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, webhook.SecretPrefix))
	if err != nil || len(key) == 0 {
		return nil, false
	}
	var signatures [][]byte
	for field := range strings.FieldsSeq(header("webhook-signature")) {
		encoded, ok := strings.CutPrefix(field, "v1,")
		if signature, err := base64.StdEncoding.DecodeString(encoded); ok && err == nil && len(signature) == sha256.Size {
			signatures = append(signatures, signature)
		}
	}
	return func(body []byte) bool {
		mac := hmac.New(sha256.New, key)
		_, _ = io.WriteString(mac, id+"."+timestamp+".")
		_, _ = mac.Write(body)
		sum := mac.Sum(nil)
		return slices.ContainsFunc(signatures, func(signature []byte) bool { return hmac.Equal(signature, sum) })
	}, len(signatures) > 0
}

// webhookProof is the proof of an intake of kind webhook.
func webhookProof(s *event.IntakeSignature, secret string, header func(string) string) (proves overBody, ok bool) {
	if s == nil {
		return nil, false
	}
	value := strings.TrimSpace(header(cmp.Or(s.Header, headerAuthorization)))
	switch s.Scheme {
	case SchemeHMAC, "":
		decode := decodeHex
		if s.Encoding == "base64" {
			decode = decodeBase64
		}
		proves, ok = signed(value, s.Prefix, algorithm(s.Algorithm), decode, secret)
		return proves, ok && s.Header != ""
	case SchemeBearer:
		token, ok := credentials(value, "Bearer")
		return nil, ok && same(token, secret)
	case SchemeBasic:
		token, ok := credentials(value, "Basic")
		pair, err := base64.StdEncoding.DecodeString(token)
		return nil, ok && err == nil && same(string(pair), secret)
	case SchemeHeader:
		token, ok := strings.CutPrefix(value, s.Prefix)
		return nil, s.Header != "" && ok && same(token, secret)
	}
	return nil, false
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

// credentials returns the text after the name of an authentication scheme, whose case does not matter (RFC 9110, 11.1).
func credentials(value, scheme string) (string, bool) {
	name, rest, ok := strings.Cut(value, " ")
	return strings.TrimSpace(rest), ok && strings.EqualFold(name, scheme)
}

// memberText returns a text of a JSON object; empty when the object has none of this name, or the name twice.
func memberText(body []byte, name string) string {
	decoder := jsontext.NewDecoder(bytes.NewBuffer(bytes.TrimPrefix(body, byteOrderMark)))
	if token, err := decoder.ReadToken(); err != nil || token.Kind() != '{' {
		return ""
	}
	found := ""
	for decoder.PeekKind() == '"' {
		key, err := decoder.ReadToken()
		if err != nil {
			return ""
		}
		wanted := key.String() == name
		value, err := decoder.ReadValue()
		if err != nil {
			return ""
		}
		if wanted && value.Kind() == '"' {
			raw, err := jsontext.AppendUnquote(nil, value)
			if err != nil {
				return ""
			}
			found = string(raw)
		}
	}
	if _, err := decoder.ReadToken(); err != nil {
		return ""
	}
	return found
}

// Answers reports whether a challenge of Meta has the intake's token.
func (s Secrets) Answers(token string) bool { return same(token, s.Verifying()) }

// maxHeaders is how many bytes of headers are kept.
const maxHeaders = 16 << 10

// credentialHeaders are never kept.
var credentialHeaders = map[string]bool{
	"authorization": true, "proxy-authorization": true, "cookie": true, "set-cookie": true, "x-api-key": true, "x-auth-token": true,
	"x-hub-signature": true, "x-hub-signature-256": true, "typeform-signature": true, "x-razorpay-signature": true, "webhook-signature": true,
}

// VisibleHeaders returns the headers that a mapping may see, by names in lower case: all but credentials, cookies and signatures.
// Of a repeated header it has the first value. Headers beyond 16 KiB together are left out.
func VisibleHeaders(settings event.IntakeSettings, header map[string][]string) map[string]string {
	proof := ""
	if settings.Signature != nil {
		proof = strings.ToLower(settings.Signature.Header)
	}
	visible, size := make(map[string]string, len(header)), 0
	for _, name := range sortedKeys(header) {
		lower := strings.ToLower(name)
		if credentialHeaders[lower] || lower == proof || len(header[name]) == 0 {
			continue
		}
		value := strings.ToValidUTF8(strings.ReplaceAll(header[name][0], "\x00", ""), "\uFFFD")
		if size += len(lower) + len(value); size > maxHeaders {
			break
		}
		visible[lower] = value
	}
	return visible
}

// Masked returns the body of a post for people to read: without the proof that some kinds have in it.
func Masked(kind string, body []byte) []byte {
	if kind != GoogleLeadForm {
		return body
	}
	body = bytes.TrimPrefix(body, byteOrderMark)
	decoder := jsontext.NewDecoder(bytes.NewBuffer(body))
	if token, err := decoder.ReadToken(); err != nil || token.Kind() != '{' {
		return body
	}
	for decoder.PeekKind() == '"' {
		key, err := decoder.ReadToken()
		if err != nil {
			return body
		}
		proof := key.String() == googleKey
		value, err := decoder.ReadValue()
		if err != nil {
			return body
		}
		if proof {
			end := int(decoder.InputOffset())
			return slices.Concat(body[:end-len(value)], []byte(`"***"`), body[end:])
		}
	}
	return body
}
