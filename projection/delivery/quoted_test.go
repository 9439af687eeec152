package delivery_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// echo starts a server that says back what it is told, and nothing else.
func echo(t *testing.T) (url string) {
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
			if request, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.Copy(conn, request.Body)
			}
			_ = conn.Close()
		}
	}()
	return "http://" + listener.Addr().String()
}

// What an endpoint says that is no answer is quoted in the error, which outlived the person.
func TestWhatAnErrorQuotesOfAPersonGoesWithThePerson(t *testing.T) {
	t.Parallel()
	w := begun(t)
	id := target(t, w, echo(t))
	spreading := send(t, w)
	lead := event.LeadStream(w.NewID())
	w.Append(t, "acme", lead, newLead("Ann"))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, id, 1))
	quoting := func() (attempts int) {
		require.NoError(t, w.Pool.QueryRow(t.Context(), `SELECT count(*) FROM delivery.attempt WHERE error LIKE '%Ann%'`).Scan(&attempts))
		return attempts
	}
	require.Equal(t, 3, quoting())
	w.Append(t, "acme", lead, event.LeadErased{})
	projectiontest.Await(t, spreading)
	require.Zero(t, quoting())
}
