package challenge_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/httpapi/challenge"
)

// provider returns the configured answer and records the requests.
type provider struct {
	*httptest.Server
	requests []url.Values
	status   int
	answer   string
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{
		status: http.StatusOK,
		answer: `{"success":true,"challenge_ts":"2026-11-23T10:00:00Z","hostname":"example.com"}`,
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		p.requests = append(p.requests, r.PostForm)
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(p.status)
		_, _ = io.WriteString(w, p.answer)
	}))
	t.Cleanup(p.Close)
	return p
}

func TestVerify_Outcomes(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	v := challenge.New(p.URL, p.URL, time.Now)
	for _, c := range []struct {
		name   string
		status int
		answer string
		want   error
	}{
		{"passed", 200, `{"success":true}`, nil},
		{"failed", 200, `{"success":false,"error-codes":["invalid-input-response"]}`, challenge.ErrFailed},
		{"used before", 200, `{"success":false,"error-codes":["timeout-or-duplicate"]}`, challenge.ErrFailed},
		{"failed without an error code", 200, `{"success":false}`, challenge.ErrFailed},
		{"wrong secret", 400, `{"success":false,"error-codes":["invalid-input-secret"]}`, challenge.ErrSecret},
		{
			"secret of another site", 200, `{"success":false,"error-codes":["sitekey-secret-mismatch"]}`,
			challenge.ErrSecret,
		},
		{"provider fails", 200, `{"success":false,"error-codes":["internal-error"]}`, challenge.ErrUnavailable},
		{"unavailable", 503, `{"success":true}`, challenge.ErrUnavailable},
		{"redirect", 302, ``, challenge.ErrUnavailable},
		{"no JSON", 200, `<html>`, challenge.ErrUnavailable},
		{"no verdict", 200, `{}`, challenge.ErrUnavailable},
		{"success of another type", 200, `{"success":"true"}`, challenge.ErrUnavailable},
		{"success with an error's status", 403, `{"success":true}`, challenge.ErrFailed},
	} {
		p.status, p.answer = c.status, c.answer
		for _, name := range []string{challenge.Turnstile, challenge.HCaptcha} {
			require.ErrorIs(t, v.Verify(t.Context(), challenge.Response{Provider: name, Secret: "s", Token: "t"}),
				c.want, c.name)
		}
	}
}

func TestVerify_SendsSecretAndToken(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	v := challenge.New(p.URL, p.URL, time.Now)
	require.NoError(t, v.Verify(t.Context(), challenge.Response{
		Provider: challenge.HCaptcha, Secret: "s&", Token: "t=",
	}))
	require.Equal(t, url.Values{"secret": {"s&"}, "response": {"t="}}, p.requests[0])
	for _, token := range []string{"", strings.Repeat("t", 20_000)} {
		require.ErrorIs(t,
			v.Verify(t.Context(), challenge.Response{Provider: challenge.HCaptcha, Secret: "s", Token: token}),
			challenge.ErrFailed)
	}
	require.Len(t, p.requests, 1)
}

// A provider accepts a token once. Only a repeat of the same request passes again.
func TestVerify_RepeatedRequest(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	now := time.Now()
	v := challenge.New(p.URL, p.URL, func() time.Time { return now })
	first := challenge.Response{Provider: challenge.Turnstile, Secret: "s", Token: "t", Request: "form/key"}
	require.NoError(t, v.Verify(t.Context(), first))
	require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`,
		p.requests[0].Get("idempotency_key"))
	p.answer = `{"success":false,"error-codes":["timeout-or-duplicate"]}`
	require.NoError(t, v.Verify(t.Context(), first))
	for _, change := range []func(*challenge.Response){
		func(r *challenge.Response) { r.Token = "other" },
		func(r *challenge.Response) { r.Request = "form/other" },
		func(r *challenge.Response) { r.Request = "" },
		func(r *challenge.Response) { r.Secret = "other" },
	} {
		other := first
		change(&other)
		require.ErrorIs(t, v.Verify(t.Context(), other), challenge.ErrFailed)
	}
	now = now.Add(time.Hour)
	require.ErrorIs(t, v.Verify(t.Context(), first), challenge.ErrFailed)
}

func TestVerify_ProviderDown(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.Close()
	v := challenge.New(p.URL, "http://\x00", time.Now)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, name := range []string{challenge.Turnstile, challenge.HCaptcha} {
		for _, ctx := range []context.Context{t.Context(), ended} {
			err := v.Verify(ctx, challenge.Response{Provider: name, Secret: "secret", Token: "token"})
			require.ErrorIs(t, err, challenge.ErrUnavailable)
			require.NotContains(t, err.Error(), "secret")
		}
	}
}
