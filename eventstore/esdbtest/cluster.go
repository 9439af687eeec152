package esdbtest

import (
	"context"
	"net"
	"strconv"
	"sync"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	server_features "github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// version and upgradedVersion are the reported versions of the server.
const (
	version         = "24.10.1.0"
	upgradedVersion = "26.1.0.0"
)

// members are the nodes of a cluster.
type members struct {
	mu     sync.Mutex
	nodes  []*Server
	leader *Server
}

func (m *members) join(s *Server, leads bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes = append(m.nodes, s)
	if leads {
		m.leader = s
	}
}

func (m *members) current() *Server {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leader
}

// Elect makes this node the leader.
func (s *Server) Elect() {
	s.members.mu.Lock()
	defer s.members.mu.Unlock()
	s.members.leader = s
}

// mayAnswer rejects a call that requires the leader and is sent to another node, and names the leader.
func (s *Server) mayAnswer(ctx context.Context) error {
	headers, _ := metadata.FromIncomingContext(ctx)
	asked := headers.Get("requires-leader")
	if len(asked) == 0 || asked[0] != "true" {
		return nil
	}
	leader := s.members.current()
	if leader == s {
		return nil
	}
	host, port, _ := net.SplitHostPort(leader.Address()) // the address is valid
	trailer := metadata.Pairs("exception", "not-leader", "leader-endpoint-host", host, "leader-endpoint-port", port)
	if err := grpc.SetTrailer(ctx, trailer); err != nil {
		return err
	}
	return status.Error(codes.NotFound, "Leader info available")
}

// gossiper serves the gossip protocol. It is a type of its own, because its Read differs from that of streams.
type gossiper struct {
	gossip.UnimplementedGossipServer
	server *Server
}

// Read implements the protocol: the members of the cluster, and its leader.
func (g gossiper) Read(context.Context, *shared.Empty) (*gossip.ClusterInfo, error) {
	m := g.server.members
	m.mu.Lock()
	defer m.mu.Unlock()
	info := &gossip.ClusterInfo{}
	for _, node := range m.nodes {
		state := gossip.MemberInfo_Follower
		if node == m.leader {
			state = gossip.MemberInfo_Leader
		}
		host, port, _ := net.SplitHostPort(node.Address()) // the address is valid
		number, _ := strconv.Atoi(port)
		info.Members = append(info.Members, &gossip.MemberInfo{
			State: state, IsAlive: node == m.leader || !node.isSuspended(),
			HttpEndPoint: &gossip.EndPoint{Address: host, Port: uint32(number)},
		})
	}
	return info, nil
}

type features struct {
	server_features.UnimplementedServerFeaturesServer
	server *Server
}

// GetSupportedMethods implements the protocol.
func (f features) GetSupportedMethods(context.Context, *shared.Empty) (*server_features.SupportedMethods, error) {
	methods := &server_features.SupportedMethods{EventStoreServerVersion: f.server.version()}
	for _, name := range []string{"append", "read"} {
		methods.Methods = append(methods.Methods, &server_features.SupportedMethod{
			ServiceName: "event_store.client.streams.streams", MethodName: name,
		})
	}
	if f.server.upgraded.Load() {
		methods.Methods = append(methods.Methods, &server_features.SupportedMethod{
			ServiceName: "kurrentdb.protocol.v2.streams.streamsservice", MethodName: "appendrecords",
		})
	}
	return methods, nil
}
