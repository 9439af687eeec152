package esdbtest_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// node is a client of a server.
type node struct {
	streams.StreamsClient
	conn          *grpc.ClientConn
	authorization string
}

func dial(t *testing.T, address string) node {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	transport := insecure.NewCredentials()
	if !strings.EqualFold(u.Query().Get("tls"), "false") {
		transport = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}) // self-signed
	}
	conn, err := grpc.NewClient(u.Host, grpc.WithTransportCredentials(transport))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	n := node{StreamsClient: streams.NewStreamsClient(conn), conn: conn}
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

// expectation sets the expected revision of an append.
type expectation func(*streams.AppendReq_Options)

func noStream(o *streams.AppendReq_Options) {
	o.ExpectedStreamRevision = &streams.AppendReq_Options_NoStream{NoStream: &shared.Empty{}}
}

func anyRevision(o *streams.AppendReq_Options) {
	o.ExpectedStreamRevision = &streams.AppendReq_Options_Any{Any: &shared.Empty{}}
}

func streamExists(o *streams.AppendReq_Options) {
	o.ExpectedStreamRevision = &streams.AppendReq_Options_StreamExists{StreamExists: &shared.Empty{}}
}

func at(revision uint64) expectation {
	return func(o *streams.AppendReq_Options) {
		o.ExpectedStreamRevision = &streams.AppendReq_Options_Revision{Revision: revision}
	}
}

func (n node) send(
	t *testing.T, stream string, expect expectation, data []byte, ids ...uuid.UUID,
) (*streams.AppendResp, error) {
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
		UuidOption: &streams.ReadReq_Options_UUIDOption{
			Content: &streams.ReadReq_Options_UUIDOption_Structured{Structured: &shared.Empty{}},
		},
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

func allFromEnd(backwards bool, count uint64) *streams.ReadReq {
	o := request(backwards, count)
	o.StreamOption = &streams.ReadReq_Options_All{All: &streams.ReadReq_Options_AllOptions{
		AllOption: &streams.ReadReq_Options_AllOptions_End{End: &shared.Empty{}},
	}}
	return &streams.ReadReq{Options: o}
}

// subscribeTo requests a subscription from a position, with a large interval between checkpoints.
func subscribeTo(position uint64, filter *streams.ReadReq_Options_FilterOptions) *streams.ReadReq {
	filter.Window = &streams.ReadReq_Options_FilterOptions_Max{Max: 100_000}
	filter.CheckpointIntervalMultiplier = 1
	r := allFrom(position, false, 0)
	r.Options.CountOption = &streams.ReadReq_Options_Subscription{
		Subscription: &streams.ReadReq_Options_SubscriptionOptions{},
	}
	r.Options.FilterOption = &streams.ReadReq_Options_Filter{Filter: filter}
	return r
}

func prefixes(of ...string) *streams.ReadReq_Options_FilterOptions_Expression {
	return &streams.ReadReq_Options_FilterOptions_Expression{Prefix: of}
}

func streamFrom(stream string, revision uint64, backwards bool, count uint64) *streams.ReadReq {
	o := request(backwards, count)
	from := &streams.ReadReq_Options_StreamOptions{
		StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(stream)},
	}
	from.RevisionOption = &streams.ReadReq_Options_StreamOptions_Revision{Revision: revision}
	if backwards {
		from.RevisionOption = &streams.ReadReq_Options_StreamOptions_End{End: &shared.Empty{}}
	}
	o.StreamOption = &streams.ReadReq_Options_Stream{Stream: from}
	return &streams.ReadReq{Options: o}
}

// read returns up to limit messages.
func (n node) read(t *testing.T, r *streams.ReadReq, limit int) []*streams.ReadResp {
	t.Helper()
	call, err := n.Read(n.context(t), r)
	require.NoError(t, err)
	var got []*streams.ReadResp
	for len(got) < limit {
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
