package esdbtest_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	recordErrors "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/errors"
	records "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/streams"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

// TestServer_Records tests AppendRecords at the level of the protocol. If URLVariable is set, a real server of 26.0.3
// or later must respond the same.
func TestServer_Records(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	server.Upgrade()
	servers := map[string]string{"esdbtest": server.URL()}
	if real := os.Getenv(esdbtest.URLVariable); real != "" {
		servers["real"] = real
	}
	for name, address := range servers {
		for behaviour, test := range recordsProtocol {
			t.Run(name+"/"+behaviour, func(t *testing.T) {
				t.Parallel()
				test(t, dial(t, address))
			})
		}
	}
}

// written is a record of an empty JSON object.
func written(stream string, id uuid.UUID) *records.AppendRecord {
	text := id.String()
	return &records.AppendRecord{
		RecordId: &text, Stream: stream, Data: []byte(`{}`),
		Schema: &records.SchemaInfo{Format: records.SchemaFormat_SCHEMA_FORMAT_JSON, Name: "test.v1"},
	}
}

func recordsOf(r ...*records.AppendRecord) []*records.AppendRecord { return r }

func checked(stream string, expected int64) *records.ConsistencyCheck {
	return &records.ConsistencyCheck{Type: &records.ConsistencyCheck_StreamState{
		StreamState: &records.ConsistencyCheck_StreamStateCheck{Stream: stream, ExpectedState: expected},
	}}
}

func (n node) sendRecords(
	t *testing.T, r []*records.AppendRecord, checks ...*records.ConsistencyCheck,
) (*records.AppendRecordsResponse, error) {
	t.Helper()
	return records.NewStreamsServiceClient(n.conn).AppendRecords(n.context(t), &records.AppendRecordsRequest{
		Records: r, Checks: checks,
	})
}

func (n node) appendRecords(
	t *testing.T, r []*records.AppendRecord, checks ...*records.ConsistencyCheck,
) *records.AppendRecordsResponse {
	t.Helper()
	answer, err := n.sendRecords(t, r, checks...)
	require.NoError(t, err)
	return answer
}

// violations returns the failed checks in an error, as stream and actual state.
func violations(t *testing.T, err error) map[string]int64 {
	t.Helper()
	require.Equal(t, codes.FailedPrecondition, status.Code(err), "%v", err)
	failed := map[string]int64{}
	for _, d := range status.Convert(err).Details() {
		if v, ok := d.(*recordErrors.AppendConsistencyViolationErrorDetails); ok {
			for _, v := range v.GetViolations() {
				failed[v.GetStreamState().GetStream()] = v.GetStreamState().GetActualState()
			}
		}
	}
	return failed
}

