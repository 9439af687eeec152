package console

import (
	"errors"
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/httpapi/oidc"
)

// Signing in at a provider redirects the browser to another site and back. The state of the sign-in is in a cookie and
// not in the service, so that any process may complete it. Unlike the session's cookie, browsers send it when another
// site redirects here.

const (
	pendingCookie = "leadlog_signin"
	pendingFor    = "sign-in at a provider" // the sealed value's purpose, so that it is not taken for a session
	// idTokenCookie has the ID token of a session. It is sent when the person signs out, and then shown to the
	// provider.
	idTokenCookie = "leadlog_idtoken"
	idTokenFor    = "ID token of a session"
	maxCookie     = 3800 // bytes of a value; browsers keep cookies of up to 4096
)

// onward is a page that redirects to another address. For the browser the request comes from this page: it sends the
// session's cookie to the console, and a form may redirect to another site.
type onward struct {
	Message, Label, Address string
}

func (v *visit) pendingCookie(value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: v.cookieOf(v.r, pendingCookie), Value: value, Path: v.path("/sign-in"), MaxAge: age, HttpOnly: true,
		Secure: v.Gate.Secure(v.r), SameSite: http.SameSiteLaxMode,
	}
}

func (v *visit) idTokenCookie(value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: v.cookieOf(v.r, idTokenCookie), Value: value, Path: v.path("/sign-out"), MaxAge: age, HttpOnly: true,
		Secure: v.Gate.Secure(v.r), SameSite: http.SameSiteStrictMode,
	}
}

// storeIDToken stores an ID token in a cookie until the person signs out. A token that is too large for a cookie is not
// stored, because most providers end a session without it too.
func (v *visit) storeIDToken(idToken string) error {
	sealed, err := v.box.Seal([]byte(idToken), []byte(idTokenFor))
	if err != nil {
		return err
	}
	if value := sealed.String(); len(value) <= maxCookie {
		http.SetCookie(v.w, v.idTokenCookie(value, int(oidc.SessionLife.Seconds())))
	} else {
		v.forgetIDToken() // of an earlier session
	}
	return nil
}

// forgetIDToken deletes the ID token of a session that ends.
func (v *visit) forgetIDToken() {
	if v.Provider != nil {
		http.SetCookie(v.w, v.idTokenCookie("", -1))
	}
}

// unsealed returns the content of a sealed cookie that this browser has sent; nil without one.
func (v *visit) unsealed(cookie *http.Cookie, purpose string) []byte {
	found, err := v.r.Cookie(cookie.Name)
	if err != nil {
		return nil
	}
	sealed, err := sealbox.Parse(found.Value)
	if err != nil {
		return nil
	}
	content, err := v.box.Open(sealed, []byte(purpose))
	if err != nil {
		return nil
	}
	return content
}

// origin returns the console's own scheme and host.
func (v *visit) origin() string {
	if v.Gate.Secure(v.r) {
		return "https://" + v.r.Host
	}
	return "http://" + v.r.Host
}

// beginProvider sends the browser to the provider.
func (v *visit) beginProvider() (screen, error) {
	if v.Provider == nil {
		return screen{}, errNoPage
	}
	address, pending, err := v.Provider.Begin(v.ctx, v.origin()+v.path("/sign-in/callback"),
		v.destination(v.r.URL.Query().Get("next")))
	if err != nil {
		return v.refusedBy(err)
	}
	value, err := v.sealPending(pending)
	if err == nil && len(value) > maxCookie { // browsers would drop it
		pending.Next = v.path("/")
		value, err = v.sealPending(pending)
	}
	if err != nil {
		return screen{}, err
	}
	http.SetCookie(v.w, v.pendingCookie(value, int(pending.Until.Sub(v.Now()).Seconds())))
	return screen{redirect: address}, nil
}

func (v *visit) sealPending(pending oidc.Pending) (string, error) {
	encoded, err := json.Marshal(pending)
	if err != nil {
		return "", err
	}
	sealed, err := v.box.Seal(encoded, []byte(pendingFor))
	return sealed.String(), err
}

