package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
)

// Identity is who signed in, as the JWT says. A session ends when the JWT expires.
type Identity struct {
	Account string    `json:"account"`
	Subject string    `json:"subject"`
	Scopes  []string  `json:"scopes"`
	Issued  time.Time `json:"issued,omitzero"` // by which an account revokes JWTs
	Expires time.Time `json:"expires"`
}

// May reports whether the user has a scope. Every user has the empty scope.
func (i Identity) May(scope string) bool { return scope == "" || slices.Contains(i.Scopes, scope) }

// seals encrypts and authenticates what is stored in a browser's cookie.
type seals struct{ aead cipher.AEAD }

func newSeals(key []byte) *seals {
	derived, err := hkdf.Key(sha256.New, key, nil, "leadlog console session", 32)
	if err != nil {
		panic(err) // 32 bytes can be derived of any key
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		panic(err) // 32 bytes are a key
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES is what it is for
	}
	return &seals{aead}
}

func (s *seals) seal(i Identity) (string, error) {
	plain, err := json.Marshal(i)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, nil)), nil
}

func (s *seals) open(sealed string) (i Identity, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return i, false
	}
	plain, err := s.aead.Open(nil, nil, raw, nil)
	if err != nil {
		return i, false
	}
	err = json.Unmarshal(plain, &i)
	return i, err == nil
}

const cookieName = "leadlog_console"

// cookieOf returns the cookie's name. By https it has a prefix with which browsers take it only by https, and so no other host of the
// network can put one of its own in its place. __Host- would need the path of all of the host.
func (c *Console) cookieOf(r *http.Request) string {
	if c.Gate.Secure(r) {
		return "__Secure-" + cookieName
	}
	return cookieName
}

// cookie returns a cookie that browsers send only to the console, and only from its own pages.
func (c *Console) cookie(r *http.Request, value string) *http.Cookie {
	return &http.Cookie{
		Name: c.cookieOf(r), Value: value, Path: c.Base, HttpOnly: true, Secure: c.Gate.Secure(r), SameSite: http.SameSiteStrictMode,
	}
}

// begin sets the session's cookie in the browser.
func (c *Console) begin(w http.ResponseWriter, r *http.Request, i Identity) error {
	sealed, err := c.seals.seal(i)
	if err != nil {
		return err
	}
	cookie := c.cookie(r, sealed)
	cookie.Expires = i.Expires
	http.SetCookie(w, cookie)
	return nil
}

// end deletes the session's cookie.
func (c *Console) end(w http.ResponseWriter, r *http.Request) {
	cookie := c.cookie(r, "")
	cookie.MaxAge = -1
	http.SetCookie(w, cookie)
}

// identity returns who the browser is signed in as, if it is.
func (c *Console) identity(r *http.Request) (Identity, bool) {
	cookie, err := r.Cookie(c.cookieOf(r))
	if err != nil {
		return Identity{}, false
	}
	i, ok := c.seals.open(cookie.Value)
	return i, ok && c.Now().Before(i.Expires)
}

// newCode is a secret of 128 bits that people can paste.
func newCode() string { return rand.Text() }
