package httpapi

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConnections_ClosesLongestIdle(t *testing.T) {
	t.Parallel()
	held, hold, idled, refused := make(chan struct{}, 1), make(chan struct{}), make(chan struct{}, 100),
		make(chan struct{}, 100)
	release := sync.OnceFunc(func() { close(hold) })
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/held":
			defer markBusy(r).markIdle()
			held <- struct{}{}
			<-hold
		case "/refused":
			refused <- struct{}{}
		}
		_, _ = io.WriteString(w, "ok")
	}))
	connections := newConnections(4)
	server.Config.ConnContext = connections.withConn
	server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if connections.changed(conn, state); state == http.StateIdle {
			idled <- struct{}{}
		}
	}
	server.Start()
	defer server.Close()
	defer release() // otherwise a failed test would wait for the blocked handler
	dial := func(say string) net.Conn {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		_, err = io.WriteString(conn, say)
		require.NoError(t, err)
		return conn
	}
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n" }
	requireAnswer := func(conn net.Conn) {
		t.Helper()
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		response.Body.Close()
		<-idled // the state changes after the answer
	}
	requireClosed := func(conn net.Conn) {
		t.Helper()
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err := conn.Read(make([]byte, 1))
		require.Error(t, err)
		require.NotContains(t, err.Error(), "timeout")
	}
	working := dial(get("/held"))
	<-held
	idle := dial(get("/"))
	requireAnswer(idle)
	partial := dial("GET / HTTP/1.1\r\nHost")
	unused := dial("")
	second := dial(get("/"))
	requireAnswer(second)
	requireClosed(idle)
	third := dial(get("/"))
	requireAnswer(third)
	requireClosed(partial)
	for range 20 {
		requireAnswer(dial(get("/")))
	}
	requireClosed(unused)
	var unread [10]net.Conn
	for i := range unread { // the server waits for bodies that no handler reads
		unread[i] = dial("POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
		<-refused
	}
	for range 4 {
		requireAnswer(dial(get("/")))
	}
	for _, conn := range unread {
		requireClosed(conn)
	}
	release()
	requireAnswer(working)
}

func TestConnections_ClosesBeforeStateClosed(t *testing.T) {
	t.Parallel()
	c := newConnections(2)
	var conns [4]net.Conn
	for i := range conns {
		conns[i], _ = net.Pipe()
		defer conns[i].Close()
	}
	require.Nil(t, c.track(conns[0], http.StateNew))
	require.Nil(t, c.track(conns[1], http.StateNew))
	require.Equal(t, conns[0], c.track(conns[2], http.StateNew))
	require.Equal(t, conns[1], c.track(conns[3], http.StateNew), "the first connection is already closing")
	for _, conn := range conns[:2] {
		require.Nil(t, c.track(conn, http.StateClosed))
	}
	require.Len(t, c.open, 2)
	require.Equal(t, 2, c.idle.Len())
}

func TestConnections_LeavesFileDescriptors(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, maxConnections(), maxConns)
	require.Positive(t, maxConnections())
}
