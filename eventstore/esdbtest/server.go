// Package esdbtest is a test server for EventStoreDB's gRPC protocol, as far as a log needs it: appends with every
// expectation, reads of streams and $all in both directions, filters, subscriptions with confirmations, checkpoints and
// CaughtUp, gossip, and server features.
//
// It behaves like EventStoreDB 24.10 according to the documentation and sources, and after Upgrade like KurrentDB 26.1,
// which appends to several streams in one call. It does so also where that is inconvenient: it forgets ids at a
// restart, names that differ in case are one stream in a call, checkpoints guarantee no more than those of the server,
// and a follower serves reads that do not require the leader from its own data. Faults are injected on demand; see
// faults.go.
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
	"sync/atomic"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	server_features "github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	records "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// Server is a node with an in-memory log.
type Server struct {
	streams.UnimplementedStreamsServer

	log      *journal
	members  *members
	listener *listener
	scheme   string // parameters of its address, which include the TLS settings
	user     string // required credentials, "name:password"; empty: none
	faults   faults
	upgraded atomic.Bool // it has AppendRecords
}

// Start starts a single node without TLS, and stops it when the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	return start(t, newJournal())
}

func start(t testing.TB, log *journal) *Server {
	t.Helper()
	s := &Server{log: log, members: &members{}, scheme: "tls=false"}
	s.serve(t, nil)
	s.members.join(s, true)
	return s
}

// StartSecure starts a node with TLS that requires a user and password. Its address names a file with the certificate
// of its authority.
func StartSecure(t testing.TB, name, password string) *Server {
	t.Helper()
	certificate, authority := certify(t)
	s := &Server{log: newJournal(), members: &members{}, scheme: "tlsCaFile=" + authority, user: name + ":" + password}
	s.serve(t, &tls.Config{Certificates: []tls.Certificate{certificate}})
	s.members.join(s, true)
	return s
}

// Follower adds a follower of this node to the cluster.
func (s *Server) Follower(t testing.TB) *Server {
	t.Helper()
	f := &Server{log: s.log, members: s.members, scheme: s.scheme}
	f.upgraded.Store(s.upgraded.Load())
	f.serve(t, nil)
	s.members.join(f, false)
	return f
}

// URL returns the connection string of the node.
func (s *Server) URL() string { return "esdb://" + s.credentials() + s.Address() + "?" + s.scheme }

// ClusterURL returns a connection string with several nodes as gossip seeds.
func (s *Server) ClusterURL(others ...*Server) string {
	seeds := s.Address()
	for _, o := range others {
		seeds += "," + o.Address()
	}
	return "esdb://" + s.credentials() + seeds + "?" + s.scheme
}

// DiscoverURL returns a connection string that discovers the cluster by the host name of this machine.
func (s *Server) DiscoverURL() string {
	_, port, _ := net.SplitHostPort(s.Address()) // the address is valid
	return "esdb+discover://" + s.credentials() + "localhost:" + port + "?" + s.scheme
}

func (s *Server) credentials() string {
	if s.user == "" {
		return ""
	}
	return s.user + "@"
}

// Address returns the listening address of the node.
func (s *Server) Address() string { return s.listener.Addr().String() }

func (s *Server) serve(t testing.TB, secure *tls.Config) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	s.listener = &listener{Listener: inner, open: make(map[net.Conn]struct{})}
	// Clients ping every ten seconds, which EventStoreDB accepts and gRPC's default policy does not.
	pings := keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}
	options := []grpc.ServerOption{
		grpc.StreamInterceptor(s.stream), grpc.UnaryInterceptor(s.unary), grpc.KeepaliveEnforcementPolicy(pings),
		grpc.MaxRecvMsgSize(2 * maxRecord),
	}
	if secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secure)))
	}
	server := grpc.NewServer(options...)
	t.Cleanup(server.Stop)
	t.Cleanup(s.Resume)
	streams.RegisterStreamsServer(server, s)
	records.RegisterStreamsServiceServer(server, recordService{server: s})
	gossip.RegisterGossipServer(server, gossiper{server: s})
	server_features.RegisterServerFeaturesServer(server, features{server: s})
	go func() { _ = server.Serve(s.listener) }() // returns when stopped
}

// listener tracks its connections, so that they can be dropped or suspended, and can reject new ones.
type listener struct {
	net.Listener
	suspended atomic.Pointer[chan struct{}] // closed when connections may be used again; nil: they may
	mu        sync.Mutex
	open      map[net.Conn]struct{}
	shut      bool
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

// wait waits while the listener is suspended. It takes no lock, which drop has while it closes connections: the others
// may write until then.
func (l *listener) wait() {
	for suspended := l.suspended.Load(); suspended != nil; suspended = l.suspended.Load() {
		<-*suspended
	}
}

// tracked is a connection that its listener untracks when it is closed. It can be suspended.
type tracked struct {
	net.Conn
	listener *listener
}

func (c *tracked) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.listener.wait()
	return n, err //nolint:wrapcheck // a net.Conn returns its errors unchanged
}

func (c *tracked) Write(b []byte) (int, error) {
	c.listener.wait()
	return c.Conn.Write(b) //nolint:wrapcheck // a net.Conn returns its errors unchanged
}

func (c *tracked) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c.Conn)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// certify creates a self-signed certificate for this machine, and a file with it.
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
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		0o600); err != nil {
		t.Fatalf("certificate: %v", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, authority
}
