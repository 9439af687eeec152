package esdb

import (
	"bytes"
	"log"
	"log/slog"
	"strings"
	"testing"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestConfiguration_Schemes(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]client.Configuration{
		"esdb://localhost:2113?tls=false":      {Address: "localhost:2113", DisableTLS: true},
		"kurrentdb://localhost":                {Address: "localhost:2113"},
		"kdb://localhost":                      {Address: "localhost:2113"},
		"KurrentDB://localhost:1":              {Address: "localhost:1"},
		"esdb+discover://cluster.example:2113": {Address: "cluster.example:2113", DnsDiscover: true},
		"kurrentdb+discover://cluster.example": {Address: "cluster.example:2113", DnsDiscover: true},
		"kurrentdb://admin:se%40cret@db:2113?": {Address: "db:2113", Username: "admin", Password: "se@cret"},
		"esdb://db?nodePreference=follower": {
			Address: "db:2113", NodePreference: client.NodePreferenceFollower,
		},
		"esdb://db?keepAliveInterval=5":             {Address: "db:2113", KeepAliveInterval: 10 * time.Second},
		"esdb://db?keepAliveInterval=0":             {Address: "db:2113", KeepAliveInterval: 10 * time.Second},
		"esdb://db?keepAliveInterval=20000&other=1": {Address: "db:2113", KeepAliveInterval: 20 * time.Second},
		"esdb://db?keepAliveInterval=-1":            {Address: "db:2113", KeepAliveInterval: -1},
	} {
		got, err := configuration(address, slog.New(slog.DiscardHandler))
		require.NoError(t, err, address)
		require.Equal(t, want.Address, got.Address, address)
		require.Equal(t, want.DisableTLS, got.DisableTLS, address)
		require.Equal(t, want.DnsDiscover, got.DnsDiscover, address)
		require.Equal(t, want.Username, got.Username, address)
		require.Equal(t, want.Password, got.Password, address)
		if want.NodePreference != "" {
			require.Equal(t, want.NodePreference, got.NodePreference, address)
		}
		if want.KeepAliveInterval != 0 {
			require.Equal(t, want.KeepAliveInterval, got.KeepAliveInterval, address)
		}
	}
}

func TestConfiguration_SeveralNodes(t *testing.T) {
	t.Parallel()
	got, err := configuration("kurrentdb://admin:changeit@a:1,b:2,c?tlsVerifyCert=false", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.Equal(t, "admin", got.Username)
	require.Equal(t, []*client.EndPoint{{Host: "a", Port: 1}, {Host: "b", Port: 2}, {Host: "c", Port: 2113}},
		got.GossipSeeds)
	require.True(t, got.SkipCertificateVerification)
}

func TestConfiguration_InvalidAddress(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"", "localhost:2113", "postgres://u:changeit@db/leadlog", "esdb://u:changeit@", "esdb://u:changeit@db:port",
		"esdb://u:changeit@db/path", "esdb://u:change it@db", "esdb://u:changeit%zz@db",
		"esdb://u:changeit@db?tls=perhaps", "esdb://u:changeit@db?nodePreference=best",
		"esdb://u:changeit@db?defaultDeadline=soon", "esdb://u:changeit@db?defaultDeadline=0",
		"esdb://u:changeit@db?keepAliveInterval=soon", "esdb://u:changeit@db?a=%zz",
		"esdb://u:changeit@db?tlsCaFile=/none", "esdb://u:changeit@db?userCertFile=/none",
		"esdb://:changeit@db", "esdb://u:changeit@db:65536", "esdb://u:changeit@db:0", "esdb://u:changeit@a:1,b:99999",
		"esdb://u:changeit@a:70000/",
	} {
		_, err := configuration(address, slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, "event store address: ", address)
		require.NotContains(t, err.Error(), "change", address)
		require.NotContains(t, err.Error(), "<nil>", address)
	}
}

// Not parallel: it replaces the standard logger's output.
func TestConfiguration_Logger(t *testing.T) {
	var standard, own bytes.Buffer
	before := log.Writer()
	log.SetOutput(&standard)
	t.Cleanup(func() { log.SetOutput(before) })
	config, err := configuration("esdb://db?unheardOf=1&keepAliveInterval=5", slog.New(slog.NewTextHandler(&own, nil)))
	require.NoError(t, err)
	config.Logger(client.LogWarn, "%s of %d", []any{"two", 2}) // the form of some calls of the library
	config.Logger(client.LogWarn, "%s of %d", "one", 1)
	require.Empty(t, standard.String())
	require.Contains(t, own.String(), "parameter=unheardOf")
	require.Contains(t, own.String(), "two of 2")
	require.Contains(t, own.String(), "one of 1")

	const warning = "the user is not sent"
	for address, warned := range map[string]bool{
		"esdb://u:changeit@db?tls=false": true, "esdb://u:changeit@db": false, "esdb://db?tls=false": false,
	} {
		own.Reset()
		_, err := configuration(address, slog.New(slog.NewTextHandler(&own, nil)))
		require.NoError(t, err)
		require.Equal(t, warned, strings.Contains(own.String(), warning), address)
		require.NotContains(t, own.String(), "change")
	}
}

func TestTransient(t *testing.T) {
	t.Parallel()
	require.False(t, missing(status.Error(codes.NotFound, "Leader info available")))
	require.True(t, transient(status.Error(codes.NotFound, "Leader info available")))
	require.True(t, transient(status.Error(codes.Canceled, "the client connection is closing")))
	require.True(t, transient(status.Error(codes.Unknown, "No leader info available in response")))
	require.False(t, transient(status.Error(codes.PermissionDenied, "Access Denied")))
}
