package httpapi_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/httpapi"
)

// slowReader is a client that calls a function after the first row of an export.
type slowReader struct {
	*httptest.ResponseRecorder
	happens func()
}

func (r *slowReader) Write(b []byte) (int, error) {
	n, err := r.ResponseRecorder.Write(b)
	if happens := r.happens; happens != nil {
		r.happens = nil
		happens()
	}
	return n, err
}

// A slow reader of an export could otherwise read leads that were captured after its JWT ended.
func TestExport_EndsWithCredential(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	b := browse(t, func(o *httpapi.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	for i := range 2 {
		require.Equal(t, http.StatusCreated, b.capture(fmt.Sprintf(`{"email":"p%d@example.com"}`, i)).status)
		b.token()
	}
	last := b.capture(`{"email":"p2@example.com"}`)
	for _, path := range []string{leads, "/api/v1/crm/sources/history", "/api/v1/crm/audit/tokens"} {
		require.Equal(t, http.StatusOK, b.as(http.MethodGet, after(path, last), "").status)
	}
	jwt := b.issued(time.Hour)
	read := func(path string, happens func()) (rows int, whole bool) {
		ahead.Store(0)
		b.revoke(time.Unix(1, 0))
		b.signIn(jwt)
		reader, whole := b.export(path, jwt, happens)
		require.Equal(t, http.StatusOK, reader.Code, reader.Body.String())
		return bytes.Count(reader.Body.Bytes(), []byte("\n")), whole
	}
	ends := map[string]func(){
		"expired": func() { ahead.Store(int64(2 * time.Hour)) },
		"revoked": func() { b.revoke(time.Now().Add(-time.Minute).Truncate(time.Second)) },
	}
	for _, path := range []string{
		"/api/v1/crm/sources/history", "/api/v1/crm/audit/tokens", "/console/leads.ndjson", "/console/sources/history.ndjson", "/console/audit.ndjson",
	} {
		rows, whole := read(path, func() {})
		require.True(t, whole, path)
		require.Greater(t, rows, 1, path)
		for how, end := range ends {
			rows, whole := read(path, end)
			require.False(t, whole, "%s when the JWT is %s", path, how)
			require.Equal(t, 1, rows, "%s when the JWT is %s", path, how)
		}
	}
}

// TestExport_LimitPerAccount reads the maximum number of exports of an account slowly: a part of each is in memory.
func TestExport_LimitPerAccount(t *testing.T) {
	t.Parallel()
	const path, page = "/api/v1/crm/sources/history", "/console/sources/history.ndjson"
	b := browse(t, func(o *httpapi.Options) { o.Exports = 4 })
	b.provision("other", account.Settings{})
	theirs := b.mint("other", "")
	require.Equal(t, http.StatusOK, b.as(http.MethodGet, after(path, b.capture(`{"email":"p@example.com"}`)), "").status)
	b.signIn(b.jwt)
	status := func(path, jwt string) int {
		reader, whole := b.export(path, jwt, nil)
		require.True(t, whole)
		if reader.Code == http.StatusTooManyRequests {
			require.Equal(t, "1", reader.Header().Get("Retry-After"))
		}
		return reader.Code
	}
	full := func() {
		before, err := b.store.Head(t.Context())
		require.NoError(t, err)
		require.Equal(t, http.StatusTooManyRequests, status(path, b.jwt))
		require.Equal(t, http.StatusTooManyRequests, status(page, b.jwt))
		head, err := b.store.Head(t.Context())
		require.NoError(t, err)
		require.Equal(t, before, head, "nothing was shown, so no reveal is recorded")
		require.Equal(t, http.StatusOK, status(path, theirs))
		require.Equal(t, "2", b.metric("leadlog_http_exports"))
	}
	reader, _ := b.export(path, b.jwt, func() {
		second, _ := b.export(page, b.jwt, full)
		require.Equal(t, http.StatusOK, second.Code)
	})
	require.Equal(t, http.StatusOK, reader.Code)
	require.Equal(t, http.StatusOK, status(path, b.jwt))
	require.Equal(t, "0", b.metric("leadlog_http_exports"))
}

// export reads a list as JSON lines, and calls a function after the first row. It reports whether the export was complete.
func (b *browser) export(path, jwt string, happens func()) (reader *slowReader, whole bool) {
	b.t.Helper()
	request := httptest.NewRequestWithContext(b.t.Context(), http.MethodGet, path, nil)
	request.Header.Set("Accept", "application/x-ndjson")
	request.Header.Set("Authorization", "Bearer "+jwt)
	at, err := url.Parse(b.server.URL + path)
	require.NoError(b.t, err)
	for _, cookie := range b.client.Jar.Cookies(at) {
		request.AddCookie(cookie)
	}
	reader = &slowReader{httptest.NewRecorder(), happens}
	return reader, !panics(func() { b.server.Config.Handler.ServeHTTP(reader, request) })
}

// panics reports whether a handler aborts the connection.
func panics(do func()) (cut bool) {
	defer func() { cut = recover() == http.ErrAbortHandler }()
	do()
	return false
}
