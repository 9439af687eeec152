package esdb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	recordErrors "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/errors"
	records "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/streams"
	"github.com/oklog/ulid/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/leadlog/leadlog/eventstore"
)

// appendTogether is an eventstore.AppendGroup that stores the appends of a group in one call of AppendRecords.
//
// The server applies the call if all checks hold, and otherwise returns those that fail. The appends that they belong
// to are looked up, and the others are sent again at once. After a lost answer the same call is sent again, and the
// server detects by the ids that it is stored.
func (s *Store) appendTogether(ctx context.Context, group []eventstore.Append) []eventstore.Result {
	t := &together{Store: s, results: make([]eventstore.Result, len(group)), until: time.Now().Add(s.timeout)}
	for i, a := range group {
		m := &member{appending: s.appending(a.Writes), result: &t.results[i]}
		m.whole = true
		t.unready = append(t.unready, m)
	}
	t.run(ctx)
	return t.results
}

// together is a group of appends in progress.
type together struct {
	*Store
	results []eventstore.Result
	until   time.Time // when appends that conflict with those of other processes are given up

	unready []*member // whose streams must be looked up
	ready   []*member
}

// member is an append of a group.
type member struct {
	*appending
	result   *eventstore.Result
	finished bool // it has a result
	alone    bool // it must have a call of its own
}

// done sets the result of an append, unless it has one.
func (m *member) done(ctx context.Context, position eventstore.Position, err error) {
	if m.finished {
		return
	}
	*m.result = eventstore.Result{Position: position, Err: outcome(ctx, err)}
	m.finished = true
}

func (t *together) run(ctx context.Context) {
	for len(t.ready)+len(t.unready) > 0 {
		if len(t.ready) == 0 {
			t.prepare(ctx)
			continue
		}
		call := t.next()
		if err := t.send(ctx, call); err != nil {
			for _, m := range slices.Concat(call, t.ready, t.unready) {
				m.done(ctx, 0, err)
			}
			return
		}
	}
}

// prepare finds the tails of the streams of all unready appends. Some appends have a result then.
func (t *together) prepare(ctx context.Context) {
	unready := t.unready
	t.unready = nil
	ready := make([]bool, len(unready))
	_ = concurrently(len(unready), func(i int) error {
		m := unready[i]
		if !m.fits() {
			position, err := m.append(ctx)
			m.done(ctx, position, err)
			return nil
		}
		position, stored, err := m.look(ctx)
		switch {
		case errors.Is(err, errMoved) && time.Now().Before(t.until):
			m.failed++
			_ = eventstore.Sleep(ctx, rand.N(min(time.Duration(m.failed)*time.Millisecond, 20*time.Millisecond)))
		case err != nil || stored:
			m.done(ctx, position, err)
		default:
			ready[i] = true
		}
		return nil
	})
	for i, m := range unready {
		switch {
		case ready[i]:
			t.ready = append(t.ready, m)
		case !m.finished:
			t.unready = append(t.unready, m)
		}
	}
}

// recordType is what AppendRecords accepts as the type of an event.
var recordType = regexp.MustCompile(`^[\p{L}\p{N}_.$:-]+$`)

// fits reports whether AppendRecords can store the append. Others are transactions by locks.
func (a *appending) fits() bool {
	if len(a.writes) == 0 {
		return false
	}
	names := make(map[string]string, len(a.given))
	for _, w := range a.given {
		if !claim(names, w) {
			return false
		}
		if slices.ContainsFunc(w.Events, func(e eventstore.Event) bool { return !recordType.MatchString(e.Type) }) {
			return false
		}
	}
	return true
}

// claim adds the stream of a write to the names of a call, unless it has another that differs only in case: the server
// would take both for one.
func claim(names map[string]string, w eventstore.Write) bool {
	folded := strings.ToLower(strings.ToUpper(w.Stream)) // some letters have several lower cases
	if known, ok := names[folded]; ok && known != w.Stream {
		return false
	}
	names[folded] = w.Stream
	return true
}

// look finds the tails of the streams of an append. It reports whether the append is already stored.
func (a *appending) look(ctx context.Context) (position eventstore.Position, stored bool, err error) {
	err = a.findTails(ctx)
	if errors.Is(err, errRefused) {
		position, err = a.refused(ctx)
		return position, true, err
	}
	if err != nil {
		return 0, false, err
	}
	return a.storedBefore(ctx)
}

