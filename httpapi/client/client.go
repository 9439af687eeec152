// Package client calls leadlog's HTTP API from Go. It captures leads, one or many, follows the change feed and verifies
// webhooks.
//
//	leads := client.Client{URL: "https://crm.example.com", Credential: token}
//	captured, err := leads.Capture(ctx, "order-7781", client.Arrival{Name: "Asha Rao", Phone: "98765 43210"})
//
// A call is repeated after a network error and after the answers 429, 502, 503 and 504, at the earliest after the
// answer's Retry-After. Repeats of a capture have the same Idempotency-Key, so they have one effect. Any other answer
// that is no success is an *Error.
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Client calls one service with one credential. It may be used concurrently.
type Client struct {
	URL        string        // of the service, with its base path if it has one
	Credential string        // an API token, or a JWT
	HTTP       *http.Client  // nil: one with the default transport. Redirects are never followed
	RetryFor   time.Duration // how long a call is repeated while nothing succeeds. Default: a minute. Negative: never
}

// Error is an answer that is no success.
type Error struct {
	Status     int           `json:"-"` // of HTTP, or of a line of a batch
	Message    string        `json:"message"`
	Code       string        `json:"code"`      // such as DUPLICATE_LEAD_SOURCE; most answers have none
	Fields     []FieldError  `json:"errors"`    // what is wrong with the request
	ArrivalID  string        `json:"arrivalId"` // the capture was kept as this arrival, to be corrected
	RetryAfter time.Duration `json:"-"`
	RequestID  string        `json:"-"` // of the service's log
}

// FieldError is what is wrong with one field.
type FieldError struct {
	Field   string `json:"field"` // a dot separates an object from its member
	Message string `json:"message"`
}

// Error names the fields that are wrong.
func (e *Error) Error() string {
	text := fmt.Sprintf("leadlog: %d %s", e.Status, e.Message)
	for i, f := range e.Fields {
		text += []string{": ", "; "}[min(i, 1)] + f.Field + " " + f.Message
	}
	return text
}

// Call sends a request to any route, such as POST /api/v1/crm/tokens, with a body unless it is nil. It decodes the
// answer's "data" into data, unless that is nil. A GET is repeated like a capture. Another request may have had an
// effect when its answer was lost, so it is repeated after 429 only.
func (c *Client) Call(ctx context.Context, method, path string, body, data any) error {
	r := request{method: method, path: path, repeatable: method == http.MethodGet}
	if body != nil {
		var err error
		if r.body, err = json.Marshal(body); err != nil {
			return err
		}
	}
	_, err := c.call(ctx, r, &struct {
		Data any `json:"data"`
	}{data})
	return err
}

// request is one request, which may be sent several times.
type request struct {
	method, path string
	key          string // Idempotency-Key
	media        string // type of the body. Default: JSON
	body         []byte
	repeatable   bool // two have the effect of one
}

// attemptTimeout is the time in which a request must be answered. It is longer than the service lets a feed wait.
const attemptTimeout = 45 * time.Second

// call sends a request until it is answered and decodes the answer.
func (c *Client) call(ctx context.Context, r request, into any) (http.Header, error) {
	for pauses := c.backoff(); ; {
		header, raw, err := c.attempt(ctx, r)
		if err == nil {
			if err = json.Unmarshal(raw, into); err != nil {
				err = fmt.Errorf("leadlog: %s %s: the answer is not leadlog's: %w", r.method, r.path, err)
			}
			return header, err
		}
		if err = pauses.wait(ctx, r, err); err != nil {
			return nil, err
		}
	}
}

func (c *Client) attempt(ctx context.Context, r request) (http.Header, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	answer, err := c.send(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	return answer.Header, raw, err
}

// send returns an answer with a status of success, or an error. The caller closes the answer's body.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	sent, err := http.NewRequestWithContext(ctx, r.method, strings.TrimSuffix(c.URL, "/")+r.path,
		bytes.NewReader(r.body))
	if err == nil && !slices.Contains([]string{"http", "https"}, sent.URL.Scheme) {
		err = errors.New("its scheme must be http or https")
	}
	if err != nil {
		return nil, &permanentError{fmt.Errorf("leadlog: the URL of the service: %w", err)}
	}
	sent.Header.Set("Authorization", "Bearer "+c.Credential)
	if r.body != nil {
		sent.Header.Set("Content-Type", cmp.Or(r.media, "application/json"))
	}
	if r.key != "" {
		sent.Header.Set("Idempotency-Key", r.key)
	}
	var through http.Client
	if c.HTTP != nil {
		through = *c.HTTP
	}
	// a POST would become a GET
	through.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, err := through.Do(sent)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode/100 == 2 {
		return answer, nil
	}
	defer answer.Body.Close()
	return nil, failure(answer)
}

// failure reads an answer that is no success. One that another server gave, such as a proxy, has only a status.
func failure(answer *http.Response) error {
	e := &Error{Status: answer.StatusCode, RequestID: answer.Header.Get("X-Request-Id")}
	raw, err := io.ReadAll(answer.Body)
	if err != nil || json.Unmarshal(raw, e) != nil || e.Message == "" {
		e.Message = http.StatusText(answer.StatusCode)
	}
	if location := answer.Header.Get("Location"); location != "" {
		e.Message += ": redirected to " + location
	}
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}

// permanentError is an error before the request was sent, which is not repeated.
type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// transient reports whether a later attempt may succeed.
func transient(err error) bool {
	if e, is := errors.AsType[*Error](err); is {
		return e.Status == http.StatusTooManyRequests || e.Status >= http.StatusBadGateway &&
			e.Status <= http.StatusGatewayTimeout
	}
	if _, is := errors.AsType[*permanentError](err); is {
		return false
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, foreign := errors.AsType[*json.SyntaxError](err)
	return !untrusted && !foreign // everything else is the network's
}

// Delays between attempts, without a Retry-After. They double.
const (
	firstDelay = 250 * time.Millisecond
	maxDelay   = 10 * time.Second
)

// backoff spaces the attempts of a call since something succeeded.
type backoff struct {
	deadline time.Time
	delay    time.Duration
}

func (c *Client) backoff() backoff {
	return backoff{deadline: time.Now().Add(cmp.Or(c.RetryFor, time.Minute)), delay: firstDelay}
}

// wait waits until a request may be sent again. If it may not, the error is that of the last attempt, with the
// context's if that ended.
func (b *backoff) wait(ctx context.Context, r request, last error) error {
	failed, answered := errors.AsType[*Error](last)
	limited := answered && failed.Status == http.StatusTooManyRequests // it had no effect
	if !transient(last) || !r.repeatable && !limited {
		return last
	}
	pause := b.delay/2 + rand.N(b.delay/2)
	b.delay = min(2*b.delay, maxDelay)
	if answered {
		pause = max(pause, failed.RetryAfter)
	}
	if ctx.Err() == nil && time.Now().Add(pause).After(b.deadline) {
		return last
	}
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ctx.Err(), last)
	}
}

// query returns a path with parameters, without those that are empty.
func query(path string, parameters map[string]string) string {
	values := url.Values{}
	for name, value := range parameters {
		if value != "" {
			values.Set(name, value)
		}
	}
	return path + "?" + values.Encode()
}
