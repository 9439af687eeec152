package esdbtest

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	kurrentErrors "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/errors"
	recordErrors "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/errors"
	records "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
)

// recordService is the protocol's version 2, which KurrentDB has since 26.0.3: AppendRecords.
type recordService struct {
	records.UnimplementedStreamsServiceServer
	server *Server
}

// The server's default limits, in bytes of data, properties and type.
const (
	maxRecord        = 16 << 20
	maxRecordsAppend = 256 << 20
)

// schemaName is what the server accepts as the type of a record.
var schemaName = regexp.MustCompile(`^[\p{L}\p{N}_.$:-]+$`)

// AppendRecords implements the protocol: the records of all streams are written in one transaction if all checks hold.
func (r recordService) AppendRecords(
	ctx context.Context, request *records.AppendRecordsRequest,
) (*records.AppendRecordsResponse, error) {
	s := r.server
	if !s.upgraded.Load() {
		return nil, status.Error(codes.Unimplemented, "Service is unimplemented.")
	}
	s.faults.recordCalls.Add(1)
	if err := s.leads(ctx); err != nil {
		return nil, err
	}
	a, err := parse(request)
	if err != nil {
		return nil, err
	}
	answer, err := s.log.appendRecords(a)
	if err != nil {
		return nil, err
	}
	s.noise()
	if s.faults.lostReplies.spend() {
		s.Drop()
		return nil, status.Error(codes.Unavailable, "the reply is lost")
	}
	return answer, nil
}

// leads rejects a call that requires the leader and is sent to another node.
func (s *Server) leads(ctx context.Context) error {
	headers, _ := metadata.FromIncomingContext(ctx)
	if asked := headers.Get("requires-leader"); len(asked) == 0 || asked[0] != "true" {
		return nil
	}
	leader := s.members.current()
	if leader == s {
		return nil
	}
	host, port, _ := net.SplitHostPort(leader.Address()) // the address is valid
	number, _ := strconv.Atoi(port)
	return failure(codes.FailedPrecondition, "not the leader", &kurrentErrors.NotLeaderNodeErrorDetails{
		CurrentLeader: &kurrentErrors.NotLeaderNodeErrorDetails_NodeInfo{Host: host, Port: int32(number)},
	})
}

// failure returns an error with details.
func failure(code codes.Code, message string, details ...protoadapt.MessageV1) error {
	detailed, err := status.New(code, message).WithDetails(details...)
	if err != nil {
		panic(err) // the details are messages
	}
	return detailed.Err()
}

// recordsAppend is a valid request. The names in it are those under which the streams are written.
type recordsAppend struct {
	order   []string // streams, of each record
	records []proposal
	checks  []stateCheck
}

type stateCheck struct {
	stream   string
	expected int64
}

// spellings maps names, ignoring case, to their first spelling in a call, in the checks and then in the records. So two
// names that differ only in case are one stream in a call.
type spellings map[string]string

func (s spellings) of(name string) string {
	folded := strings.ToUpper(name)
	if first, known := s[folded]; known {
		return first
	}
	s[folded] = name
	return name
}

func parse(request *records.AppendRecordsRequest) (recordsAppend, error) {
	a, names := recordsAppend{}, spellings{}
	invalid := func(format string, arguments ...any) (recordsAppend, error) {
		return recordsAppend{}, status.Errorf(codes.InvalidArgument, format, arguments...)
	}
	for _, c := range request.GetChecks() {
		state := c.GetStreamState()
		switch {
		case state.GetStream() == "":
			return invalid("a check without a stream")
		case state.GetExpectedState() < noStream && state.GetExpectedState() != streamExists:
			return invalid("a check of %s expects %d", state.GetStream(), state.GetExpectedState())
		}
		if _, twice := names[strings.ToUpper(state.GetStream())]; twice {
			return invalid("stream %s is checked twice", state.GetStream())
		}
		a.checks = append(a.checks, stateCheck{names.of(state.GetStream()), state.GetExpectedState()})
	}
	if len(request.GetRecords()) == 0 {
		return invalid("no records")
	}
	total := 0
	for _, r := range request.GetRecords() {
		p, size, err := toProposal(r)
		if err != nil {
			return recordsAppend{}, err
		}
		if size > maxRecord {
			return recordsAppend{}, failure(codes.InvalidArgument, "the record is too large",
				&recordErrors.AppendRecordSizeExceededErrorDetails{
					Stream: r.GetStream(), RecordId: r.GetRecordId(), Size: int32(size), MaxSize: maxRecord,
				})
		}
		if total += size; total > maxRecordsAppend {
			return recordsAppend{}, failure(codes.Aborted, "the append is too large",
				&recordErrors.AppendTransactionSizeExceededErrorDetails{Size: int32(total), MaxSize: maxRecordsAppend})
		}
		a.order, a.records = append(a.order, names.of(r.GetStream())), append(a.records, p)
	}
	return a, nil
}

