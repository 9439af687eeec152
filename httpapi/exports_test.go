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
	afterFirstRow func()
}

func (r *slowReader) Write(b []byte) (int, error) {
	n, err := r.ResponseRecorder.Write(b)
	if call := r.afterFirstRow; call != nil {
		r.afterFirstRow = nil
		call()
	}
	return n, err
}

// Without a check during the export, a slow reader could read leads that were captured after its JWT had ended.
func TestExport_EndsWithCredential(t *testing.T) {
	t.Parallel()
	var offset atomic.Int64
	b := browse(t, func(o *httpapi.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
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
	read := func(path string, afterFirstRow func()) (rows int, complete bool) {
		offset.Store(0)
		b.revoke(time.Unix(1, 0))
		b.signIn(jwt)
		reader, complete := b.export(path, jwt, afterFirstRow)
		require.Equal(t, http.StatusOK, reader.Code, reader.Body.String())
		return bytes.Count(reader.Body.Bytes(), []byte("\n")), complete
	}
	ends := map[string]func(){
		"expired": func() { offset.Store(int64(2 * time.Hour)) },
		"revoked": func() { b.revoke(time.Now().Add(-time.Minute).Truncate(time.Second)) },
	}
	for _, path := range []string{
		"/api/v1/crm/sources/history", "/api/v1/crm/audit/tokens", "/console/leads.ndjson",
		"/console/sources/history.ndjson", "/console/audit.ndjson",
	} {
		rows, complete := read(path, func() {})
		require.True(t, complete, path)
		require.Greater(t, rows, 1, path)
		for how, end := range ends {
			rows, complete := read(path, end)
			require.False(t, complete, "%s when the JWT is %s", path, how)
			require.Equal(t, 1, rows, "%s when the JWT is %s", path, how)
		}
	}
}

// TestExport_LimitPerAccount runs the maximum number of exports of an account at once, because each export buffers rows
// in memory.
func TestExport_LimitPerAccount(t *testing.T) {
	t.Parallel()
	const path, page = "/api/v1/crm/sources/history", "/console/sources/history.ndjson"
	b := browse(t, func(o *httpapi.Options) { o.Exports = 4 })
	b.provision("other", account.Settings{})
	otherJWT := b.mint("other", "")
	require.Equal(t, http.StatusOK,
		b.as(http.MethodGet, after(path, b.capture(`{"email":"p@example.com"}`)), "").status)
	b.signIn(b.jwt)
	status := func(path, jwt string) int {
		reader, complete := b.export(path, jwt, nil)
		require.True(t, complete)
		if reader.Code == http.StatusTooManyRequests {
			require.Equal(t, "1", reader.Header().Get("Retry-After"))
		}
		return reader.Code
	}
	full := func() {
		before := b.last()
		require.Equal(t, http.StatusTooManyRequests, status(path, b.jwt))
		require.Equal(t, http.StatusTooManyRequests, status(page, b.jwt))
		require.Equal(t, before, b.last(), "a refused export records no reveal")
		require.Equal(t, http.StatusOK, status(path, otherJWT))
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

// export reads a list as JSON lines, and calls a function after the first row. It reports whether the export was
// complete.
func (b *browser) export(path, jwt string, afterFirstRow func()) (reader *slowReader, complete bool) {
	b.t.Helper()
	request := httptest.NewRequestWithContext(b.t.Context(), http.MethodGet, path, nil)
	request.Header.Set("Accept", "application/x-ndjson")
	request.Header.Set("Authorization", "Bearer "+jwt)
	at, err := url.Parse(b.server.URL + path)
	require.NoError(b.t, err)
	for _, cookie := range b.client.Jar.Cookies(at) {
		request.AddCookie(cookie)
	}
	reader = &slowReader{httptest.NewRecorder(), afterFirstRow}
	return reader, !panics(func() { b.server.Config.Handler.ServeHTTP(reader, request) })
}

// panics reports whether a handler aborts the connection.
func panics(do func()) (cut bool) {
	defer func() { cut = recover() == http.ErrAbortHandler }()
	do()
	return false
}
