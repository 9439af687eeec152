package intake

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

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
	SchemeQuery  = "query"
)

const (
	googleKey           = "google_key"
	headerAuthorization = "Authorization"
	defaultQueryName    = "key"
)

// Sent reads where a request has proofs: functions such as http.Header.Get and url.Values.Get.
type Sent struct{ Header, Query func(name string) string }

// Verify checks the proof of a post over its raw body. Secrets are compared in constant time. The error is ErrProof.
func Verify(settings event.IntakeSettings, secrets Secrets, sent Sent, body []byte, now time.Time) error {
	if proves, ok := readProof(settings, secrets.at(now), sent, now); !ok || proves != nil && !proves(body) {
		return ErrProof
	}
	return nil
}

// VerifyHeaders checks what the headers and the query alone prove, before the body is read. Proven is false if the
// proof depends on the body too. The error is ErrProof.
func VerifyHeaders(settings event.IntakeSettings, secrets Secrets, sent Sent, now time.Time) (proven bool, err error) {
	proves, ok := readProof(settings, secrets.at(now), sent, now)
	if !ok {
		return false, ErrProof
	}
	return proves == nil, nil
}

// overBody reports whether a body has the proof that was read from the headers.
type overBody func(body []byte) bool

// readProof reads the proof by any of the secrets. Ok is false if no body has it. A nil function means that every body
// has it.
func readProof(settings event.IntakeSettings, secrets []string, sent Sent, now time.Time) (proves overBody, ok bool) {
	known := func(given string) bool {
		return slices.ContainsFunc(secrets, func(secret string) bool { return same(given, secret) })
	}
	switch settings.Kind {
	case Form:
		return nil, true // its address is public
	case GoogleLeadForm:
		return func(body []byte) bool { return known(memberText(body, googleKey)) }, true
	case Webhook:
		if s := settings.Signature; s != nil && s.Scheme != SchemeHMAC && s.Scheme != "" {
			return nil, known(sentSecret(*s, sent))
		}
	}
	var keys [][]byte
	for _, secret := range secrets {
		if key := signingKey(settings.Kind, secret); len(key) > 0 {
			keys = append(keys, key)
		}
	}
	for _, s := range signaturesOf(settings) {
		if proves, ok := signatureOver(s, keys, sent.Header, now); ok {
			return proves, true
		}
	}
	return nil, false
}

// signaturesOf returns the ways in which the senders of an intake sign.
func signaturesOf(settings event.IntakeSettings) []event.IntakeSignature {
	if settings.Kind == Webhook && settings.Signature != nil && settings.Signature.Header != "" {
		return []event.IntakeSignature{*settings.Signature}
	}
	return kindSignatures[settings.Kind]
}

// sentSecret returns the secret itself, as a request has it in a header or in the query; empty if it has none.
func sentSecret(s event.IntakeSignature, sent Sent) string {
	if s.Scheme == SchemeQuery {
		return sent.Query(queryName(s))
	}
	value := strings.TrimSpace(sent.Header(cmp.Or(s.Header, headerAuthorization)))
	switch s.Scheme {
	case SchemeBearer:
		return credentials(value, "Bearer")
	case SchemeBasic:
		pair, err := base64.StdEncoding.DecodeString(credentials(value, "Basic"))
		if err != nil {
			return ""
		}
		return string(pair)
	case SchemeHeader:
		if secret, ok := strings.CutPrefix(value, s.Prefix); ok && s.Header != "" {
			return secret
		}
	}
	return ""
}

func queryName(s event.IntakeSignature) string { return cmp.Or(s.Name, defaultQueryName) }

// Authenticate returns the value of WWW-Authenticate that asks for the proof of an intake; empty when no scheme of HTTP
// does.
func Authenticate(settings event.IntakeSettings) string {
	if settings.Signature == nil || settings.Signature.Header != "" &&
		!strings.EqualFold(settings.Signature.Header, headerAuthorization) {
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

// credentials returns the text after the name of an authentication scheme, whose case does not matter (RFC 9110, 11.1).
func credentials(value, scheme string) string {
	name, rest, ok := strings.Cut(value, " ")
	if !ok || !strings.EqualFold(name, scheme) {
		return ""
	}
	return strings.TrimSpace(rest)
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

// maxHeaders is how many bytes of headers are kept.
const maxHeaders = 16 << 10

// credentialHeaders are never kept.
var credentialHeaders = map[string]bool{
	"authorization": true, "proxy-authorization": true, "cookie": true, "set-cookie": true, "x-api-key": true,
	"x-auth-token":    true,
	"x-hub-signature": true,
}

// VisibleHeaders returns the headers that a mapping may see, by names in lower case: all but credentials, cookies and
// signatures. Of a repeated header it has the first value. Headers beyond 16 KiB together are left out.
func VisibleHeaders(settings event.IntakeSettings, header map[string][]string) map[string]string {
	proofs := map[string]bool{}
	for _, s := range signaturesOf(settings) {
		proofs[strings.ToLower(s.Header)] = true
	}
	visible, size := make(map[string]string, len(header)), 0
	for _, name := range sortedKeys(header) {
		lower := strings.ToLower(name)
		if credentialHeaders[lower] || proofs[lower] || len(header[name]) == 0 {
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

// VisibleQuery returns the parameters of a query that a mapping may see: all but the secret. Of a repeated one it has
// the first value. As in a form, a phone of a sender that is no browser may have lost its plus.
func VisibleQuery(settings event.IntakeSettings, query string, browser bool) map[string]string {
	visible := map[string]string{}
	for pair := range strings.SplitSeq(query, "&") {
		name, value, err := decodePair(pair, browser)
		secret := settings.Signature != nil && settings.Signature.Scheme == SchemeQuery &&
			name == queryName(*settings.Signature)
		if err != nil || secret || pair == "" {
			continue
		}
		name = event.Text(name)
		if _, repeated := visible[name]; !repeated {
			visible[name] = event.Text(value)
		}
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
