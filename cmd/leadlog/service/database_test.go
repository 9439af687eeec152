package service

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// After a failover, the former primary is a standby, but is still the first host in the address.
func TestPostgresURL_ConnectDefaults(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]struct {
		timeout time.Duration
		checked bool // whether a connection must be the primary
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
			require.Error(t, err, "an invalid address is not changed")
			continue
		}
		require.NoError(t, err, address)
		require.Equal(t, want.timeout, config.ConnConfig.ConnectTimeout, address)
		require.Equal(t, want.checked, config.ConnConfig.ValidateConnect != nil, address)
	}
}

// A password of digits before # or ? was once parsed as a port, and a space in a parameter became a +.
func FuzzPostgresURL(f *testing.F) {
	for _, address := range []string{
		"postgres://u:2024#secret@one/db",
		"postgres://u:2024?secret@one/db",
		"postgres://u:a#b?c@one,other/db?pool_max_conns=7",
		"postgres://u:a+b%20c@one/db?options=-c%20work_mem%3D8MB&application_name=a+b",
		"postgres://u@/db?host=/run/postgresql",
		"postgres://u@[::1]:5433/db?application_name=why?",
		"postgres://[?]",
	} {
		f.Add(address)
	}
	f.Fuzz(func(t *testing.T, address string) {
		if !goodPostgres(address) {
			return
		}
		given, err := pgxpool.ParseConfig(address)
		require.NoError(t, err)
		config, err := pgxpool.ParseConfig(withConnectDefaults(address))
		require.NoError(t, err)
		require.NotZero(t, config.ConnConfig.ConnectTimeout)
		was, is := given.ConnConfig, config.ConnConfig
		require.Equal(t, []any{
			was.Host, was.Port, was.User, was.Password, was.Database, was.RuntimeParams, len(was.Fallbacks),
			given.MaxConns,
		},
			[]any{
				is.Host, is.Port, is.User, is.Password, is.Database, is.RuntimeParams, len(is.Fallbacks),
				config.MaxConns,
			})
	})
}

// After an unescaped @ or / in a password, its rest was once in each error about the host.
func TestPostgresURL_RejectsUnescapedPassword(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"postgres://u:p@ss@one/db",
		"postgres://u:p@ss#word@one/db",
		"postgres://u:p@ss/word@one/db",
		"postgres://u:12/word@one/db",
		"postgresql://u:p@ss@one/db?sslmode=disable",
	} {
		require.False(t, goodPostgres(address), address)
	}
	for _, address := range []string{
		"postgres://u:p%40ss%2Fword@one/db",
		"postgres://u:p#ss?word@one/db",
		"postgres://one/db?user=u@one&password=p@ss",
		"postgresql://u@one,other:5433/db",
	} {
		require.True(t, goodPostgres(address), address)
	}
}
