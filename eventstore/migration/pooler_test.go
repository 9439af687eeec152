package migration

import (
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

func TestCheckPooler_AcceptsPostgreSQL(t *testing.T) {
	t.Parallel()
	require.NoError(t, CheckPooler(t.Context(), pgtest.Database(t)))
}

func TestCheckPooler_RefusesSharedSessions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sessions string // of the server, one digit for each statement
		err      error
	}{
		"of each connection":             {"12" + strings.Repeat("11212", poolerRounds), nil},
		"the one that was used last":     {"111", ErrPooler},
		"in turn":                        {"123", ErrPooler},
		"two in turn":                    {"1212", ErrPooler},
		"another while one is taken":     {"121123", ErrPooler},
		"the one of another transaction": {"12112" + "2", ErrPooler},
		"another after others took it":   {"12" + strings.Repeat("11212", poolerRounds-1) + "11213", ErrPooler},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, CheckPooler(t.Context(), pooler(t, test.sessions)), test.err)
		})
	}
}

// pooler answers queries of all its connections with the numbers of the server's sessions, in this order.
func pooler(t *testing.T, sessions string) (url string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	var mu sync.Mutex
	next := func() string {
		mu.Lock()
		defer mu.Unlock()
		session := sessions[:1]
		sessions = sessions[1:]
		return session
	}
	go func() {
		for number := uint32(1000); ; number++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answer(conn, number, next)
		}
	}()
	return "postgres://u@" + listener.Addr().String() + "/db?sslmode=disable"
}

func answer(conn net.Conn, number uint32, next func() string) {
	defer conn.Close()
	server := pgproto3.NewBackend(conn, conn)
	if _, err := server.ReceiveStartupMessage(); err != nil {
		return
	}
	server.Send(&pgproto3.AuthenticationOk{})
	server.Send(&pgproto3.BackendKeyData{ProcessID: number, SecretKey: []byte(strconv.Itoa(int(number)))})
	for {
		server.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		if server.Flush() != nil {
			return
		}
		message, err := server.Receive()
		if err != nil {
			return
		}
		query, ok := message.(*pgproto3.Query)
		if !ok {
			return
		}
		if strings.Contains(query.String, "pg_backend_pid") {
			server.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("pid")}}})
			server.Send(&pgproto3.DataRow{Values: [][]byte{[]byte(next())}})
		}
		server.Send(&pgproto3.CommandComplete{CommandTag: []byte("OK")})
	}
}
