package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/httpapi"
)

// follow asks for a page as its script does, and returns what waits until a text was sent, and the rest.
func (b *browser) follow(path string) (sees func(text string), rest io.Reader) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	b.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.server.URL+path, nil)
	require.NoError(b.t, err)
	request.Header.Set("Accept", "text/event-stream")
	response, err := b.client.Do(request)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { response.Body.Close() })
	require.Equal(b.t, "text/event-stream", response.Header.Get("Content-Type"))
	read := make([]byte, 64<<10)
	var said strings.Builder
	return func(text string) {
		b.t.Helper()
		for !strings.Contains(said.String(), text) {
			n, err := response.Body.Read(read)
			said.Write(read[:n])
			require.NoError(b.t, err)
		}
	}, response.Body
}

func TestLivePage_EndsWhenServiceStops(t *testing.T) {
	t.Parallel()
	stopping := make(chan struct{})
	b := signedIn(t, func(o *httpapi.Options) { o.Stopping = stopping })
	sees, rest := b.follow("/console/leads")
	sees("No leads yet")
	b.capture(`{"name":"Asha Rao","phone":"9876543210"}`)
	sees("A••• R•••")
	close(stopping)
	_, err := io.Copy(io.Discard, rest)
	require.NoError(t, err)
}

func TestLivePage_EndsWithSession(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*browser, *atomic.Int64){
		"expired": func(_ *browser, ahead *atomic.Int64) { ahead.Store(int64(2 * time.Hour)) },
		"revoked": func(b *browser, _ *atomic.Int64) { b.revoke(time.Now().Add(-time.Minute).Truncate(time.Second)) },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			var ahead atomic.Int64
			b := browse(t, func(o *httpapi.Options) {
				o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			})
			b.signIn(b.issued(time.Hour))
			sees, rest := b.follow("/console/leads")
			sees("No leads yet")
			end(b, &ahead)
			left, err := io.ReadAll(rest)
			require.NoError(t, err)
			require.Equal(t, "event: end\ndata:\n\n", string(left), "the script opens the page anew")
			again := b.do(http.MethodGet, "/console/leads", nil, "Accept", "text/event-stream")
			require.Equal(t, http.StatusUnauthorized, again.status, "and is sent nowhere")
		})
	}
}
