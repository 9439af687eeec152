package esdbtest_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

// What a server answers, in the protocol's own words. LEADLOG_TEST_ESDB_URL names a real one to confirm or refute it.
func TestServersAnswerLikeThis(t *testing.T) {
	t.Parallel()
	servers := map[string]string{"esdbtest": esdbtest.Start(t).URL()}
	if real := os.Getenv("LEADLOG_TEST_ESDB_URL"); real != "" {
		servers["real"] = real
	}
	for name, address := range servers {
		for says, holds := range answers {
			t.Run(name+"/"+says, func(t *testing.T) {
				t.Parallel()
				holds(t, dial(t, address))
			})
		}
	}
}

var answers = map[string]func(*testing.T, node){
	"a stream is begun once, and the refusal tells where it is": func(t *testing.T, n node) {
		s := newStream()
		n.append(t, s, none, uuid.New(), uuid.New())
		wrong := n.reply(t, s, none, uuid.New()).GetWrongExpectedVersion()
		require.NotNil(t, wrong.GetExpectedNoStream())
		require.EqualValues(t, 1, wrong.GetCurrentRevision())
	},
	"a revision of a stream that is not there is wrong": func(t *testing.T, n node) {
		wrong := n.reply(t, newStream(), at(0), uuid.New()).GetWrongExpectedVersion()
		require.NotNil(t, wrong.GetCurrentNoStream())
		require.EqualValues(t, 0, wrong.GetExpectedRevision())
	},
	"the same ids at their place are the same append, also when others followed": func(t *testing.T, n node) {
		s, id, next := newStream(), uuid.New(), uuid.New()
		first := n.append(t, s, none, id)
		n.append(t, s, at(0), next)
		again := n.append(t, s, none, id)
		require.Equal(t, first.GetPosition().GetCommitPosition(), again.GetPosition().GetCommitPosition())
		require.EqualValues(t, 0, again.GetCurrentRevision())
		require.Len(t, n.stream(t, s, false, 10), 2)
	},
	"ids of which only the first stands there are wrong": func(t *testing.T, n node) {
		s, id := newStream(), uuid.New()
		n.append(t, s, none, id)
		require.NotNil(t, n.reply(t, s, none, id, uuid.New()).GetWrongExpectedVersion())
	},
	"ids just written are known again when nothing is expected": func(t *testing.T, n node) {
		s, id := newStream(), uuid.New()
		first := n.append(t, s, anything, id)
		n.append(t, s, anything, uuid.New())
		require.Equal(t, first.GetPosition().GetCommitPosition(), n.append(t, s, anything, id).GetPosition().GetCommitPosition())
		require.Len(t, n.stream(t, s, false, 10), 2)
	},
	"an event's position in its stream is that of its append and that in $all": func(t *testing.T, n node) {
		s := newStream()
		position := n.append(t, s, none, uuid.New()).GetPosition()
		require.Equal(t, position.GetCommitPosition(), position.GetPreparePosition())
		inStream := n.stream(t, s, false, 1)[0].GetEvent()
		require.Equal(t, position.GetCommitPosition(), inStream.GetCommitPosition())
		all := n.read(t, allFrom(position.GetCommitPosition(), false, 1), 1)
		require.Equal(t, inStream.GetId().GetStructured().String(), all[0].GetEvent().GetEvent().GetId().GetStructured().String(),
			"a read of $all begins with the event at its position")
	},
	"a missing stream is told in a message, a read past the end is empty": func(t *testing.T, n node) {
		s := newStream()
		missing := n.read(t, streamFrom(s, 0, false, 1), 1)
		require.Equal(t, s, string(missing[0].GetStreamNotFound().GetStreamIdentifier().GetStreamName()))
		n.append(t, s, none, uuid.New())
		require.Empty(t, n.read(t, streamFrom(s, 7, false, 1), 1))
	},
	"backwards begins at the end": func(t *testing.T, n node) {
		s, last := newStream(), uuid.New()
		n.append(t, s, none, uuid.New(), uuid.New(), last)
		there := n.stream(t, s, true, 1)
		require.Len(t, there, 1)
		require.EqualValues(t, 2, there[0].GetEvent().GetStreamRevision())
	},
	"a subscription confirms, reads what comes after its position, tells a checkpoint, and that it has caught up": func(t *testing.T, n node) {
		s := newStream()
		first := n.append(t, s, none, uuid.New()).GetPosition().GetCommitPosition()
		n.append(t, s, at(0), uuid.New())
		request := allFrom(first, false, 0)
		request.Options.CountOption = &streams.ReadReq_Options_Subscription{Subscription: &streams.ReadReq_Options_SubscriptionOptions{}}
		request.Options.FilterOption = &streams.ReadReq_Options_Filter{Filter: &streams.ReadReq_Options_FilterOptions{
			Filter: &streams.ReadReq_Options_FilterOptions_StreamIdentifier{
				StreamIdentifier: &streams.ReadReq_Options_FilterOptions_Expression{Prefix: []string{s}},
			},
			Window: &streams.ReadReq_Options_FilterOptions_Max{Max: 100_000}, CheckpointIntervalMultiplier: 1,
		}}
		got := n.read(t, request, 4)
		require.NotEmpty(t, got[0].GetConfirmation().GetSubscriptionId())
		require.EqualValues(t, 1, got[1].GetEvent().GetEvent().GetStreamRevision())
		require.GreaterOrEqual(t, got[2].GetCheckpoint().GetCommitPosition(), got[1].GetEvent().GetCommitPosition())
		require.NotNil(t, got[3].GetCaughtUp())
	},
	"an append of more than a mebibyte is refused": func(t *testing.T, n node) {
		_, err := n.send(t, newStream(), none, make([]byte, 1<<20), uuid.New())
		require.Equal(t, codes.InvalidArgument, status.Code(err))
	},
}

