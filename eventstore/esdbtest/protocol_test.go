package esdbtest_test

import (
	"os"
	"strings"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

// TestServer_Protocol tests the responses of a server at the level of the protocol. If URLVariable is set, a real
// server must respond the same.
func TestServer_Protocol(t *testing.T) {
	t.Parallel()
	servers := map[string]string{"esdbtest": esdbtest.Start(t).URL()}
	if real := os.Getenv(esdbtest.URLVariable); real != "" {
		servers["real"] = real
	}
	for name, address := range servers {
		for behaviour, test := range protocol {
			t.Run(name+"/"+behaviour, func(t *testing.T) {
				t.Parallel()
				test(t, dial(t, address))
			})
		}
	}
}

var protocol = map[string]func(*testing.T, node){
	"a stream is created once, and the conflict has its revision": func(t *testing.T, n node) {
		s := newStream()
		n.append(t, s, noStream, uuid.New(), uuid.New())
		wrong := n.reply(t, s, noStream, uuid.New()).GetWrongExpectedVersion()
		require.NotNil(t, wrong.GetExpectedNoStream())
		require.EqualValues(t, 1, wrong.GetCurrentRevision())
	},
	"a revision of a missing stream is a conflict": func(t *testing.T, n node) {
		wrong := n.reply(t, newStream(), at(0), uuid.New()).GetWrongExpectedVersion()
		require.NotNil(t, wrong.GetCurrentNoStream())
		require.EqualValues(t, 0, wrong.GetExpectedRevision())
	},
	"a repeat of an append is idempotent, also after later appends": func(t *testing.T, n node) {
		s, id, next := newStream(), uuid.New(), uuid.New()
		first := n.append(t, s, noStream, id)
		n.append(t, s, at(0), next)
		again := n.append(t, s, noStream, id)
		require.Equal(t, first.GetPosition().GetCommitPosition(), again.GetPosition().GetCommitPosition())
		require.EqualValues(t, 0, again.GetCurrentRevision())
		require.Len(t, n.stream(t, s, false, 10), 2)
	},
	"a repeat with more events is a conflict": func(t *testing.T, n node) {
		s, id := newStream(), uuid.New()
		n.append(t, s, noStream, id)
		require.NotNil(t, n.reply(t, s, noStream, id, uuid.New()).GetWrongExpectedVersion())
	},
	"a recent append at any revision is idempotent": func(t *testing.T, n node) {
		s, id := newStream(), uuid.New()
		first := n.append(t, s, anyRevision, id)
		n.append(t, s, anyRevision, uuid.New())
		require.Equal(t, first.GetPosition().GetCommitPosition(),
			n.append(t, s, anyRevision, id).GetPosition().GetCommitPosition())
		require.Len(t, n.stream(t, s, false, 10), 2)
	},
	"a repeat with more events at any revision is a conflict": func(t *testing.T, n node) {
		s, id := newStream(), uuid.New()
		n.append(t, s, anyRevision, id)
		require.NotNil(t, n.reply(t, s, anyRevision, id, uuid.New()).GetWrongExpectedVersion())
	},
	"an append to an existing stream needs the stream": func(t *testing.T, n node) {
		s := newStream()
		wrong := n.reply(t, s, streamExists, uuid.New()).GetWrongExpectedVersion()
		require.NotNil(t, wrong.GetExpectedStreamExists())
		require.NotNil(t, wrong.GetCurrentNoStream())
		n.append(t, s, noStream, uuid.New())
		require.EqualValues(t, 1, n.append(t, s, streamExists, uuid.New()).GetCurrentRevision())
	},
	"data and metadata are returned byte for byte, with id and type": func(t *testing.T, n node) {
		s, id := newStream(), uuid.New()
		_, err := n.send(t, s, noStream, []byte(`{ "b":1.10 , "a":"é"}`), id)
		require.NoError(t, err)
		e := n.stream(t, s, false, 1)[0].GetEvent()
		require.Equal(t, `{ "b":1.10 , "a":"é"}`, string(e.GetData()))
		require.Equal(t, "test.v1", e.GetMetadata()["type"])
		require.Equal(t, "application/json", e.GetMetadata()["content-type"])
		require.NotEmpty(t, e.GetMetadata()["created"])
		require.Equal(t, s, string(e.GetStreamIdentifier().GetStreamName()))
	},
	"names of streams may be any text": func(t *testing.T, n node) {
		for _, name := range []string{
			"größe 🦊", "a%b_c'\"\\", "tab\tline\n", "{x}[y]*?", strings.Repeat("n", 200),
		} {
			s := newStream() + name
			n.append(t, s, noStream, uuid.New())
			require.Len(t, n.stream(t, s, false, 10), 1, name)
		}
	},
	"an event has one position in its append, its stream and $all": func(t *testing.T, n node) {
		s := newStream()
		position := n.append(t, s, noStream, uuid.New()).GetPosition()
		require.Equal(t, position.GetCommitPosition(), position.GetPreparePosition())
		inStream := n.stream(t, s, false, 1)[0].GetEvent()
		require.Equal(t, position.GetCommitPosition(), inStream.GetCommitPosition())
		all := n.read(t, allFrom(position.GetCommitPosition(), false, 1), 1)
		require.Equal(t, inStream.GetId().GetStructured().String(),
			all[0].GetEvent().GetEvent().GetId().GetStructured().String(),
			"a read of $all begins with the event at its position")
	},
	"each event of an append has its own position, and the response has the last one": func(t *testing.T, n node) {
		s := newStream()
		position := n.append(t, s, noStream, uuid.New(), uuid.New(), uuid.New()).GetPosition().GetCommitPosition()
		events := n.stream(t, s, false, 10)
		for i, m := range events[1:] {
			require.Greater(t, m.GetEvent().GetCommitPosition(), events[i].GetEvent().GetCommitPosition())
		}
		require.Equal(t, position, events[2].GetEvent().GetCommitPosition())
	},
	"a position at which no record begins is rejected": func(t *testing.T, n node) {
		s := newStream()
		first := n.append(t, s, noStream, uuid.New()).GetPosition().GetCommitPosition()
		n.append(t, s, at(0), uuid.New())
		for name, request := range map[string]*streams.ReadReq{
			"read": allFrom(first+1, false, 1), "backwards": allFrom(first+1, true, 1),
			"subscription": subscribeTo(first+1, &streams.ReadReq_Options_FilterOptions{
				Filter: &streams.ReadReq_Options_FilterOptions_StreamIdentifier{StreamIdentifier: prefixes(s)},
			}),
		} {
			call, err := n.Read(n.context(t), request)
			require.NoError(t, err)
			for err == nil {
				_, err = call.Recv()
			}
			require.Equal(t, codes.InvalidArgument, status.Code(err), name)
			require.Contains(t, err.Error(), "Trying to read from an invalid position.", name)
		}
	},
	"a missing stream is a message, a read past the end is empty": func(t *testing.T, n node) {
		s := newStream()
		missing := n.read(t, streamFrom(s, 0, false, 1), 1)
		require.Equal(t, s, string(missing[0].GetStreamNotFound().GetStreamIdentifier().GetStreamName()))
		n.append(t, s, noStream, uuid.New())
		require.Empty(t, n.read(t, streamFrom(s, 7, false, 1), 1))
	},
	"a backwards read begins at the end": func(t *testing.T, n node) {
		s, last := newStream(), uuid.New()
		n.append(t, s, noStream, uuid.New(), uuid.New(), last)
		events := n.stream(t, s, true, 1)
		require.Len(t, events, 1)
		require.EqualValues(t, 2, events[0].GetEvent().GetStreamRevision())
	},
	"$all backwards begins with the newest event, and forwards from the end is empty": func(t *testing.T, n node) {
		s := newStream()
		position := n.append(t, s, noStream, uuid.New()).GetPosition().GetCommitPosition()
		backwards := n.read(t, allFromEnd(true, 1), 1)
		require.Len(t, backwards, 1)
		require.GreaterOrEqual(t, backwards[0].GetEvent().GetEvent().GetCommitPosition(), position)
		for _, m := range n.read(t, allFromEnd(false, 1), 1) { // unless others have just written
			require.Greater(t, m.GetEvent().GetEvent().GetCommitPosition(), position)
		}
	},
	"$all backwards from a position begins before it": func(t *testing.T, n node) {
		s := newStream()
		first := n.append(t, s, noStream, uuid.New()).GetPosition().GetCommitPosition()
		second := n.append(t, s, at(0), uuid.New()).GetPosition().GetCommitPosition()
		got := n.read(t, allFrom(second, true, 1), 1)[0].GetEvent().GetEvent().GetCommitPosition()
		require.GreaterOrEqual(t, got, first)
		require.Less(t, got, second)
	},
	"a subscription continues with new events after it has caught up": func(t *testing.T, n node) {
		s := newStream()
		first := n.append(t, s, noStream, uuid.New()).GetPosition().GetCommitPosition()
		call, err := n.Read(n.context(t), subscribeTo(first, &streams.ReadReq_Options_FilterOptions{
			Filter: &streams.ReadReq_Options_FilterOptions_StreamIdentifier{StreamIdentifier: prefixes(s)},
		}))
		require.NoError(t, err)
		caughtUp := false
		for {
			m, err := call.Recv()
			require.NoError(t, err)
			if m.GetCaughtUp() != nil {
				caughtUp = true
				n.append(t, s, at(0), uuid.New())
			}
			if e := m.GetEvent(); e != nil {
				require.True(t, caughtUp)
				require.EqualValues(t, 1, e.GetEvent().GetStreamRevision())
				return
			}
		}
	},
	"filters are prefixes or a pattern, of streams or of types": func(t *testing.T, n node) {
		s := newStream()
		first := n.append(t, s, noStream, uuid.New()).GetPosition().GetCommitPosition()
		n.append(t, s, at(0), uuid.New())
		for name, f := range map[string]*streams.ReadReq_Options_FilterOptions{
			"prefixes of streams": {
				Filter: &streams.ReadReq_Options_FilterOptions_StreamIdentifier{StreamIdentifier: prefixes("none", s)},
			},
			"prefixes of types": {
				Filter: &streams.ReadReq_Options_FilterOptions_EventType{EventType: prefixes("test.")},
			},
			"a pattern of streams": {Filter: &streams.ReadReq_Options_FilterOptions_StreamIdentifier{
				StreamIdentifier: &streams.ReadReq_Options_FilterOptions_Expression{Regex: "^" + s + "$"}}},
			"a pattern of types": {Filter: &streams.ReadReq_Options_FilterOptions_EventType{
				EventType: &streams.ReadReq_Options_FilterOptions_Expression{Regex: `^[^\$].*`}}},
		} {
			call, err := n.Read(n.context(t), subscribeTo(first, f))
			require.NoError(t, err)
			for {
				m, err := call.Recv()
				require.NoError(t, err, name)
				if e := m.GetEvent().GetEvent(); string(e.GetStreamIdentifier().GetStreamName()) == s {
					require.EqualValues(t, 1, e.GetStreamRevision(), name)
					break
				}
				require.Nil(t, m.GetCaughtUp(), name)
			}
		}
	},
	"an event without a type is rejected": func(t *testing.T, n node) {
		call, err := n.Append(n.context(t))
		require.NoError(t, err)
		options := &streams.AppendReq_Options{
			StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(newStream())},
		}
		noStream(options)
		require.NoError(t, call.Send(&streams.AppendReq{Content: &streams.AppendReq_Options_{Options: options}}))
		require.NoError(t, call.Send(&streams.AppendReq{Content: &streams.AppendReq_ProposedMessage_{
			ProposedMessage: &streams.AppendReq_ProposedMessage{
				Id: &shared.UUID{Value: &shared.UUID_String_{String_: uuid.NewString()}}, Data: []byte(`{}`),
			},
		}}))
		_, err = call.CloseAndRecv()
		require.Equal(t, codes.InvalidArgument, status.Code(err))
	},
	"a subscription sends a confirmation, the events after its position, a checkpoint " +
		"and caught-up": func(t *testing.T, n node) {
		s := newStream()
		first := n.append(t, s, noStream, uuid.New()).GetPosition().GetCommitPosition()
		n.append(t, s, at(0), uuid.New())
		got := n.read(t, subscribeTo(first, &streams.ReadReq_Options_FilterOptions{
			Filter: &streams.ReadReq_Options_FilterOptions_StreamIdentifier{StreamIdentifier: prefixes(s)},
		}), 4)
		require.NotEmpty(t, got[0].GetConfirmation().GetSubscriptionId())
		require.EqualValues(t, 1, got[1].GetEvent().GetEvent().GetStreamRevision())
		require.GreaterOrEqual(t, got[2].GetCheckpoint().GetCommitPosition(), got[1].GetEvent().GetCommitPosition())
		require.NotNil(t, got[3].GetCaughtUp())
	},
	"an append of more than a mebibyte is rejected": func(t *testing.T, n node) {
		_, err := n.send(t, newStream(), noStream, make([]byte, 1<<20+1), uuid.New())
		require.Equal(t, codes.InvalidArgument, status.Code(err))
	},
}
