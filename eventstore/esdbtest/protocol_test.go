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

// The answers of a server, on the level of the protocol. If URLVariable is set, a real server must give the same.
func TestServer_Answers(t *testing.T) {
	t.Parallel()
	servers := map[string]string{"esdbtest": esdbtest.Start(t).URL()}
	if real := os.Getenv(esdbtest.URLVariable); real != "" {
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
	"a stream is created once, and the refusal has its revision": func(t *testing.T, n node) {
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
	"ids of which only the first is known are wrong when nothing is expected": func(t *testing.T, n node) {
		s, id := newStream(), uuid.New()
		n.append(t, s, anything, id)
		require.NotNil(t, n.reply(t, s, anything, id, uuid.New()).GetWrongExpectedVersion())
	},
	"a stream that must be there is missed, and then gone on with": func(t *testing.T, n node) {
		s := newStream()
		wrong := n.reply(t, s, exists, uuid.New()).GetWrongExpectedVersion()
		require.NotNil(t, wrong.GetExpectedStreamExists())
		require.NotNil(t, wrong.GetCurrentNoStream())
		n.append(t, s, none, uuid.New())
		require.EqualValues(t, 1, n.append(t, s, exists, uuid.New()).GetCurrentRevision())
	},
	"data and metadata come back byte for byte, with the id and the type": func(t *testing.T, n node) {
		s, id := newStream(), uuid.New()
		_, err := n.send(t, s, none, []byte(`{ "b":1.10 , "a":"é"}`), id)
		require.NoError(t, err)
		e := n.stream(t, s, false, 1)[0].GetEvent()
		require.Equal(t, `{ "b":1.10 , "a":"é"}`, string(e.GetData()))
		require.Equal(t, "test.v1", e.GetMetadata()["type"])
		require.Equal(t, "application/json", e.GetMetadata()["content-type"])
		require.NotEmpty(t, e.GetMetadata()["created"])
		require.Equal(t, s, string(e.GetStreamIdentifier().GetStreamName()))
	},
	"names of streams may be anything that is text": func(t *testing.T, n node) {
		for _, name := range []string{"größe 🦊", "a%b_c'\"\\", "tab\tline\n", "{x}[y]*?", strings.Repeat("n", 200)} {
			s := newStream() + name
			n.append(t, s, none, uuid.New())
			require.Len(t, n.stream(t, s, false, 10), 1, name)
		}
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
	"each event of an append has a position of its own, and the answer has the last one's": func(t *testing.T, n node) {
		s := newStream()
		position := n.append(t, s, none, uuid.New(), uuid.New(), uuid.New()).GetPosition().GetCommitPosition()
		there := n.stream(t, s, false, 10)
		for i, m := range there[1:] {
			require.Greater(t, m.GetEvent().GetCommitPosition(), there[i].GetEvent().GetCommitPosition())
		}
		require.Equal(t, position, there[2].GetEvent().GetCommitPosition())
	},
	"a position where no record begins is refused": func(t *testing.T, n node) {
		s := newStream()
		first := n.append(t, s, none, uuid.New()).GetPosition().GetCommitPosition()
		n.append(t, s, at(0), uuid.New())
		for says, request := range map[string]*streams.ReadReq{
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
			require.Equal(t, codes.InvalidArgument, status.Code(err), says)
			require.Contains(t, err.Error(), "Trying to read from an invalid position.", says)
		}
	},
	"a missing stream is a message, a read past the end is empty": func(t *testing.T, n node) {
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
	"$all backwards begins with the newest, and forwards from its end with nothing": func(t *testing.T, n node) {
		s := newStream()
		position := n.append(t, s, none, uuid.New()).GetPosition().GetCommitPosition()
		backwards := n.read(t, allFromEnd(true, 1), 1)
		require.Len(t, backwards, 1)
		require.GreaterOrEqual(t, backwards[0].GetEvent().GetEvent().GetCommitPosition(), position)
		for _, m := range n.read(t, allFromEnd(false, 1), 1) { // others may have written just now
			require.Greater(t, m.GetEvent().GetEvent().GetCommitPosition(), position)
		}
	},
	"$all backwards from a position begins before it": func(t *testing.T, n node) {
		s := newStream()
		first := n.append(t, s, none, uuid.New()).GetPosition().GetCommitPosition()
		second := n.append(t, s, at(0), uuid.New()).GetPosition().GetCommitPosition()
		got := n.read(t, allFrom(second, true, 1), 1)[0].GetEvent().GetEvent().GetCommitPosition()
		require.GreaterOrEqual(t, got, first)
		require.Less(t, got, second)
	},
	"a subscription goes on with what comes after it has caught up": func(t *testing.T, n node) {
		s := newStream()
		first := n.append(t, s, none, uuid.New()).GetPosition().GetCommitPosition()
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
	"filters go by prefixes or by a pattern, of streams or of types": func(t *testing.T, n node) {
		s := newStream()
		first := n.append(t, s, none, uuid.New()).GetPosition().GetCommitPosition()
		n.append(t, s, at(0), uuid.New())
		for says, f := range map[string]*streams.ReadReq_Options_FilterOptions{
			"prefixes of streams": {Filter: &streams.ReadReq_Options_FilterOptions_StreamIdentifier{StreamIdentifier: prefixes("none", s)}},
			"prefixes of types":   {Filter: &streams.ReadReq_Options_FilterOptions_EventType{EventType: prefixes("test.")}},
			"a pattern of streams": {Filter: &streams.ReadReq_Options_FilterOptions_StreamIdentifier{
				StreamIdentifier: &streams.ReadReq_Options_FilterOptions_Expression{Regex: "^" + s + "$"}}},
			"a pattern of types": {Filter: &streams.ReadReq_Options_FilterOptions_EventType{
				EventType: &streams.ReadReq_Options_FilterOptions_Expression{Regex: `^[^\$].*`}}},
		} {
			call, err := n.Read(n.context(t), subscribeTo(first, f))
			require.NoError(t, err)
			for {
				m, err := call.Recv()
				require.NoError(t, err, says)
				if e := m.GetEvent().GetEvent(); string(e.GetStreamIdentifier().GetStreamName()) == s {
					require.EqualValues(t, 1, e.GetStreamRevision(), says)
					break
				}
				require.Nil(t, m.GetCaughtUp(), says)
			}
		}
	},
	"an event without a type is refused": func(t *testing.T, n node) {
		call, err := n.Append(n.context(t))
		require.NoError(t, err)
		options := &streams.AppendReq_Options{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(newStream())}}
		none(options)
		require.NoError(t, call.Send(&streams.AppendReq{Content: &streams.AppendReq_Options_{Options: options}}))
		require.NoError(t, call.Send(&streams.AppendReq{Content: &streams.AppendReq_ProposedMessage_{
			ProposedMessage: &streams.AppendReq_ProposedMessage{
				Id: &shared.UUID{Value: &shared.UUID_String_{String_: uuid.NewString()}}, Data: []byte(`{}`),
			},
		}}))
		_, err = call.CloseAndRecv()
		require.Equal(t, codes.InvalidArgument, status.Code(err))
	},
	"a subscription confirms, reads what comes after its position, sends a checkpoint and that it has caught up": func(t *testing.T, n node) {
		s := newStream()
		first := n.append(t, s, none, uuid.New()).GetPosition().GetCommitPosition()
		n.append(t, s, at(0), uuid.New())
		got := n.read(t, subscribeTo(first, &streams.ReadReq_Options_FilterOptions{
			Filter: &streams.ReadReq_Options_FilterOptions_StreamIdentifier{StreamIdentifier: prefixes(s)},
		}), 4)
		require.NotEmpty(t, got[0].GetConfirmation().GetSubscriptionId())
		require.EqualValues(t, 1, got[1].GetEvent().GetEvent().GetStreamRevision())
		require.GreaterOrEqual(t, got[2].GetCheckpoint().GetCommitPosition(), got[1].GetEvent().GetCommitPosition())
		require.NotNil(t, got[3].GetCaughtUp())
	},
	"an append of more than a mebibyte is refused": func(t *testing.T, n node) {
		_, err := n.send(t, newStream(), none, make([]byte, 1<<20+1), uuid.New())
		require.Equal(t, codes.InvalidArgument, status.Code(err))
	},
}
