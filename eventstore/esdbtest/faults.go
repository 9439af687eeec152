package esdbtest

import (
	"context"
	"encoding/base64"
	"fmt"
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

// faults are what goes wrong on demand.
type faults struct {
	refusals       budget
	refusal        atomic.Int64 // the code of refusals
	lostReplies    budget
	unknownReplies budget
	farCheckpoints budget
	dropEvery      fuse
	frozen         atomic.Int64 // how many events a node shows, and 1 more; 0 for all
	noisy          atomic.Bool
	calls          atomic.Int64
	following      atomic.Int64
	appends        tally
	streamReads    tally

	mu   sync.Mutex
	held chan struct{} // closed when calls may go on
}

// Drop breaks every connection. Clients may connect again.
func (s *Server) Drop() { s.listener.drop() }

// Shut breaks every connection and accepts none until Reopen.
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

// Refuse answers the next calls with a code: Unavailable as a node does that is not ready, or NotFound and Unknown as
// one that has no leader.
func (s *Server) Refuse(calls int, code codes.Code) {
	s.faults.refusal.Store(int64(code))
	s.faults.refusals.set(calls)
}

// Hold keeps calls waiting until release is called.
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

// LoseReplies makes the next appends, and breaks the connections instead of answering.
func (s *Server) LoseReplies(appends int) { s.faults.lostReplies.set(appends) }

// UnknownReplies makes the next appends, and answers with a result that no client knows.
func (s *Server) UnknownReplies(appends int) { s.faults.unknownReplies.set(appends) }

// DropEvery breaks the connections whenever subscriptions have been sent so many messages more; 0 ends it.
func (s *Server) DropEvery(messages int) { s.faults.dropEvery.set(messages) }

// FarCheckpoints puts the checkpoint that comes before the next words of having caught up to the end of the log, where
// the next event will stand, and takes that event for read: a fault that servers had.
func (s *Server) FarCheckpoints(n int) { s.faults.farCheckpoints.set(n) }

// Freeze lets a node show only what is on the log now; a follower can be behind like that. Thaw ends it.
func (s *Server) Freeze() { s.faults.frozen.Store(int64(len(s.log.look(-1).all)) + 1) }

// Thaw ends Freeze.
func (s *Server) Thaw() { s.faults.frozen.Store(0) }

// Forget empties the memory of ids, as a restart does.
func (s *Server) Forget() {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	clear(s.log.ids)
}

// Noise writes events of the server's own: statistics, metadata of a stream and links to the newest event.
func (s *Server) Noise(n int) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	newest := s.log.all[len(s.log.all)-1]
	link := fmt.Appendf(nil, "%d@%s", newest.revision, newest.stream)
	for range n {
		s.log.put("$stats-127.0.0.1:2113", []proposal{{id: uuid.New(), kind: "$statsCollected", json: true, data: []byte(`{}`)}})
		s.log.put("$ce-lead", []proposal{{id: uuid.New(), kind: "$>", data: link}})
		s.log.put("$$lead-1", []proposal{{id: uuid.New(), kind: "$metadata", json: true, data: []byte(`{}`)}})
		s.log.put("linked", []proposal{{id: uuid.New(), kind: "$>", data: link}})
	}
}

// NoiseBeside writes events of the server's own after every append from now on.
func (s *Server) NoiseBeside() { s.faults.noisy.Store(true) }

// Calls is how many calls to streams the node was asked to answer.
func (s *Server) Calls() int { return int(s.faults.calls.Load()) }

// Following is how many subscriptions to $all are open.
func (s *Server) Following() int { return int(s.faults.following.Load()) }

// Appends is how many of the calls were appends to streams with one of these prefixes, or to any.
func (s *Server) Appends(prefixes ...string) int { return s.faults.appends.of(prefixes) }

// StreamReads is how many of them were reads of one stream with one of these prefixes, or of any one.
func (s *Server) StreamReads(prefixes ...string) int { return s.faults.streamReads.of(prefixes) }

// tally counts calls by the stream they were about.
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

func (t *tally) of(prefixes []string) (calls int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for stream, n := range t.streams {
		if len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(stream, p) }) {
			calls += n
		}
	}
	return calls
}

// view is what this node shows.
func (s *Server) view() view { return s.log.look(int(s.faults.frozen.Load()) - 1) }

// stream lets in whom the node knows, and goes wrong. Only streams ask who calls: clients look at gossip and features
// without saying.
func (s *Server) stream(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	s.faults.calls.Add(1)
	if err := s.admit(stream.Context()); err != nil {
		return err
	}
	s.faults.mu.Lock()
	held := s.faults.held
	s.faults.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
	if s.faults.refusals.take() {
		return status.Error(codes.Code(s.faults.refusal.Load()), "Server Is Not Ready")
	}
	return handle(service, stream)
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

// budget is a number of times that something goes wrong.
type budget struct{ left atomic.Int64 }

func (b *budget) set(n int) { b.left.Store(int64(n)) }

func (b *budget) take() bool {
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

// fuse burns down every so many times.
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
