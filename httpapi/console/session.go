package console

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/leadlog/leadlog/eventstore/sealbox"
)

// Identity is the user of a session, from the claims of a JWT, with which the session ends, or from a sign-in provider.
type Identity struct {
	Account string    `json:"account"`
	Subject string    `json:"subject"`
	Scopes  []string  `json:"scopes"`
	Issued  time.Time `json:"issued,omitzero"` // by which an account revokes JWTs
	Expires time.Time `json:"expires"`

	Provider bool `json:"provider,omitzero"` // signed in at the sign-in provider, and not by a JWT
}

// May reports whether the user has a scope. Every user has the empty scope.
func (i Identity) May(scope string) bool { return scope == "" || slices.Contains(i.Scopes, scope) }

// newBox returns the box that seals sessions. Its key is derived from the console's.
func newBox(key []byte) *sealbox.Box {
	derived, err := hkdf.Key(sha256.New, key, nil, "leadlog console session", sealbox.KeySize)
	if err != nil {
		panic(err) // a key of any length can be derived from
	}
	box, err := sealbox.New(derived)
	if err != nil {
		panic(err) // its size is right
	}
	return box
}

const cookieName = "leadlog_console"

// cookieOf returns a cookie's name. Over https it has a prefix that makes browsers accept it over https only, so that
// no other host of the network can replace it. The prefix __Host- would need the path /.
func (c *Console) cookieOf(r *http.Request, name string) string {
	if c.Gate.Secure(r) {
		return "__Secure-" + name
	}
	return name
}

// cookie returns a cookie that browsers send only to the console, and only from its own pages.
func (c *Console) cookie(r *http.Request, value string) *http.Cookie {
	return &http.Cookie{
		Name: c.cookieOf(r, cookieName), Value: value, Path: c.Base, HttpOnly: true, Secure: c.Gate.Secure(r),
		SameSite: http.SameSiteStrictMode,
	}
}

// begin sets the session's cookie.
func (c *Console) begin(w http.ResponseWriter, r *http.Request, i Identity) error {
	session, err := json.Marshal(i)
	if err != nil {
		return err
	}
	sealed, err := c.box.Seal(session, nil)
	if err != nil {
		return err
	}
	cookie := c.cookie(r, sealed.String())
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

// identity returns the user of the session that the browser's cookie holds. Not ok: there is no session, or it has
// expired.
func (c *Console) identity(r *http.Request) (i Identity, ok bool) {
	cookie, err := r.Cookie(c.cookieOf(r, cookieName))
	if err != nil {
		return i, false
	}
	sealed, err := sealbox.Parse(cookie.Value)
	if err != nil {
		return i, false
	}
	session, err := c.box.Open(sealed, nil)
	if err != nil || json.Unmarshal(session, &i) != nil {
		return Identity{}, false
	}
	return i, c.Now().Before(i.Expires)
}

// newCode returns a secret of 128 bits that can be pasted.
func newCode() string { return rand.Text() }