// toProposal converts a record and returns its size.
func toProposal(r *records.AppendRecord) (proposal, int, error) {
	invalid := func(format string, arguments ...any) (proposal, int, error) {
		return proposal{}, 0, status.Errorf(codes.InvalidArgument, format, arguments...)
	}
	kind, format := r.GetSchema().GetName(), r.GetSchema().GetFormat()
	id := uuid.New()
	if r.RecordId != nil {
		var err error
		if id, err = uuid.Parse(r.GetRecordId()); err != nil {
			return invalid("the id of a record is not a UUID")
		}
	}
	switch {
	case r.GetStream() == "":
		return invalid("a record without a stream")
	case !schemaName.MatchString(kind):
		return invalid("the schema name %q is not valid", kind)
	case format == records.SchemaFormat_SCHEMA_FORMAT_UNSPECIFIED:
		return invalid("a record without a schema format")
	}
	properties := map[string]any{
		"$schema.name": kind, "$schema.format": strings.TrimPrefix(format.String(), "SCHEMA_FORMAT_"),
	}
	size := len(r.GetData()) + len(kind)
	for key, value := range r.GetProperties() {
		if strings.HasPrefix(key, "$") {
			return invalid("the property %s is reserved", key)
		}
		properties[key] = value.AsInterface()
		size += len(key) + len(value.String())
	}
	encoded, err := json.Marshal(properties) // sorted; escapes HTML, as the server does
	if err != nil {
		return invalid("properties: %v", err)
	}
	return proposal{
		id: id, kind: kind, json: format == records.SchemaFormat_SCHEMA_FORMAT_JSON, data: r.GetData(),
		metadata: bytes.ReplaceAll(encoded, []byte(`\"`), []byte(`\u0022`)),
	}, size, nil
}

// appendRecords evaluates the checks and writes all records, or none.
func (j *journal) appendRecords(a recordsAppend) (*records.AppendRecordsResponse, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	written := map[string][]proposal{}
	for i, stream := range a.order {
		written[stream] = append(written[stream], a.records[i])
	}
	again, some := j.repeated(a, written)
	if again != nil {
		return again, nil
	}
	details := &recordErrors.AppendConsistencyViolationErrorDetails{}
	for i, c := range a.checks {
		current := int64(len(j.streams[c.stream])) - 1
		if current == c.expected || c.expected == streamExists && current >= 0 {
			continue
		}
		details.Violations = append(details.Violations, &recordErrors.ConsistencyViolation{
			CheckIndex: int32(i),
			Type: &recordErrors.ConsistencyViolation_StreamState{
				StreamState: &recordErrors.ConsistencyViolation_StreamStateViolation{
					Stream: c.stream, ExpectedState: c.expected, ActualState: current,
				},
			},
		})
	}
	if len(details.Violations) > 0 {
		return nil, failure(codes.FailedPrecondition, "consistency checks failed", details)
	}
	if some {
		return nil, status.Error(codes.FailedPrecondition, "some of the records are on the log")
	}
	last := make(map[string]*record, len(written))
	var newest *record
	for i, stream := range a.order {
		newest = j.write(stream, a.records[i])
		last[stream] = newest
	}
	j.wake()
	return response(last, newest), nil
}

// repeated returns the first answer if every written stream has its records, by its check or by the cache of ids. It
// also reports whether a stream has some of them.
func (j *journal) repeated(
	a recordsAppend, written map[string][]proposal,
) (answer *records.AppendRecordsResponse, some bool) {
	last := make(map[string]*record, len(written))
	for stream, events := range written {
		i := slices.IndexFunc(a.checks, func(c stateCheck) bool { return c.stream == stream })
		if i >= 0 && a.checks[i].expected >= noStream {
			last[stream] = j.storedAfter(stream, a.checks[i].expected, events)
			continue
		}
		stored, known := j.seen(stream, events)
		last[stream], some = stored, some || known
	}
	for _, r := range last {
		if r == nil {
			return nil, some
		}
	}
	return response(last, last[a.order[len(a.order)-1]]), true
}

func response(last map[string]*record, newest *record) *records.AppendRecordsResponse {
	answer := &records.AppendRecordsResponse{Position: int64(newest.position)}
	for _, stream := range slices.Sorted(maps.Keys(last)) {
		answer.Revisions = append(answer.Revisions, &records.StreamRevision{
			Stream: stream, Revision: last[stream].revision,
		})
	}
	return answer
}

// Upgrade makes the node a KurrentDB that has AppendRecords, and closes all connections, like a restart with another
// version. Downgrade ends it.
func (s *Server) Upgrade() { s.install(true) }

// Downgrade makes the node an EventStoreDB without AppendRecords.
func (s *Server) Downgrade() { s.install(false) }

func (s *Server) install(upgraded bool) {
	s.upgraded.Store(upgraded)
	s.Drop()
}

// RecordCalls returns how many AppendRecords the node has received.
func (s *Server) RecordCalls() int { return int(s.faults.recordCalls.Load()) }

// Sent returns how many events the node has sent, to reads and to subscriptions.
func (s *Server) Sent() int { return int(s.faults.sent.Load()) }

// CutOff returns how many reads the clients have cancelled before their end. Servers reset the streams of a connection
// on which that happens often.
func (s *Server) CutOff() int { return int(s.faults.cutOff.Load()) }

func (s *Server) version() string {
	if s.upgraded.Load() {
		return upgradedVersion
	}
	return version
}
