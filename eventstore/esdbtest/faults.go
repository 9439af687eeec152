package esdbtest

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// faults are the injected faults.
type faults struct {
	refusals       budget
	refusal        atomic.Int64 // the code of refusals
	lostReplies    budget
	unknownReplies budget
	farCheckpoints budget
	dropEvery      fuse
	frozen         atomic.Int64             // number of visible events of a node, plus 1; 0: all
	noise          atomic.Pointer[[]string] // streams; nil: no noise after appends
	calls          atomic.Int64
	recordCalls    atomic.Int64
	sent           atomic.Int64 // events
	cutOff         atomic.Int64 // reads
	following      atomic.Int64
	appends        tally
	streamReads    tally

	mu   sync.Mutex
	held chan struct{} // closed when held calls may continue
}

// Drop closes all connections. Clients may reconnect.
func (s *Server) Drop() { s.listener.drop() }

// Shut closes all connections and rejects new ones until Reopen.
func (s *Server) Shut() {
	s.listener.mu.Lock()
	s.listener.shut = true
	s.listener.mu.Unlock()
	s.Drop()
}

// Reopen ends Shut.
func (s *Server) Reopen() {
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	s.listener.shut = false
}

// Suspend makes the node answer nothing while its connections stay open, like a process that is stopped. The others of
// its cluster report it as dead if it is not the leader.
func (s *Server) Suspend() {
	suspended := make(chan struct{})
	s.listener.suspended.CompareAndSwap(nil, &suspended)
}

// Resume ends Suspend.
func (s *Server) Resume() {
	if suspended := s.listener.suspended.Swap(nil); suspended != nil {
		close(*suspended)
	}
}

func (s *Server) isSuspended() bool { return s.listener.suspended.Load() != nil }

// Refuse responds to the next calls with a code: Unavailable like a node that is not ready, or NotFound and Unknown
// like a node without a leader, or ResourceExhausted like one that resets streams with ENHANCE_YOUR_CALM.
func (s *Server) Refuse(calls int, code codes.Code) {
	s.faults.refusal.Store(int64(code))
	s.faults.refusals.set(calls)
}

// Hold blocks calls until release is called.
func (s *Server) Hold() (release func()) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	held := make(chan struct{})
	s.faults.held = held
	return sync.OnceFunc(func() {
		s.faults.mu.Lock()
		defer s.faults.mu.Unlock()
		s.faults.held = nil
		close(held)
	})
}

// LoseReplies executes the next appends, and closes the connections instead of responding.
func (s *Server) LoseReplies(appends int) { s.faults.lostReplies.set(appends) }

// UnknownReplies executes the next appends, and responds with an unknown result.
func (s *Server) UnknownReplies(appends int) { s.faults.unknownReplies.set(appends) }

// DropEvery closes all connections each time that many messages were sent to subscriptions; 0 stops it.
func (s *Server) DropEvery(messages int) { s.faults.dropEvery.set(messages) }

// FarCheckpoints moves the checkpoints before the next n CaughtUp messages to the end of the log, where the next event
// will be stored, and skips that event: servers had this fault.
func (s *Server) FarCheckpoints(n int) { s.faults.farCheckpoints.set(n) }

// Freeze hides later events of the log from clients of the node, like a follower that lags. Thaw ends it.
func (s *Server) Freeze() { s.faults.frozen.Store(int64(len(s.log.look(-1).all)) + 1) }

// Thaw ends Freeze.
func (s *Server) Thaw() { s.faults.frozen.Store(0) }

// Forget clears the cache of ids, like a restart.
func (s *Server) Forget() {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	clear(s.log.ids)
}

// Noise writes system events: statistics, metadata of a stream and links to the newest event.
func (s *Server) Noise(n int) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	newest := s.log.all[len(s.log.all)-1]
	link := fmt.Appendf(nil, "%d@%s", newest.revision, newest.stream)
	for range n {
		s.log.put("$stats-127.0.0.1:2113", []proposal{{
			id: uuid.New(), kind: "$statsCollected", json: true, data: []byte(`{}`),
		}})
		s.log.put("$ce-lead", []proposal{{id: uuid.New(), kind: "$>", data: link}})
		s.log.put("$$lead-1", []proposal{{id: uuid.New(), kind: "$metadata", json: true, data: []byte(`{}`)}})
		s.log.put("linked", []proposal{{id: uuid.New(), kind: "$>", data: link}})
	}
}