// node is a server by its address.
type node struct {
	streams.StreamsClient
	authorization string
}

func dial(t *testing.T, address string) node {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	transport := insecure.NewCredentials()
	if !strings.EqualFold(u.Query().Get("tls"), "false") {
		transport = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}) // a test server's own certificate
	}
	conn, err := grpc.NewClient(u.Host, grpc.WithTransportCredentials(transport))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	n := node{StreamsClient: streams.NewStreamsClient(conn)}
	if password, set := u.User.Password(); set {
		n.authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password))
	}
	return n
}

func (n node) context(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	if n.authorization != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", n.authorization)
	}
	return ctx
}

func newStream() string { return "protocol-" + uuid.NewString() }

// expectation sets what an append expects.
type expectation func(*streams.AppendReq_Options)

func none(o *streams.AppendReq_Options) {
	o.ExpectedStreamRevision = &streams.AppendReq_Options_NoStream{NoStream: &shared.Empty{}}
}

func anything(o *streams.AppendReq_Options) {
	o.ExpectedStreamRevision = &streams.AppendReq_Options_Any{Any: &shared.Empty{}}
}

func at(revision uint64) expectation {
	return func(o *streams.AppendReq_Options) {
		o.ExpectedStreamRevision = &streams.AppendReq_Options_Revision{Revision: revision}
	}
}

func (n node) send(t *testing.T, stream string, expect expectation, data []byte, ids ...uuid.UUID) (*streams.AppendResp, error) {
	t.Helper()
	call, err := n.Append(n.context(t))
	require.NoError(t, err)
	options := &streams.AppendReq_Options{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(stream)}}
	expect(options)
	require.NoError(t, call.Send(&streams.AppendReq{Content: &streams.AppendReq_Options_{Options: options}}))
	for _, id := range ids {
		require.NoError(t, call.Send(&streams.AppendReq{Content: &streams.AppendReq_ProposedMessage_{
			ProposedMessage: &streams.AppendReq_ProposedMessage{
				Id:       &shared.UUID{Value: &shared.UUID_String_{String_: id.String()}},
				Metadata: map[string]string{"type": "test.v1", "content-type": "application/json"},
				Data:     data,
			},
		}}))
	}
	return call.CloseAndRecv()
}

func (n node) reply(t *testing.T, stream string, expect expectation, ids ...uuid.UUID) *streams.AppendResp {
	t.Helper()
	reply, err := n.send(t, stream, expect, []byte(`{}`), ids...)
	require.NoError(t, err)
	return reply
}

func (n node) append(t *testing.T, stream string, expect expectation, ids ...uuid.UUID) *streams.AppendResp_Success {
	t.Helper()
	reply := n.reply(t, stream, expect, ids...)
	require.NotNil(t, reply.GetSuccess(), "%v", reply)
	return reply.GetSuccess()
}

func request(backwards bool, count uint64) *streams.ReadReq_Options {
	o := &streams.ReadReq_Options{
		CountOption:  &streams.ReadReq_Options_Count{Count: count},
		FilterOption: &streams.ReadReq_Options_NoFilter{NoFilter: &shared.Empty{}},
		UuidOption:   &streams.ReadReq_Options_UUIDOption{Content: &streams.ReadReq_Options_UUIDOption_Structured{Structured: &shared.Empty{}}},
	}
	if backwards {
		o.ReadDirection = streams.ReadReq_Options_Backwards
	}
	return o
}

func allFrom(position uint64, backwards bool, count uint64) *streams.ReadReq {
	o := request(backwards, count)
	o.StreamOption = &streams.ReadReq_Options_All{All: &streams.ReadReq_Options_AllOptions{
		AllOption: &streams.ReadReq_Options_AllOptions_Position{
			Position: &streams.ReadReq_Options_Position{CommitPosition: position, PreparePosition: position},
		},
	}}
	return &streams.ReadReq{Options: o}
}

func streamFrom(stream string, revision uint64, backwards bool, count uint64) *streams.ReadReq {
	o := request(backwards, count)
	from := &streams.ReadReq_Options_StreamOptions{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(stream)}}
	from.RevisionOption = &streams.ReadReq_Options_StreamOptions_Revision{Revision: revision}
	if backwards {
		from.RevisionOption = &streams.ReadReq_Options_StreamOptions_End{End: &shared.Empty{}}
	}
	o.StreamOption = &streams.ReadReq_Options_Stream{Stream: from}
	return &streams.ReadReq{Options: o}
}

// read receives up to so many messages.
func (n node) read(t *testing.T, r *streams.ReadReq, most int) []*streams.ReadResp {
	t.Helper()
	call, err := n.Read(n.context(t), r)
	require.NoError(t, err)
	var got []*streams.ReadResp
	for len(got) < most {
		m, err := call.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		got = append(got, m)
	}
	return got
}

func (n node) stream(t *testing.T, stream string, backwards bool, count uint64) []*streams.ReadResp_ReadEvent {
	t.Helper()
	var events []*streams.ReadResp_ReadEvent
	for _, m := range n.read(t, streamFrom(stream, 0, backwards, count), int(count)) {
		require.NotNil(t, m.GetEvent(), "%v", m)
		events = append(events, m.GetEvent())
	}
	return events
}