// next takes the appends of the next call: the oldest ones that are ready, as far as their names allow.
func (t *together) next() (call []*member) {
	names, written := map[string]string{}, map[string]bool{}
	var left []*member
	for _, m := range t.ready {
		fits := len(call) == 0 || !m.alone && !call[0].alone
		for _, w := range m.given {
			fits = fits && !written[w.Stream] && claim(names, w)
		}
		if !fits {
			left = append(left, m)
			continue
		}
		for _, w := range m.writes {
			written[w.Stream] = true
		}
		call = append(call, m)
	}
	t.ready = left
	return call
}

// send makes one call. Its appends have a result then, or are ready or unready again. An error ends the group.
func (t *together) send(ctx context.Context, call []*member) error {
	request := &records.AppendRecordsRequest{}
	var owners [][]*member // of each check
	index := map[string]int{}
	check := func(m *member, stream string, number eventstore.Expected) {
		i, known := index[stream]
		if !known {
			i = len(owners)
			index[stream] = i
			owners = append(owners, nil)
			request.Checks = append(request.Checks, &records.ConsistencyCheck{
				Type: &records.ConsistencyCheck_StreamState{StreamState: &records.ConsistencyCheck_StreamStateCheck{
					Stream: t.name(stream), ExpectedState: int64(number),
				}},
			})
		}
		owners[i] = append(owners[i], m)
	}
	encoded := call[:0:0]
	for _, m := range call {
		proposed, err := m.encode()
		if err != nil {
			m.done(ctx, 0, err)
			continue
		}
		encoded = append(encoded, m)
		request.Records = append(request.Records, proposed...)
		for _, w := range m.writes {
			check(m, w.Stream, w.tail.number)
		}
		for _, c := range m.checks {
			check(m, c.Stream, c.Number)
		}
	}
	if call = encoded; len(call) == 0 {
		return nil
	}
	ids := make([]ulid.ULID, len(call)-1)
	for i, m := range call[:len(call)-1] {
		ids[i] = m.lastID()
	}
	known := t.observed.await(ids)
	var answer *records.AppendRecordsResponse
	err := t.retryTransient(ctx, func(ctx context.Context) (err error) {
		answer, err = t.sendRecords(ctx, call, request)
		return err
	})
	if err != nil {
		known()
		return t.failed(ctx, call, owners, err)
	}
	last := eventstore.Position(answer.GetPosition())
	t.noteSeen(last)
	for _, m := range call {
		for _, w := range m.writes {
			n := eventstore.Expected(len(w.Events))
			t.tails.add(w.Stream, tail{number: w.tail.number + n, end: w.tail.end + n})
		}
	}
	t.locate(ctx, call, last, known)
	return nil
}

// encode encodes the events of an append, write by write.
func (a *appending) encode() ([]*records.AppendRecord, error) {
	left := a.size()
	proposed := make([]*records.AppendRecord, 0, left)
	size := 0
	for _, w := range a.writes {
		for i, e := range w.Events {
			left--
			metadata, err := json.Marshal(recordMetadata{
				At: e.At, Metadata: e.Metadata, Revision: eventstore.Revision(w.tail.end) + 1 + eventstore.Revision(i),
				More: left,
			})
			if err != nil {
				return nil, fmt.Errorf("%w: metadata of %s: %w", eventstore.ErrInvalid, e.Type, err)
			}
			id := uuid.UUID(e.ID).String()
			proposed = append(proposed, &records.AppendRecord{
				RecordId: &id, Stream: a.name(w.Stream), Data: e.Data,
				Properties: map[string]*structpb.Value{metadataProperty: structpb.NewStringValue(string(metadata))},
				Schema:     &records.SchemaInfo{Format: records.SchemaFormat_SCHEMA_FORMAT_JSON, Name: e.Type},
			})
			size += recordSize(e, metadata)
		}
	}
	return proposed, checkSize(size)
}