// NoiseAfterAppends writes system events, and an event to each of the given streams, after every further append.
func (s *Server) NoiseAfterAppends(streams ...string) { s.faults.noise.Store(&streams) }

func (s *Server) noise() {
	streams := s.faults.noise.Load()
	if streams == nil {
		return
	}
	s.Noise(1)
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	for _, stream := range *streams {
		s.log.put(stream, []proposal{{id: uuid.New(), kind: "test.happened.v1", json: true, data: []byte(`{}`)}})
	}
}

// Calls returns how many stream calls the node has received.
func (s *Server) Calls() int { return int(s.faults.calls.Load()) }

// Following returns how many subscriptions to $all are open.
func (s *Server) Following() int { return int(s.faults.following.Load()) }

// Appends returns how many appends the node has received to streams with one of these prefixes, or in total.
func (s *Server) Appends(prefixes ...string) int { return s.faults.appends.of(prefixes) }

// StreamReads returns how many reads the node has received of each stream with one of these prefixes.
func (s *Server) StreamReads(prefixes ...string) map[string]int {
	return s.faults.streamReads.each(prefixes)
}

// tally counts calls by stream.
type tally struct {
	mu      sync.Mutex
	streams map[string]int
}

func (t *tally) add(stream string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.streams == nil {
		t.streams = map[string]int{}
	}
	t.streams[stream]++
}

// each returns the counts of the streams with one of the prefixes, or of all streams.
func (t *tally) each(prefixes []string) map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := maps.Clone(t.streams)
	maps.DeleteFunc(counts, func(stream string, _ int) bool {
		return len(prefixes) > 0 && !slices.ContainsFunc(prefixes, func(p string) bool {
			return strings.HasPrefix(stream, p)
		})
	})
	return counts
}

func (t *tally) of(prefixes []string) (calls int) {
	for _, n := range t.each(prefixes) {
		calls += n
	}
	return calls
}

// view returns the events that are visible on this node.
func (s *Server) view() view { return s.log.look(int(s.faults.frozen.Load()) - 1) }

// stream authenticates stream calls and injects faults.
func (s *Server) stream(
	service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler,
) error {
	if err := s.begin(stream.Context()); err != nil {
		return err
	}
	return handle(service, stream)
}

// unary is stream for AppendRecords. Clients read gossip and features without credentials, and these never fail.
func (s *Server) unary(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	if _, appends := info.Server.(recordService); appends {
		if err := s.begin(ctx); err != nil {
			return nil, err
		}
	}
	return handle(ctx, request)
}

func (s *Server) begin(ctx context.Context) error {
	s.faults.calls.Add(1)
	if err := s.admit(ctx); err != nil {
		return err
	}
	s.faults.mu.Lock()
	held := s.faults.held
	s.faults.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s.faults.refusals.spend() {
		return status.Error(codes.Code(s.faults.refusal.Load()), "Server Is Not Ready")
	}
	return nil
}

func (s *Server) admit(ctx context.Context) error {
	if s.user == "" {
		return nil
	}
	headers, _ := metadata.FromIncomingContext(ctx)
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(s.user))
	if got := headers.Get("authorization"); len(got) != 1 || got[0] != want {
		return status.Error(codes.Unauthenticated, "Unauthenticated")
	}
	return nil
}

// budget is the number of remaining faults.
type budget struct{ left atomic.Int64 }

func (b *budget) set(n int) { b.left.Store(int64(n)) }

func (b *budget) spend() bool {
	for {
		left := b.left.Load()
		if left <= 0 {
			return false
		}
		if b.left.CompareAndSwap(left, left-1) {
			return true
		}
	}
}

// fuse triggers after every given number of steps.
type fuse struct {
	length atomic.Int64
	burned atomic.Int64
}

func (f *fuse) set(n int) {
	f.length.Store(int64(n))
	f.burned.Store(0)
}

func (f *fuse) burnt() bool {
	length := f.length.Load()
	return length > 0 && f.burned.Add(1)%length == 0
}
