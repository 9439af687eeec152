package delivery_test

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/delivery"
)

// switching starts a server that answers 101 and then sends nothing.
func switching(t *testing.T) (url string) {
	t.Helper()
	return answering(t, func(conn net.Conn, _ *http.Request) {
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: silence\r\n\r\n")
	})
}

// Data after a 101 is not a response body: neither the timeout of an attempt nor the end of the courier once ended
// the wait for it.
func TestCourier_SwitchingProtocols(t *testing.T) {
	t.Parallel()
	w := begun(t)
	id := target(t, w, switching(t))
	send(t, w, func(o *delivery.CourierOptions) { o.Timeout = time.Second })
	w.Append(t, "acme", event.LeadStream(w.NewID()), newLead("Ann"))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, id, 1))
	status := pgtest.Value[int](t, w.Pool, `SELECT DISTINCT status FROM delivery.attempt`)
	require.Equal(t, http.StatusSwitchingProtocols, status)
}