// sendRecords makes one attempt of a call. Like send, it is not cancelled with the caller's context.
func (s *Store) sendRecords(
	ctx context.Context, call []*member, request *records.AppendRecordsRequest,
) (*records.AppendRecordsResponse, error) {
	if s.beforeCall != nil {
		first := call[0].writes[0]
		if err := s.beforeCall(fmt.Sprintf("append %d records to %s after %d", len(request.GetRecords()), first.Stream,
			first.tail.number)); err != nil {
			return nil, err
		}
	}
	return ask(ctx, s.conn, func(ctx context.Context, l *link) (*records.AppendRecordsResponse, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout/2)
		defer cancel()
		return l.appendRecords(ctx, request)
	})
}

// failed handles the error of a call.
func (t *together) failed(ctx context.Context, call []*member, owners [][]*member, err error) error {
	violations, refusal := violationsIn(err), grpcStatus(err)
	switch {
	case len(violations) > 0:
		blamed := map[*member]bool{}
		for _, v := range violations {
			if i := int(v.GetCheckIndex()); i >= 0 && i < len(owners) {
				for _, m := range owners[i] {
					blamed[m] = true
				}
			}
		}
		t.divide(call, func(m *member) bool { return blamed[m] || len(blamed) == 0 })
		return nil
	case refusal == nil:
		return err
	case refusal.Code() == codes.Unimplemented: // the server was replaced by one without the call
		t.connected(Server{Version: t.Server().Version})
		_ = concurrently(len(call), func(i int) error {
			position, err := call[i].append(ctx)
			call[i].done(ctx, position, err)
			return nil
		})
		return nil
	case len(call) > 1 && (invalid(err) || refusal.Code() == codes.FailedPrecondition):
		for _, m := range call {
			m.alone = true
		}
		t.ready = append(call, t.ready...)
		return nil
	case invalid(err):
		call[0].done(ctx, 0, fmt.Errorf("%w: %s", eventstore.ErrInvalid, refusal.Message()))
		return nil
	case refusal.Code() == codes.FailedPrecondition && time.Now().Before(t.until):
		t.divide(call, func(*member) bool { return true })
		return nil
	}
	return err
}

// divide makes the blamed appends of a call unready, and the others ready to be sent again.
func (t *together) divide(call []*member, blamed func(*member) bool) {
	var innocent []*member
	for _, m := range call {
		if !blamed(m) {
			innocent = append(innocent, m)
			continue
		}
		m.failed++
		for _, w := range m.given {
			t.tails.remove(w.Stream)
		}
		t.unready = append(t.unready, m)
	}
	t.ready = append(innocent, t.ready...)
}

// violationsIn returns the failed checks that an error has.
func violationsIn(err error) []*recordErrors.ConsistencyViolation {
	for _, d := range grpcStatus(err).Details() {
		if d, ok := d.(*recordErrors.AppendConsistencyViolationErrorDetails); ok {
			return d.GetViolations()
		}
	}
	return nil
}

// locate sets the results of the appends of a call, of which the server returns only the position of the last record.
// The subscription has received the others, or they are read.
func (t *together) locate(
	ctx context.Context, call []*member, last eventstore.Position, known func() map[ulid.ULID]eventstore.Position,
) {
	final := len(call) - 1
	call[final].done(ctx, last, nil)
	if final > 0 {
		t.observed.wait(ctx, last)
	}
	positions := known()
	if len(positions) < final {
		records := -1
		for _, m := range call {
			records += m.size()
		}
		// A failure is that of the lookups below.
		_ = t.retryTransient(ctx, func(ctx context.Context) error {
			return t.readBefore(ctx, last, records, positions)
		})
	}
	for _, m := range call[:final] {
		position, found := positions[m.lastID()]
		var err error
		if !found { // an earlier call has stored it
			position, found, err = m.allStored(ctx)
		}
		if err == nil && !found {
			err = errMoved
		}
		m.done(ctx, position, err)
	}
}

// size returns the number of events.
func (a *appending) size() (n int) {
	for _, w := range a.writes {
		n += len(w.Events)
	}
	return n
}

// lastID returns the id of the last event of an append.
func (a *appending) lastID() ulid.ULID {
	events := a.writes[len(a.writes)-1].Events
	return events[len(events)-1].ID
}

// readBefore adds the positions of as many records before a position.
func (s *Store) readBefore(
	ctx context.Context, position eventstore.Position, count int, positions map[ulid.ULID]eventstore.Position,
) error {
	return s.backwardsFrom(ctx, at(position), uint64(count), func(m message) error {
		if m.record != nil {
			positions[m.record.ID] = m.position
		}
		return nil
	})
}
