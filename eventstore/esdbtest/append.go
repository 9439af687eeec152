package esdbtest

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// maxAppend is the server's default limit of an append, in bytes.
const maxAppend = 1 << 20

// Append implements the protocol: options first, then the events.
func (s *Server) Append(stream streams.Streams_AppendServer) error {
	request, err := stream.Recv()
	if err != nil {
		return err
	}
	options := request.GetOptions()
	if options == nil {
		return status.Error(codes.InvalidArgument, "the first message of an append must be its options")
	}
	expected, err := expectation(options)
	if err != nil {
		return err
	}
	s.faults.appends.add(string(options.GetStreamIdentifier().GetStreamName()))
	events, err := receive(stream)
	if err != nil {
		return err
	}
	if err := s.mayAnswer(stream.Context()); err != nil {
		return err
	}
	name := string(options.GetStreamIdentifier().GetStreamName())
	if name == "" {
		return status.Error(codes.InvalidArgument, "the stream has no name")
	}
	decided := s.log.append(name, expected, events)
	s.noise()
	return s.reply(stream, options, expected, decided)
}

func (s *Server) reply(
	stream streams.Streams_AppendServer, options *streams.AppendReq_Options, expected int64, decided verdict,
) error {
	switch {
	case s.faults.lostReplies.spend():
		s.Drop()
		return status.Error(codes.Unavailable, "the reply is lost")
	case s.faults.unknownReplies.spend():
		return stream.SendAndClose(&streams.AppendResp{})
	case decided.wrong:
		return stream.SendAndClose(&streams.AppendResp{Result: &streams.AppendResp_WrongExpectedVersion_{
			WrongExpectedVersion: wrong(options, expected, decided.current),
		}})
	}
	success := &streams.AppendResp_Success{}
	if decided.last == nil { // an append without events
		success.CurrentRevisionOption = &streams.AppendResp_Success_NoStream{NoStream: &shared.Empty{}}
		success.PositionOption = &streams.AppendResp_Success_NoPosition{NoPosition: &shared.Empty{}}
	} else {
		success.CurrentRevisionOption = &streams.AppendResp_Success_CurrentRevision{
			CurrentRevision: uint64(decided.last.revision),
		}
		success.PositionOption = &streams.AppendResp_Success_Position{Position: &streams.AppendResp_Position{
			CommitPosition: decided.last.position, PreparePosition: decided.last.position,
		}}
	}
	return stream.SendAndClose(&streams.AppendResp{Result: &streams.AppendResp_Success_{Success: success}})
}

func expectation(options *streams.AppendReq_Options) (int64, error) {
	switch e := options.GetExpectedStreamRevision().(type) {
	case *streams.AppendReq_Options_Any:
		return anything, nil
	case *streams.AppendReq_Options_NoStream:
		return noStream, nil
	case *streams.AppendReq_Options_StreamExists:
		return streamExists, nil
	case *streams.AppendReq_Options_Revision:
		if e.Revision > math.MaxInt64 {
			return 0, status.Error(codes.InvalidArgument, "a revision out of range")
		}
		return int64(e.Revision), nil
	}
	return 0, status.Error(codes.InvalidArgument, "an append that does not say what it expects")
}

// receive receives the events, up to the limit.
func receive(stream streams.Streams_AppendServer) ([]proposal, error) {
	var events []proposal
	size := 0
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, err
		}
		message := request.GetProposedMessage()
		kind, contentType := message.GetMetadata()["type"], message.GetMetadata()["content-type"]
		switch {
		case message == nil:
			return nil, status.Error(codes.Unknown, "options twice")
		case kind == "" || contentType == "":
			return nil, status.Error(codes.InvalidArgument, "Required Metadata Property is missing")
		}
		if size += len(message.GetData()) + len(message.GetCustomMetadata()) + 2*len(kind); size > maxAppend {
			stream.SetTrailer(
				metadata.Pairs("exception", "maximum-append-size-exceeded", "maximum-append-size",
					fmt.Sprint(maxAppend)),
			)
			return nil, status.Errorf(codes.InvalidArgument, "Maximum Append Size of %d Exceeded.", maxAppend)
		}
		events = append(events, proposal{
			id: fromProto(message.GetId()), kind: kind, json: contentType == "application/json",
			data: message.GetData(), metadata: message.GetCustomMetadata(),
		})
	}
}

// wrong returns the expected and the actual revision, in the current fields and those of version 20.6.
func wrong(options *streams.AppendReq_Options, expected, current int64) *streams.AppendResp_WrongExpectedVersion {
	w := &streams.AppendResp_WrongExpectedVersion{}
	switch options.GetExpectedStreamRevision().(type) {
	case *streams.AppendReq_Options_Any:
		w.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedAny{ExpectedAny: &shared.Empty{}}
		w.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_Any_20_6_0{
			Any_20_6_0: &shared.Empty{},
		}
	case *streams.AppendReq_Options_StreamExists:
		w.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedStreamExists{
			ExpectedStreamExists: &shared.Empty{},
		}
		w.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_StreamExists_20_6_0{
			StreamExists_20_6_0: &shared.Empty{},
		}
	case *streams.AppendReq_Options_NoStream:
		w.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedNoStream{
			ExpectedNoStream: &shared.Empty{},
		}
		w.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_ExpectedRevision_20_6_0{
			ExpectedRevision_20_6_0: math.MaxUint64,
		}
	default:
		w.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedRevision{
			ExpectedRevision: uint64(expected),
		}
		w.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_ExpectedRevision_20_6_0{
			ExpectedRevision_20_6_0: uint64(expected),
		}
	}
	if current < 0 {
		w.CurrentRevisionOption = &streams.AppendResp_WrongExpectedVersion_CurrentNoStream{
			CurrentNoStream: &shared.Empty{},
		}
		w.CurrentRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_NoStream_20_6_0{
			NoStream_20_6_0: &shared.Empty{},
		}
		return w
	}
	w.CurrentRevisionOption = &streams.AppendResp_WrongExpectedVersion_CurrentRevision{CurrentRevision: uint64(current)}
	w.CurrentRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_CurrentRevision_20_6_0{
		CurrentRevision_20_6_0: uint64(current),
	}
	return w
}

func fromProto(id *shared.UUID) uuid.UUID {
	if text := id.GetString_(); text != "" {
		parsed, err := uuid.Parse(text)
		if err != nil {
			return uuid.Nil
		}
		return parsed
	}
	return structured(id.GetStructured().GetMostSignificantBits(), id.GetStructured().GetLeastSignificantBits())
}
