// Package esdbtest is a server in the test's own process that speaks EventStoreDB's gRPC protocol, as far as a log
// needs it: appending with every expectation, reading streams and $all in both directions, filters, subscriptions with
// their confirmations, checkpoints and word of having caught up, gossip, and which features there are.
//
// It does what the server's documentation and sources say that EventStoreDB 24.10 does, also where that is
// inconvenient: it remembers only so many ids, a checkpoint says no more than it does there, a follower answers reads
// that do not ask for the leader from what it has. Faults come on demand; see faults.go.
package esdbtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	server_features "github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// Server is a node. Its log is in memory.
type Server struct {
	streams.UnimplementedStreamsServer

	log      *journal
	members  *members
	listener *listener
	scheme   string // what its address ends with, and whether there is TLS
	user     string // "name:password" that calls must bring; empty for anyone
	faults   faults
}

// Start starts a node without TLS, alone, and stops it when the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{log: newJournal(), members: &members{}, scheme: "tls=false"}
	s.serve(t, nil)
	s.members.join(s, true)
	return s
}

// StartSecure starts a node with TLS that answers only a user with this password. Its address names a file with the
// certificate of its authority.
func StartSecure(t testing.TB, name, password string) *Server {
	t.Helper()
	certificate, authority := certify(t)
	s := &Server{log: newJournal(), members: &members{}, scheme: "tlsCaFile=" + authority, user: name + ":" + password}
	s.serve(t, &tls.Config{Certificates: []tls.Certificate{certificate}})
	s.members.join(s, true)
	return s
}

// Follower adds a node that follows this one.
func (s *Server) Follower(t testing.TB) *Server {
	t.Helper()
	f := &Server{log: s.log, members: s.members, scheme: s.scheme}
	f.serve(t, nil)
	s.members.join(f, false)
	return f
}

// URL is the connection string of the node itself.
func (s *Server) URL() string { return "esdb://" + s.credentials() + s.Address() + "?" + s.scheme }

// ClusterURL is a connection string that names several nodes as seeds of gossip.
func (s *Server) ClusterURL(others ...*Server) string {
	seeds := s.Address()
	for _, o := range others {
		seeds += "," + o.Address()
	}
	return "esdb://" + s.credentials() + seeds + "?" + s.scheme
}

// DiscoverURL is a connection string that finds the node by the name of this machine, and from there the cluster.
func (s *Server) DiscoverURL() string {
	_, port, _ := net.SplitHostPort(s.Address()) // it listens there
	return "esdb+discover://" + s.credentials() + "localhost:" + port + "?" + s.scheme
}

func (s *Server) credentials() string {
	if s.user == "" {
		return ""
	}
	return s.user + "@"
}

// Address is where the node listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

func (s *Server) serve(t testing.TB, secure *tls.Config) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	s.listener = &listener{Listener: inner, open: make(map[net.Conn]struct{})}
	// Clients ping every ten seconds, which servers of EventStoreDB put up with and gRPC's own do not.
	pings := keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}
	options := []grpc.ServerOption{grpc.StreamInterceptor(s.stream), grpc.KeepaliveEnforcementPolicy(pings)}
	if secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secure)))
	}
	server := grpc.NewServer(options...)
	streams.RegisterStreamsServer(server, s)
	gossip.RegisterGossipServer(server, gossiper{server: s})
	server_features.RegisterServerFeaturesServer(server, features{})
	go func() { _ = server.Serve(s.listener) }() // returns when stopped
	t.Cleanup(server.Stop)
}

// listener knows its connections, so that they can be dropped, and can refuse new ones.
type listener struct {
	net.Listener
	mu   sync.Mutex
	open map[net.Conn]struct{}
	shut bool
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, fmt.Errorf("accept: %w", err)
		}
		l.mu.Lock()
		if l.shut {
			l.mu.Unlock()
			_ = conn.Close()
			continue
		}
		l.open[conn] = struct{}{}
		l.mu.Unlock()
		return &tracked{Conn: conn, listener: l}, nil
	}
}

func (l *listener) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.open {
		_ = conn.Close()
	}
	clear(l.open)
}

// tracked is a connection that its listener forgets when it closes.
type tracked struct {
	net.Conn
	listener *listener
}

func (c *tracked) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c.Conn)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// certify makes a certificate for this machine that is its own authority, and a file with it.
func certify(t testing.TB) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("key: %v", err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "eventstoredb-node"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatalf("certificate: %v", err)
	}
	authority := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatalf("certificate: %v", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, authority
}
