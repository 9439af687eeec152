package esdbtest

import (
	"regexp"
	"slices"
	"strings"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// follow implements a subscription to $all. After its confirmation it reads to the end. With a filter it sends a
// checkpoint after each interval of scanned events, and one at the end. Then it sends CaughtUp, and new events as they
// are appended, with checkpoints at the same interval.
func (s *Server) follow(o *streams.ReadReq_Options, out streams.Streams_ReadServer) error {
	matches, err := filter(o)
	if err != nil {
		return err
	}
	s.faults.following.Add(1)
	defer s.faults.following.Add(-1)
	f := &follower{server: s, out: out, matches: matches, interval: interval(o)}
	v := s.view()
	next := 0
	switch at := o.GetAll().GetAllOption().(type) {
	case *streams.ReadReq_Options_AllOptions_End:
		next = len(v.all)
	case *streams.ReadReq_Options_AllOptions_Position:
		if err := valid(v, at.Position); err != nil {
			return err
		}
		f.after = at.Position.GetCommitPosition()
		next = v.from(f.after + 1)
	}
	if err := f.send(&streams.ReadResp{Content: &streams.ReadResp_Confirmation{
		Confirmation: &streams.ReadResp_SubscriptionConfirmation{SubscriptionId: uuid.NewString()},
	}}); err != nil {
		return err
	}
	return f.run(next)
}

// follower is one subscription.
type follower struct {
	server   *Server
	out      streams.Streams_ReadServer
	matches  func(*record) bool
	after    uint64 // position of the client; it gets only later events
	interval int    // events between checkpoints; 0 without a filter
	looked   int    // events since the last checkpoint
}

func (f *follower) run(next int) error {
	for live := false; ; live = true {
		v := f.server.view()
		for ; next < len(v.all); next++ {
			if err := f.pass(v.all[next]); err != nil {
				return err
			}
		}
		if !live {
			if err := f.caughtUp(v); err != nil {
				return err
			}
		}
		select {
		case <-v.grown:
		case <-f.out.Context().Done():
			return f.out.Context().Err()
		}
	}
}

// pass sends an event if it matches, and a checkpoint if one is due.
func (f *follower) pass(r *record) error {
	if r.position > f.after && f.matches(r) {
		f.after = r.position
		f.server.faults.sent.Add(1)
		if err := f.send(&streams.ReadResp{Content: &streams.ReadResp_Event{Event: encode(r)}}); err != nil {
			return err
		}
	}
	if f.looked++; f.interval > 0 && f.looked >= f.interval {
		f.looked = 0
		return f.checkpoint(r.position)
	}
	return nil
}

func (f *follower) caughtUp(v view) error {
	if f.interval > 0 {
		f.looked = 0
		at := v.all[len(v.all)-1].position
		if f.server.faults.farCheckpoints.spend() {
			at = v.end
			f.after = at
		}
		if err := f.checkpoint(at); err != nil {
			return err
		}
	}
	return f.send(&streams.ReadResp{Content: &streams.ReadResp_CaughtUp_{CaughtUp: &streams.ReadResp_CaughtUp{}}})
}

func (f *follower) checkpoint(position uint64) error {
	return f.send(&streams.ReadResp{Content: &streams.ReadResp_Checkpoint_{
		Checkpoint: &streams.ReadResp_Checkpoint{CommitPosition: position, PreparePosition: position},
	}})
}

func (f *follower) send(r *streams.ReadResp) error {
	if f.server.faults.dropEvery.burnt() {
		f.server.Drop()
	}
	return f.out.Send(r)
}

// interval returns the number of events between checkpoints.
func interval(o *streams.ReadReq_Options) int {
	f := o.GetFilter()
	if f == nil {
		return 0
	}
	window := int(f.GetMax())
	if _, unlimited := f.GetWindow().(*streams.ReadReq_Options_FilterOptions_Count); unlimited {
		window = 32 // the server's page
	}
	return max(1, window*int(f.GetCheckpointIntervalMultiplier()))
}

// filter implements the server's filters: by prefixes or by a pattern, of the stream's name or the type.
func filter(o *streams.ReadReq_Options) (func(*record) bool, error) {
	f := o.GetFilter()
	if f == nil {
		return func(*record) bool { return true }, nil
	}
	text, expression := func(r *record) string { return r.stream }, f.GetStreamIdentifier()
	if expression == nil {
		text, expression = func(r *record) string { return r.kind }, f.GetEventType()
	}
	if expression == nil {
		return nil, status.Error(codes.InvalidArgument, "a filter of nothing")
	}
	if expression.GetRegex() != "" {
		pattern, err := regexp.Compile(expression.GetRegex())
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		return func(r *record) bool { return pattern.MatchString(text(r)) }, nil
	}
	if len(expression.GetPrefix()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "a filter of no prefixes")
	}
	return func(r *record) bool {
		return slices.ContainsFunc(expression.GetPrefix(), func(p string) bool { return strings.HasPrefix(text(r), p) })
	}, nil
}
