package esdbtest

import (
	"encoding/binary"
	"iter"
	"slices"
	"strconv"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Read implements the protocol: a read of a stream or of $all in either direction, or a subscription.
func (s *Server) Read(request *streams.ReadReq, out streams.Streams_ReadServer) error {
	o := request.GetOptions()
	if err := s.mayAnswer(out.Context()); err != nil {
		return err
	}
	_, following := o.GetCountOption().(*streams.ReadReq_Options_Subscription)
	switch {
	case o.GetUuidOption() == nil:
		return status.Error(codes.InvalidArgument, "uuidOption is required")
	case o.GetStream() != nil && following:
		return status.Error(codes.Unimplemented, "subscriptions to one stream")
	case o.GetStream() != nil:
		return s.readStream(o, out)
	case o.GetAll() != nil && following:
		return s.follow(o, out)
	case o.GetAll() != nil:
		return s.readAll(o, out)
	}
	return status.Error(codes.InvalidArgument, "neither a stream nor $all")
}

func backwards(o *streams.ReadReq_Options) bool {
	return o.GetReadDirection() == streams.ReadReq_Options_Backwards
}

func (s *Server) readStream(o *streams.ReadReq_Options, out streams.Streams_ReadServer) error {
	name := o.GetStream().GetStreamIdentifier().GetStreamName()
	s.faults.streamReads.add(string(name))
	events := s.log.stream(string(name), s.view())
	if len(events) == 0 {
		return out.Send(&streams.ReadResp{Content: &streams.ReadResp_StreamNotFound_{
			StreamNotFound: &streams.ReadResp_StreamNotFound{
				StreamIdentifier: &shared.StreamIdentifier{StreamName: name},
			},
		}})
	}
	from := 0
	switch at := o.GetStream().GetRevisionOption().(type) {
	case *streams.ReadReq_Options_StreamOptions_End:
		from = len(events)
		if backwards(o) {
			from--
		}
	case *streams.ReadReq_Options_StreamOptions_Revision:
		from = int(min(at.Revision, uint64(len(events))))
		if backwards(o) {
			from = min(from, len(events)-1)
		}
	}
	chosen := slices.Values(events[from:])
	if backwards(o) {
		chosen = reversed(events[:from+1])
	}
	return s.send(out, chosen, o.GetCount(), func(*record) bool { return true })
}

func (s *Server) readAll(o *streams.ReadReq_Options, out streams.Streams_ReadServer) error {
	matches, err := filter(o)
	if err != nil {
		return err
	}
	v := s.view()
	from := 0
	switch at := o.GetAll().GetAllOption().(type) {
	case *streams.ReadReq_Options_AllOptions_End:
		from = len(v.all)
	case *streams.ReadReq_Options_AllOptions_Position:
		if err := valid(v, at.Position); err != nil {
			return err
		}
		from = v.from(at.Position.GetCommitPosition())
	}
	chosen := slices.Values(v.all[from:])
	if backwards(o) {
		chosen = reversed(v.all[:from]) // a position is before its event
	}
	return s.send(out, chosen, o.GetCount(), matches)
}

// valid rejects positions at which no record starts.
func valid(v view, p *streams.ReadReq_Options_Position) error {
	if p.GetPreparePosition() > p.GetCommitPosition() || !v.boundary(p.GetCommitPosition()) {
		return status.Error(codes.InvalidArgument, "Trying to read from an invalid position.")
	}
	return nil
}

func reversed(records []*record) iter.Seq[*record] {
	return func(yield func(*record) bool) {
		for _, r := range slices.Backward(records) {
			if !yield(r) {
				return
			}
		}
	}
}

// send sends the first count matching records.
func (s *Server) send(
	out streams.Streams_ReadServer, records iter.Seq[*record], count uint64, matches func(*record) bool,
) error {
	for r := range records {
		if count == 0 {
			return nil
		}
		if !matches(r) {
			continue
		}
		s.faults.sent.Add(1)
		if err := out.Send(&streams.ReadResp{Content: &streams.ReadResp_Event{Event: encode(r)}}); err != nil {
			s.faults.cutOff.Add(1)
			return err
		}
		count--
	}
	return nil
}

// ticks is the server's unit of time, 100 ns.
const ticks = 100

func encode(r *record) *streams.ReadResp_ReadEvent {
	contentType := "application/octet-stream"
	if r.json {
		contentType = "application/json"
	}
	most, least := binary.BigEndian.Uint64(r.id[:8]), binary.BigEndian.Uint64(r.id[8:])
	return &streams.ReadResp_ReadEvent{
		Event: &streams.ReadResp_ReadEvent_RecordedEvent{
			Id: &shared.UUID{Value: &shared.UUID_Structured_{Structured: &shared.UUID_Structured{
				MostSignificantBits: int64(most), LeastSignificantBits: int64(least),
			}}},
			StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(r.stream)},
			StreamRevision:   uint64(r.revision),
			PreparePosition:  r.position,
			CommitPosition:   r.position,
			Metadata: map[string]string{
				"type": r.kind, "content-type": contentType,
				"created": strconv.FormatInt(r.created.UnixNano()/ticks, 10),
			},
			CustomMetadata: r.metadata,
			Data:           r.data,
		},
		Position: &streams.ReadResp_ReadEvent_CommitPosition{CommitPosition: r.position},
	}
}

func structured(most, least int64) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:8], uint64(most))
	binary.BigEndian.PutUint64(id[8:], uint64(least))
	return id
}
