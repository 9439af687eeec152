// Package challenge verifies that a form was sent by a person who passed a challenge of Turnstile or hCaptcha.
//
// Both have the same call: developers.cloudflare.com/turnstile/get-started/server-side-validation and
// docs.hcaptcha.com/#verify-the-user-response-server-side. The person's address is optional there, and not sent.
package challenge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	lru "github.com/hashicorp/golang-lru/v2"
)

// Providers of challenges.
const (
	Turnstile = "turnstile"
	HCaptcha  = "hcaptcha"
)

// Addresses at which the providers verify.
const (
	TurnstileURL = "https://challenges.cloudflare.com/turnstile/v0/siteverify"
	HCaptchaURL  = "https://api.hcaptcha.com/siteverify"
)

var (
	// ErrFailed means that the challenge was not passed, or its result is too old: the person can try again.
	ErrFailed = errors.New("the challenge was not passed")
	// ErrUnavailable means that the provider did not answer, or not as documented.
	ErrUnavailable = errors.New("the challenge's provider did not answer")
	// ErrSecret means that the provider does not accept the intake's secret.
	ErrSecret = errors.New("the challenge's provider refuses the secret")
)

const (
	timeout   = 3 * time.Second
	maxAnswer = 64 << 10 // bytes
	maxToken  = 16 << 10 // bytes; those of hCaptcha have some thousand
	passedTTL = 10 * time.Minute
	maxPassed = 10_000 // cached
)

// Verifier asks the providers. It is safe for concurrent use.
type Verifier struct {
	urls   map[string]string
	client *http.Client
	now    func() time.Time
	passed *lru.Cache[[sha256.Size]byte, time.Time]
}

// New returns a verifier. An empty address is the provider's own.
func New(turnstileURL, hcaptchaURL string, now func() time.Time) *Verifier {
	v := &Verifier{urls: map[string]string{
		Turnstile: TurnstileURL, HCaptcha: HCaptchaURL,
	}, now: now, client: &http.Client{
		Timeout: timeout,
		// it would post the secret elsewhere
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if turnstileURL != "" {
		v.urls[Turnstile] = turnstileURL
	}
	if hcaptchaURL != "" {
		v.urls[HCaptcha] = hcaptchaURL
	}
	cache, err := lru.New[[sha256.Size]byte, time.Time](maxPassed)
	if err != nil {
		panic(err) // only a size below 1, and it is a constant
	}
	v.passed = cache
	return v
}

// Response is the response of a challenge that a form was sent with.
type Response struct {
	Provider string
	Secret   string // of the intake, from the provider
	Token    string // that the provider's script put into the form
	// Request identifies the request of which this may be a repetition; empty if there can be none. A provider accepts
	// a token only once, but a repeated request has the same.
	Request string
}

// Verify reports whether the person passed the challenge. The errors are ErrFailed, ErrUnavailable and ErrSecret.
func (v *Verifier) Verify(ctx context.Context, r Response) error {
	if r.Token == "" || len(r.Token) > maxToken {
		return ErrFailed
	}
	key := sha256.Sum256([]byte(r.Provider + "\x00" + r.Secret + "\x00" + r.Request + "\x00" + r.Token))
	if at, known := v.passed.Get(key); known && r.Request != "" && v.now().Sub(at) < passedTTL {
		return nil
	}
	form := url.Values{"secret": {r.Secret}, "response": {r.Token}}
	if r.Provider == Turnstile && r.Request != "" {
		form.Set("idempotency_key", uuid(key))
	}
	if err := v.post(ctx, v.urls[r.Provider], form); err != nil {
		return err
	}
	if r.Request != "" {
		v.passed.Add(key, v.now())
	}
	return nil
}

// uuid makes a UUID of version 8 (RFC 9562) from a hash.
func uuid(sum [sha256.Size]byte) string {
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	h := hex.EncodeToString(sum[:16])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

// faults maps error codes that the person did not cause.
var faults = map[string]error{
	"missing-input-secret": ErrSecret, "invalid-input-secret": ErrSecret, "sitekey-secret-mismatch": ErrSecret,
	"not-using-dummy-passcode": ErrSecret, "internal-error": ErrUnavailable, "bad-request": ErrUnavailable,
}

func (v *Verifier) post(ctx context.Context, address string, form url.Values) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return fmt.Errorf("%w: no valid address", ErrUnavailable)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "application/json")
	response, err := v.client.Do(request)
	if err != nil {
		return ErrUnavailable // its text would have the address
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil || response.StatusCode >= http.StatusInternalServerError {
		return ErrUnavailable
	}
	var answer struct {
		Success *bool    `json:"success"`
		Codes   []string `json:"error-codes"`
	}
	if json.Unmarshal(raw, &answer) != nil || answer.Success == nil {
		return ErrUnavailable
	}
	if *answer.Success && response.StatusCode == http.StatusOK {
		return nil
	}
	slices.Sort(answer.Codes)
	for _, code := range answer.Codes {
		if fault := faults[code]; fault != nil {
			return fault
		}
	}
	return ErrFailed
}