// endProvider begins a session when the browser returns from the provider.
func (v *visit) endProvider() (screen, error) {
	if v.Provider == nil {
		return screen{}, errNoPage
	}
	if err := v.Gate.MayGuess(v.r); err != nil { // the provider is not asked, and the sign-in stays pending
		return screen{}, err
	}
	pending := v.pending()
	person, err := v.Provider.Finish(v.ctx, pending, v.r.URL.Query())
	if !errors.Is(err, oidc.ErrStale) { // the answer to another sign-in, as in another tab, does not use this one up
		http.SetCookie(v.w, v.pendingCookie("", -1))
	}
	if err != nil {
		return v.refusedBy(err)
	}
	v.identity = Identity{
		Account: person.Account, Subject: person.Subject, Scopes: person.Scopes, Issued: person.Issued,
		Expires: person.Expires, Provider: true,
	}
	err = v.Directory.AdmitJWT(v.ctx, person.Account, person.Issued, command.NoCache)
	switch {
	case errors.Is(err, command.ErrNotProvisioned):
		return v.refusedBy(&oidc.NotAllowedError{
			Reason: "Your user at the sign-in provider belongs to the account " + person.Account + ", which does not " +
				"exist here.",
		})
	case errors.Is(err, command.ErrUnauthorized):
		return v.refusedSignIn(pending.Next,
			"Your account has ended all sessions since you signed in at the provider. Sign in again.", err), nil
	case err != nil:
		return screen{}, err
	}
	if err := v.begin(v.w, v.r, v.identity); err != nil {
		return screen{}, err
	}
	if err := v.storeIDToken(person.IDToken); err != nil {
		return screen{}, err
	}
	return screen{name: "onward", title: "Signed in", data: onward{"You are signed in.", "Continue", pending.Next}}, nil
}

// pending returns the sign-in that this browser has begun; a zero one, which is stale, without.
func (v *visit) pending() (pending oidc.Pending) {
	if json.Unmarshal(v.unsealed(v.pendingCookie("", 0), pendingFor), &pending) != nil {
		return oidc.Pending{}
	}
	return pending
}

// refusedBy shows why a sign-in at the provider failed.
func (v *visit) refusedBy(err error) (screen, error) {
	var notAllowed *oidc.NotAllowedError
	message, status := "", http.StatusUnauthorized
	switch {
	case errors.As(err, &notAllowed):
		message, status = notAllowed.Reason+" Ask your administrator.", http.StatusForbidden
	case errors.Is(err, oidc.ErrStale):
		message = "This sign-in was started in another browser or has expired. Sign in again."
	case errors.Is(err, oidc.ErrRefused):
		message = "The sign-in provider denied access. Sign in again, or ask your administrator."
	case errors.Is(err, oidc.ErrUnavailable):
		message, status = "The sign-in provider cannot be reached. Try again in a minute.",
			http.StatusServiceUnavailable
	case errors.Is(err, oidc.ErrNotConfirmed):
		message = "The sign-in provider did not confirm the sign-in. Sign in again."
		if err := v.Gate.Guess(v.r); err != nil {
			return screen{}, err
		}
	default:
		return screen{}, err
	}
	shown := v.refusedSignIn(v.path("/"), message, err)
	shown.status = status
	return shown, nil
}

// signOut ends the session, and leads on to sign out at the provider if the person signed in there.
func (v *visit) signOut() (screen, error) {
	v.end(v.w, v.r)
	v.forgetIDToken()
	if v.signedIn && v.identity.Provider && v.Provider != nil {
		idToken := string(v.unsealed(v.idTokenCookie("", 0), idTokenFor))
		if address := v.Provider.SignOut(v.ctx, v.origin()+v.path("/sign-in"), idToken); address != "" {
			v.signedIn = false
			return screen{name: "onward", title: "Signed out", data: onward{
				"You are signed out here. You are being signed out at the sign-in provider too.", "Sign out there",
				address,
			}}, nil
		}
	}
	return screen{redirect: v.path("/sign-in")}, nil
}
