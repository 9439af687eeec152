package delivery_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/delivery"
)

// switching starts a server that answers that it speaks something else from here on, and then says nothing.
func switching(t *testing.T) (url string) {
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
			go func() {
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil { // before it, it would be no answer
					_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: silence\r\n\r\n")
				}
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}

// What a connection says after 101 is no body of an answer: neither the time of an attempt nor the end of the courier ended
// the wait for it.
func TestAnEndpointThatSwitchesProtocolsFailsAndHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	w := begun(t)
	id := target(t, w, switching(t))
	send(t, w, func(o *delivery.CourierOptions) { o.Timeout = time.Second })
	w.Append(t, "acme", event.LeadStream(w.NewID()), newLead("Ann"))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, id, 1))
	var status int
	require.NoError(t, w.Pool.QueryRow(t.Context(), `SELECT DISTINCT status FROM delivery.attempt`).Scan(&status))
	require.Equal(t, http.StatusSwitchingProtocols, status)
}
