package courier_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/delivery/deliverytest"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// answering starts a server that responds with raw bytes. It keeps connections open until the test ends at the latest.
func answering(t *testing.T, answer func(conn net.Conn, request *http.Request)) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			go func() { // a client may dial a connection and not use it
				if request, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					answer(conn, request)
				}
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}

// echo starts a server that sends back the request without an HTTP response.
func echo(t *testing.T) (url string) {
	t.Helper()
	return answering(t, func(conn net.Conn, request *http.Request) {
		_, _ = io.Copy(conn, request.Body)
		_ = conn.Close()
	})
}

// A malformed response is quoted in the error, which once survived an erasure.
func TestErasure_EmptiesQuotedErrors(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	id := target(t, w, echo(t))
	spreading := send(t, w)
	lead := event.LeadStream(w.NewID())
	w.Append(t, "acme", lead, deliverytest.NewLead("Ann"))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, id, 1))
	quoting := func() int {
		return pgtest.Value[int](t, w.Pool, `SELECT count(*) FROM delivery.attempt WHERE error LIKE '%Ann%'`)
	}
	require.Equal(t, 3, quoting())
	w.Append(t, "acme", lead, event.LeadErased{})
	projectiontest.Await(t, spreading)
	require.Zero(t, quoting())
}
