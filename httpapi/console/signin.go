package console

import (
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/token"
)

// signIn is the form to sign in by.
type signIn struct {
	Next    string // the path to redirect to after the sign-in
	Code    string // of a link
	Message string // why it did not work

	Provider bool // people can sign in at one
}

func (v *visit) signInForm() (screen, error) {
	given := v.r.URL.Query()
	form := signIn{Next: v.destination(given.Get("next")), Code: given.Get("code"), Provider: v.Provider != nil}
	return screen{name: "signin", title: "Sign in", data: form}, nil
}

// Limits of forms, in bytes. The sign-in form, which needs no session, has a JWT of at most 8 KiB and a path.
const (
	maxForm   = 64 << 10
	maxSignIn = 16 << 10
)

// form returns the values of the submitted form.
func (v *visit) form() (url.Values, error) { return v.formWithin(maxForm) }

func (v *visit) formWithin(most int64) (url.Values, error) {
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, most)
	if err := v.r.ParseForm(); err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return nil, largeFormError(most)
		}
		return nil, errBadForm
	}
	for name, values := range v.r.PostForm {
		switch {
		case !isText(name):
			return nil, errBadForm
		case !isText(values...):
			return nil, notTextError(name)
		}
	}
	return v.r.PostForm, nil
}

// switchForm returns the value of a form that enables or disables a thing.
func (v *visit) switchForm() (enabled bool, err error) {
	form, err := v.form()
	if err != nil {
		return false, err
	}
	switch form.Get("enabled") {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, field.Errors{{Field: "enabled", Message: "must be true or false"}}
}

var errUsedCode = errors.New("a sign-in link that was used or has expired")

var errBadForm = errors.New("a form that cannot be read")

// largeFormError reports a form that is larger than its limit, in bytes.
type largeFormError int64

func (e largeFormError) Error() string {
	return "The form is larger than " + formatInt(int64(e>>10)) + " KiB"
}

// notTextError names a field of a form whose value cannot be stored as text.
type notTextError string

func (e notTextError) Error() string {
	return "The field " + string(e) + " must be UTF-8 text without NUL"
}

func isText(values ...string) bool {
	return !slices.ContainsFunc(values, func(s string) bool {
		return !utf8.ValidString(s) || strings.ContainsRune(s, 0)
	})
}

// signIn begins a session by a JWT or by the code of a link. Only submitting the form uses up the code: programs that
// preview links also open them.
func (v *visit) signIn() (screen, error) {
	form, err := v.formWithin(maxSignIn)
	if err != nil {
		return screen{}, err
	}
	next := v.destination(form.Get("next"))
	jwt := strings.TrimSpace(form.Get("jwt"))
	if code := form.Get("code"); code != "" {
		ok := false
		if jwt, ok = v.Codes.redeem(code); !ok {
			if err := v.Gate.Guess(v.r); err != nil {
				return screen{}, err
			}
			return v.refusedSignIn(next, "This link was already used or has expired.", errUsedCode), nil
		}
	}
	identity, err := v.Gate.SignIn(v.r, jwt)
	switch {
	case errors.Is(err, command.ErrUnauthorized) && token.LooksLikeValue(jwt):
		return v.refusedSignIn(next, "This is an API token. Sign in with a JWT instead.", err), nil
	case errors.Is(err, command.ErrUnauthorized):
		return v.refusedSignIn(next, "This JWT is invalid or has expired.", err), nil
	case err != nil:
		return screen{}, err
	}
	v.identity = identity // for the access log
	v.forgetIDToken()     // of an earlier session
	return screen{redirect: next}, v.begin(v.w, v.r, identity)
}

func (v *visit) refusedSignIn(next, message string, reason error) screen {
	return screen{
		name: "signin", title: "Sign in", status: http.StatusUnauthorized, reason: reason,
		data: signIn{Next: next, Message: message, Provider: v.Provider != nil},
	}
}

// destination returns the page to redirect to. It is always a page of the console. Browsers also read other spellings
// as "..".
func (v *visit) destination(next string) string {
	parsed, err := url.Parse(next)
	if err != nil || !strings.HasPrefix(parsed.EscapedPath(), v.Base+"/") ||
		strings.HasPrefix(parsed.Path, v.path("/sign-")) || strings.Contains(parsed.Path, "..") {
		return v.path("/")
	}
	return parsed.RequestURI() // without scheme and host
}

// codeLife is the lifetime of a sign-in link.
const codeLife = 10 * time.Minute

// Codes are the one-time codes of sign-in links. Each has a JWT, and works once within codeLife. They are in the memory
// of the process that issued them.
type Codes struct {
	now func() time.Time
	mu  sync.Mutex
	// by the code's hash, so that the duration of a look-up is independent of the code
	issued map[[sha256.Size]byte]issuedCode
}

type issuedCode struct {
	jwt   string
	until time.Time
}

// NewCodes returns an empty set of codes.
func NewCodes(now func() time.Time) *Codes {
	return &Codes{now: now, issued: make(map[[sha256.Size]byte]issuedCode)}
}

// Issue returns a code that signs in its first user with a JWT.
func (c *Codes) Issue(jwt string) string {
	code := newCode()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.issued[sha256.Sum256([]byte(code))] = issuedCode{jwt, c.now().Add(codeLife)}
	return code
}

// redeem returns the JWT of a valid code, and invalidates the code.
func (c *Codes) redeem(code string) (jwt string, ok bool) {
	if c == nil {
		return "", false
	}
	hash := sha256.Sum256([]byte(code))
	c.mu.Lock()
	defer c.mu.Unlock()
	found, known := c.issued[hash]
	delete(c.issued, hash)
	return found.jwt, known && c.now().Before(found.until)
}
