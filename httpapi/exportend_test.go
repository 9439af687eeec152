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

	"github.com/leadlog/leadlog/httpapi"
)

// slowReader is a client to whom something happens when the first row of an export has come.
type slowReader struct {
	*httptest.ResponseRecorder
	happens func()
}

func (r *slowReader) Write(b []byte) (int, error) {
	n, err := r.ResponseRecorder.Write(b)
	if r.happens != nil {
		r.happens()
		r.happens = nil
	}
	return n, err
}

// Whoever reads an export slowly would otherwise read on, also what was captured after their JWT had ended.
func TestAnExportEndsWithTheCredentialThatAskedForIt(t *testing.T) {
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
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		request.Header.Set("Accept", "application/x-ndjson")
		request.Header.Set("Authorization", "Bearer "+jwt)
		at, err := url.Parse(b.server.URL + path)
		require.NoError(t, err)
		for _, cookie := range b.client.Jar.Cookies(at) {
			request.AddCookie(cookie)
		}
		reader := &slowReader{httptest.NewRecorder(), happens}
		whole = !panics(func() { b.server.Config.Handler.ServeHTTP(reader, request) })
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

// panics tells whether a handler cuts the connection.
func panics(do func()) (cut bool) {
	defer func() { cut = recover() == http.ErrAbortHandler }()
	do()
	return false
}
