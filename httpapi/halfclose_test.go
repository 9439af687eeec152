package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestServer_HalfClosedConnection: net/http takes a half-closed connection for a client that
// is gone and ends the request's context. An answer that was then not written became an empty 200, which says merged.
func TestServer_HalfClosedConnection(t *testing.T) {
	t.Parallel()
	s := start(t)
	ask := func(method, path, body string, length int) (status int, answer string) {
		t.Helper()
		conn := s.dial()
		_, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: leadlog\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, s.jwt, length, body)
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		defer response.Body.Close()
		read, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(read)
	}
	for i := range 50 {
		body := fmt.Sprintf(`{"email":"p%d@example.com"}`, i)
		status, answer := ask("POST", "/api/v1/crm/leads", body, len(body))
		require.Equal(t, 201, status, answer)
		require.Contains(t, answer, fmt.Sprintf(`"email":"p%d@example.com"`, i))
	}
	status, answer := ask("GET", "/api/v1/crm/leads", "", 0)
	require.Equal(t, 200, status)
	require.Contains(t, answer, `"success":true`)
	status, answer = ask("POST", "/api/v1/crm/leads", `{"em`, 100)
	require.Equal(t, 400, status, "a body that ends too early")
	require.Contains(t, answer, `"success":false`)
}
