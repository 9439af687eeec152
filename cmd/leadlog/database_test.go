package main

import (
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// The host that was the primary before a failover, back as a standby, is first in the address still.
func TestOfSeveralHostsOnlyThePrimaryIsUsed(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]struct {
		timeout time.Duration
		judged  bool // whether a connection is asked what it is
	}{
		"postgres://u@one/db":                                   {5 * time.Second, false},
		"postgres://u@one,other/db":                             {2 * time.Second, true},
		"postgres://u@one:1,other:2,third:3/db":                 {time.Second, true},
		"postgres://u@/db?host=one,other":                       {2 * time.Second, true},
		"postgres://u@one,other/db?target_session_attrs=any":    {2 * time.Second, false},
		"postgres://u@one,other/db?connect_timeout=9":           {9 * time.Second, true},
		"postgres://u@one/db?target_session_attrs=read-write":   {5 * time.Second, true},
		"postgres://u@one,other/db?pool_max_conns=7&sslmode=ca": {},
	} {
		config, err := pgxpool.ParseConfig(withConnectDefaults(address))
		if want.timeout == 0 {
			require.Error(t, err, "what is wrong stays wrong")
			continue
		}
		require.NoError(t, err, address)
		require.Equal(t, want.timeout, config.ConnConfig.ConnectTimeout, address)
		require.Equal(t, want.judged, config.ConnConfig.ValidateConnect != nil, address)
	}
}

// A server that accepts connections and says nothing held copy-log up for good when it was named by a flag.
func TestALogThatSaysNothingIsGivenUpWhoeverNamesIt(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	settings := production(t)
	provisioned(t, settings)
	address := "postgres://u@" + silent.Addr().String() + "/none?sslmode=disable"
	for _, flag := range []string{"--from", "--to"} {
		p := launch(t, settings, "copy-log", flag, address)
		require.Equal(t, 1, p.finish(t), p.err)
		require.Contains(t, p.err.String(), flag+": ")
		require.Contains(t, p.err.String(), "Try: again, when the server of")
	}
}