var recordsProtocol = map[string]func(*testing.T, node){
	"$all has the order of the request": func(t *testing.T, n node) {
		a, b := newStream(), newStream()
		ids := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
		answer := n.appendRecords(t, recordsOf(written(a, ids[0]), written(b, ids[1]), written(a, ids[2])))
		inA := n.stream(t, a, false, 10)
		require.Len(t, inA, 2)
		require.EqualValues(t, answer.GetPosition(), inA[1].GetEvent().GetCommitPosition())
		all := n.read(t, allFrom(inA[0].GetEvent().GetCommitPosition(), false, 3), 3)
		for i, stream := range []string{a, b, a} {
			e := all[i].GetEvent().GetEvent()
			require.Equal(t, stream, string(e.GetStreamIdentifier().GetStreamName()))
			require.Equal(t, e.GetCommitPosition(), e.GetPreparePosition())
		}
		revisions := map[string]int64{}
		for _, r := range answer.GetRevisions() {
			revisions[r.GetStream()] = r.GetRevision()
		}
		require.Equal(t, map[string]int64{a: 1, b: 0}, revisions)
	},
	"all failing checks are returned, and nothing is written": func(t *testing.T, n node) {
		a, b, c, fresh := newStream(), newStream(), newStream(), newStream()
		n.append(t, a, noStream, uuid.New(), uuid.New())
		n.append(t, b, noStream, uuid.New())
		_, err := n.sendRecords(t, recordsOf(written(fresh, uuid.New())),
			checked(a, 0), checked(b, 0), checked(c, 3), checked(fresh, -1))
		require.Equal(t, map[string]int64{a: 1, c: -1}, violations(t, err))
		require.NotNil(t, n.read(t, streamFrom(fresh, 0, false, 1), 1)[0].GetStreamNotFound())
		n.appendRecords(t, recordsOf(written(fresh, uuid.New())), checked(a, 1), checked(b, -4), checked(c, -1))
	},
	"invalid requests": func(t *testing.T, n node) {
		s := newStream()
		unnamed, noFormat, spaced, reserved := written(s, uuid.New()), written(s, uuid.New()), written(s, uuid.New()),
			written(s, uuid.New())
		unnamed.Stream = ""
		noFormat.Schema.Format = records.SchemaFormat_SCHEMA_FORMAT_UNSPECIFIED
		spaced.Schema.Name = "not a name"
		reserved.Properties = map[string]*structpb.Value{"$mine": structpb.NewStringValue("x")}
		for name, try := range map[string]func() error{
			"no records":         func() error { _, err := n.sendRecords(t, nil, checked(s, -1)); return err },
			"without a stream":   func() error { _, err := n.sendRecords(t, recordsOf(unnamed)); return err },
			"without a format":   func() error { _, err := n.sendRecords(t, recordsOf(noFormat)); return err },
			"a type with spaces": func() error { _, err := n.sendRecords(t, recordsOf(spaced)); return err },
			"a system property":  func() error { _, err := n.sendRecords(t, recordsOf(reserved)); return err },
			"a check of anything": func() error {
				_, err := n.sendRecords(t, recordsOf(written(s, uuid.New())), checked(s, -2))
				return err
			},
			"a stream is checked twice": func() error {
				_, err := n.sendRecords(t, recordsOf(written(s, uuid.New())), checked(s, -1), checked(s, -1))
				return err
			},
		} {
			require.Equal(t, codes.InvalidArgument, status.Code(try()), name)
		}
	},
	"a repeat has the first answer, whatever its checks": func(t *testing.T, n node) {
		a, b, watched := newStream(), newStream(), newStream()
		again := recordsOf(written(a, uuid.New()), written(b, uuid.New()), written(a, uuid.New()))
		checks := []*records.ConsistencyCheck{checked(a, -1), checked(b, -1), checked(watched, -1)}
		first := n.appendRecords(t, again, checks...)
		n.append(t, a, at(1), uuid.New())
		n.append(t, watched, noStream, uuid.New())
		require.Equal(t, first.GetPosition(), n.appendRecords(t, again, checks...).GetPosition())
		for name, other := range map[string][]*records.AppendRecord{
			"more records":  append(recordsOf(again...), written(a, uuid.New())),
			"another order": recordsOf(again[2], again[1], again[0]),
			"a new stream":  append(recordsOf(again...), written(newStream(), uuid.New())),
		} {
			_, err := n.sendRecords(t, other, checks...)
			require.Equal(t, codes.FailedPrecondition, status.Code(err), name)
		}
	},
	"ids agree with those of Append": func(t *testing.T, n node) {
		a, id := newStream(), uuid.New()
		first := n.append(t, a, noStream, id)
		answer := n.appendRecords(t, recordsOf(written(a, id)), checked(a, -1))
		require.EqualValues(t, first.GetPosition().GetCommitPosition(), answer.GetPosition())
		b, other := newStream(), uuid.New()
		answer = n.appendRecords(t, recordsOf(written(b, other)), checked(b, -1))
		require.EqualValues(t, answer.GetPosition(),
			n.append(t, b, noStream, other).GetPosition().GetCommitPosition())
	},
	"names that differ in case are one stream in a call": func(t *testing.T, n node) {
		s := newStream()
		n.appendRecords(t, recordsOf(written(s+"Case", uuid.New()), written(s+"case", uuid.New())))
		require.Len(t, n.stream(t, s+"Case", false, 10), 2)
		n.appendRecords(t, recordsOf(written(s+"cc", uuid.New())), checked(s+"CC", -1))
		require.Len(t, n.stream(t, s+"CC", false, 10), 1)
		require.NotNil(t, n.read(t, streamFrom(s+"cc", 0, false, 1), 1)[0].GetStreamNotFound())
	},
	"properties are JSON for readers": func(t *testing.T, n node) {
		s, text := newStream(), `{"a":"é \" \\ <&>","n":1.10}`
		r := written(s, uuid.New())
		r.Data = []byte(`{ "b":1.10 , "a":"é"}`)
		r.Properties = map[string]*structpb.Value{"mine": structpb.NewStringValue(text)}
		n.appendRecords(t, recordsOf(r))
		e := n.stream(t, s, false, 1)[0].GetEvent()
		require.Equal(t, string(r.GetData()), string(e.GetData()))
		require.Equal(t, "test.v1", e.GetMetadata()["type"])
		require.Equal(t, "application/json", e.GetMetadata()["content-type"])
		var properties map[string]string
		require.NoError(t, json.Unmarshal(e.GetCustomMetadata(), &properties))
		require.Equal(t, text, properties["mine"])
		require.Equal(t, "test.v1", properties["$schema.name"])
		require.Contains(t, properties, "$schema.format")
	},
	"a record over the limit is refused": func(t *testing.T, n node) {
		r := written(newStream(), uuid.New())
		r.Data = make([]byte, 16<<20+1)
		_, err := n.sendRecords(t, recordsOf(r))
		require.Equal(t, codes.InvalidArgument, status.Code(err))
	},
	"a subscription can go on between two records": func(t *testing.T, n node) {
		a, b := newStream(), newStream()
		answer := n.appendRecords(t, recordsOf(written(a, uuid.New()), written(b, uuid.New())))
		first := n.stream(t, a, false, 1)[0].GetEvent().GetCommitPosition()
		got := n.read(t, subscribeTo(first, &streams.ReadReq_Options_FilterOptions{
			Filter: &streams.ReadReq_Options_FilterOptions_StreamIdentifier{StreamIdentifier: prefixes(b)},
		}), 2)
		require.EqualValues(t, answer.GetPosition(), got[1].GetEvent().GetEvent().GetCommitPosition())
	},
}

// After a restart the server has no ids in memory: only checks reveal a repeat.
func TestServer_RecordsAfterRestart(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	server.Upgrade()
	n := dial(t, server.URL())
	a, b := newStream(), newStream()
	again := recordsOf(written(a, uuid.New()), written(b, uuid.New()))
	first := n.appendRecords(t, again, checked(a, -1), checked(b, -1))
	server.Forget()
	require.Equal(t, first.GetPosition(), n.appendRecords(t, again, checked(a, -1), checked(b, -1)).GetPosition())
	n.appendRecords(t, again)
	require.Len(t, n.stream(t, a, false, 10), 2, "without checks the records are written again")
}

func TestServer_RecordsOfAnOlderServer(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	_, err := dial(t, server.URL()).sendRecords(t, recordsOf(written(newStream(), uuid.New())))
	require.Equal(t, codes.Unimplemented, status.Code(err))
}
