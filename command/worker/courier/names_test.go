package courier_test

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/leadlog/leadlog/command/worker/courier"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/delivery/deliverytest"
)

// names is a name server whose answers can change.
type names struct {
	conn   net.PacketConn
	mu     sync.Mutex
	answer netip.Addr
	asked  int // for an IPv4 address
}

func nameServer(t *testing.T, answer string) *names {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	n := &names{conn: conn, answer: netip.MustParseAddr(answer)}
	var serving sync.WaitGroup
	serving.Go(n.serve)
	t.Cleanup(func() { conn.Close(); serving.Wait() })
	return n
}

func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp4", n.conn.LocalAddr().String())
	}}
}

func (n *names) change(answer string) (askedBefore int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answer = netip.MustParseAddr(answer)
	return n.asked
}

func (n *names) serve() {
	buffer := make([]byte, 1500)
	for {
		size, from, err := n.conn.ReadFrom(buffer)
		if err != nil {
			return // closed
		}
		var m dnsmessage.Message
		if m.Unpack(buffer[:size]) != nil || len(m.Questions) != 1 {
			continue
		}
		question := m.Questions[0]
		m.Response, m.Authoritative, m.Additionals = true, true, nil
		if question.Type == dnsmessage.TypeA {
			n.mu.Lock()
			n.asked++
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{
					Name: question.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
				},
				Body: &dnsmessage.AResource{A: n.answer.As4()},
			}}
			n.mu.Unlock()
		}
		if packed, err := m.Pack(); err == nil {
			_, _ = n.conn.WriteTo(packed, from) // a client without a response retries
		}
	}
}

func TestGuard_NameResolvedAtDial(t *testing.T) {
	t.Parallel()
	server := nameServer(t, "8.8.8.8")
	resolver := server.resolver()
	seen, err := resolver.LookupNetIP(t.Context(), "ip4", "hooks.example.com")
	require.NoError(t, err)
	require.Equal(t, []netip.Addr{netip.MustParseAddr("8.8.8.8")}, seen,
		"a public host, when the endpoint is registered")

	w := deliverytest.New(t)
	id := target(t, w, "https://hooks.example.com/")
	before := server.change("127.0.0.1")
	send(t, w, func(o *courier.Options) {
		o.AllowPrivateTargets, o.Resolver, o.Schedule = false, resolver, []time.Duration{time.Millisecond}
	})
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, id, 1))
	rows, err := w.Pool.Query(t.Context(), `SELECT error FROM delivery.attempt`)
	require.NoError(t, err)
	var said string
	attempts := 0
	for rows.Next() {
		require.NoError(t, rows.Scan(&said))
		require.Equal(t, "the host does not resolve to a public address", said)
		attempts++
	}
	require.NoError(t, rows.Err())
	require.Equal(t, 2, attempts)
	require.GreaterOrEqual(t, server.change("127.0.0.1")-before, 2, "asked at every dial")
}
