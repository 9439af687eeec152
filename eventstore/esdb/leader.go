package esdb

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	server_features "github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	kurrent "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/errors"
	records "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// Server is what the server said of itself.
type Server struct {
	Version       string // empty if it is too old to say it
	AppendRecords bool   // it appends to several streams in one call
}

// String describes the server for logs and /readyz.
func (s Server) String() string {
	form := "appends by locks"
	if s.AppendRecords {
		form = "appends in one call"
	}
	return fmt.Sprintf("server %s, %s", cmp.Or(s.Version, "of an unknown version"), form)
}

// appendRecordsService and appendRecordsMethod are the names of AppendRecords in a server's features.
const (
	appendRecordsService = "kurrentdb.protocol.v2.streams.streamsservice"
	appendRecordsMethod  = "appendrecords"
)

// features asks a server for its version and methods.
func features(ctx context.Context, conn *grpc.ClientConn) (Server, error) {
	methods, err := server_features.NewServerFeaturesClient(conn).GetSupportedMethods(ctx, &shared.Empty{})
	switch status.Code(err) {
	case codes.OK:
	case codes.Unimplemented, codes.NotFound:
		return Server{}, nil
	default:
		return Server{}, fmt.Errorf("server features: %w", err)
	}
	return Server{
		Version: methods.GetEventStoreServerVersion(),
		AppendRecords: slices.ContainsFunc(methods.GetMethods(), func(m *server_features.SupportedMethod) bool {
			return m.GetServiceName() == appendRecordsService && m.GetMethodName() == appendRecordsMethod
		}),
	}, nil
}

// appendRecords calls AppendRecords of the leader.
func (l *link) appendRecords(
	ctx context.Context, request *records.AppendRecordsRequest,
) (*records.AppendRecordsResponse, error) {
	answer, err := records.NewStreamsServiceClient(l.direct).AppendRecords(onLeader(ctx), request)
	if err != nil {
		return nil, fmt.Errorf("append records: %w", err)
	}
	return answer, nil
}

// leaderIn returns the address of the leader that an error of AppendRecords names, or "".
func leaderIn(err error) string {
	for _, d := range grpcStatus(err).Details() {
		if d, ok := d.(*kurrent.NotLeaderNodeErrorDetails); ok && d.GetCurrentLeader().GetHost() != "" {
			return net.JoinHostPort(d.GetCurrentLeader().GetHost(), strconv.Itoa(int(d.GetCurrentLeader().GetPort())))
		}
	}
	return ""
}

// locate returns the configuration for the client of a new link, and the address of the leader. In a cluster, the
// client is configured with the leader alone, unless it prefers another node: it would try the nodes in turn, and wait
// for each that does not answer.
func (c *connection) locate(ctx context.Context) (*client.Configuration, string, error) {
	c.mu.Lock()
	leader := c.leader
	c.leader = ""
	c.mu.Unlock()
	if leader == "" {
		if !clustered(c.config) {
			return c.config, c.config.Address, nil
		}
		var err error
		if leader, err = findLeader(ctx, c.config, ""); err != nil {
			return nil, "", err
		}
	}
	if c.config.NodePreference != client.NodePreferenceLeader {
		return c.config, leader, nil
	}
	config := *c.config
	config.Address, config.GossipSeeds, config.DnsDiscover, config.MaxDiscoverAttempts = leader, nil, false, 1
	return &config, leader, nil
}

// gossipTimeout is how long the nodes of a cluster have to name the leader.
const gossipTimeout = 2 * time.Second

// clustered reports whether the address is that of a cluster, whose nodes can be asked for the leader.
func clustered(config *client.Configuration) bool {
	return len(config.GossipSeeds) > 0 || config.DnsDiscover
}

// findLeader asks all nodes of a cluster for the leader, and returns the first answer that is not the suspected node,
// or that node if there is no other.
func findLeader(ctx context.Context, config *client.Configuration, suspected string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gossipTimeout)
	defer cancel()
	seeds, authority, err := seeds(ctx, config)
	if err != nil {
		return "", err
	}
	type answer struct {
		leader string
		err    error
	}
	answers := make(chan answer, len(seeds))
	for _, seed := range seeds {
		go func() {
			leader, err := leaderAt(ctx, config, seed, authority)
			answers <- answer{leader, err}
		}()
	}
	var failures []error
	found := ""
	for range seeds {
		switch a := <-answers; {
		case a.err != nil:
			failures = append(failures, a.err)
		case a.leader != suspected:
			return a.leader, nil
		default:
			found = a.leader
		}
	}
	if found != "" {
		return found, nil
	}
	return "", fmt.Errorf("find the leader: %w", errors.Join(failures...))
}

// seeds returns the addresses of the nodes of a cluster, and the name that their certificates have, if it is not in the
// address.
func seeds(ctx context.Context, config *client.Configuration) (addresses []string, authority string, err error) {
	if !config.DnsDiscover {
		for _, seed := range config.GossipSeeds {
			addresses = append(addresses, seed.String())
		}
		return addresses, "", nil
	}
	host, port, err := net.SplitHostPort(config.Address)
	if err != nil {
		return nil, "", fmt.Errorf("discover the cluster: %w", err)
	}
	found, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, "", fmt.Errorf("discover the cluster: %w", err)
	}
	for _, address := range found {
		addresses = append(addresses, net.JoinHostPort(address, port))
	}
	return addresses, config.Address, nil
}

// leaderAt asks one node for the leader.
func leaderAt(ctx context.Context, config *client.Configuration, seed, authority string) (string, error) {
	conn, err := dial(config, seed, grpc.WithAuthority(authority))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }() // fails only if it is closed
	info, err := gossip.NewGossipClient(conn).Read(ctx, &shared.Empty{})
	if err != nil {
		return "", fmt.Errorf("gossip of %s: %w", seed, err)
	}
	for _, m := range info.GetMembers() {
		if m.GetIsAlive() && m.GetState() == gossip.MemberInfo_Leader {
			at := m.GetHttpEndPoint()
			return net.JoinHostPort(at.GetAddress(), strconv.Itoa(int(at.GetPort()))), nil
		}
	}
	return "", fmt.Errorf("gossip of %s: no leader", seed)
}

// dial prepares a connection to a node, as the client library does.
func dial(config *client.Configuration, address string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	transport := insecure.NewCredentials()
	if !config.DisableTLS {
		secure := &tls.Config{
			InsecureSkipVerify: config.SkipCertificateVerification, //nolint:gosec // tlsVerifyCert=false
			RootCAs:            config.RootCAs,
		}
		if config.UserCertFile != "" {
			certificate, err := tls.LoadX509KeyPair(config.UserCertFile, config.UserKeyFile)
			if err != nil {
				return nil, fmt.Errorf("user certificate: %w", err)
			}
			secure.Certificates = []tls.Certificate{certificate}
		}
		transport = credentials.NewTLS(secure)
		if config.Username != "" && config.Password != "" {
			options = append(options, grpc.WithPerRPCCredentials(basic(config.Username+":"+config.Password)))
		}
	}
	if config.KeepAliveInterval >= 0 {
		options = append(options, grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: config.KeepAliveInterval, Timeout: config.KeepAliveTimeout, PermitWithoutStream: true,
		}))
	}
	conn, err := grpc.NewClient(address, append(options, grpc.WithTransportCredentials(transport))...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return conn, nil
}

// basic is a user and password, separated by a colon, for basic authentication.
type basic string

func (b basic) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte(b))}, nil
}

func (basic) RequireTransportSecurity() bool { return true }
