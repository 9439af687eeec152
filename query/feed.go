package query

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// ErrOtherLog reports a cursor of another log, or of a later state of this one than a restored backup has.
var ErrOtherLog = errors.New("cursor of another log")

// FeedEvent is an event of an account, as its change feed shows it. Of an erased person, Data has only members that are
// not personal.
type FeedEvent struct {
	ID        string              `json:"id"`
	Type      string              `json:"type"` // public: without version
	At        Timestamp           `json:"at"`
	Actor     string              `json:"actor"`
	RequestID string              `json:"requestId"`
	Stream    string              `json:"stream"`
	Revision  eventstore.Revision `json:"revision"`
	Position  eventstore.Position `json:"position"`
	Data      jsontext.Value      `json:"data"`
	Erased    bool                `json:"erased"`
	Cursor    string              `json:"cursor,omitzero"` // continues after this event; in JSON lines
}

// FeedTypes returns the stored types that a change feed shows, of the given kinds, such as event.LeadKind, and with a
// public name that matches a pattern; no patterns match all. A pattern is a name, or a prefix with * after it. Known is
// false if a pattern matches no type of any kind.
func FeedTypes(kinds, patterns []string) (types []string, known bool) {
	for _, pattern := range patterns {
		if !slices.ContainsFunc(event.Catalogue(), func(t string) bool {
			return event.FeedKind(t) != "" && typeMatches(t, pattern)
		}) {
			return nil, false
		}
	}
	for _, t := range event.Catalogue() {
		selected := len(patterns) == 0 || slices.ContainsFunc(patterns, func(pattern string) bool {
			return typeMatches(t, pattern)
		})
		if selected && slices.Contains(kinds, event.FeedKind(t)) {
			types = append(types, t)
		}
	}
	return types, true
}

func typeMatches(eventType, pattern string) bool {
	return event.Matches(event.PublicName(eventType), pattern)
}

// FeedMark is the position of a follower in the feed.
type FeedMark struct {
	Position eventstore.Position // everything up to here was read; the log gave it

	// The last event that the follower got; its ID is zero when there was none. A log without it was restored to an
	// earlier state, although it may have grown past the position since.
	Stream   string
	Revision eventstore.Revision
	ID       ulid.ULID
}

// MarkAfter returns the mark of a follower that was at a mark and got a page.
func (p FeedPage) MarkAfter(m FeedMark) FeedMark {
	if n := len(p.Events); n > 0 {
		m = p.Events[n-1].Mark()
	}
	m.Position = p.End
	return m
}

// Mark returns the mark of a follower that got the event last.
func (e FeedEvent) Mark() FeedMark {
	return FeedMark{Position: e.Position, Stream: e.Stream, Revision: e.Revision, ID: ulid.MustParse(e.ID)}
}

// A cursor of the feed is base64url of a mark with the epoch of its log, a tag and a checksum: tag (16 bytes), position
// (8), revision (8), id (16), length of the stream (1), stream, epoch, and CRC-32 of the preceding bytes (4). Another
// deployment has another key for tags, so only the checksum distinguishes its cursor from one that was changed.
const (
	cursorTag, cursorSum = 16, 4
	cursorHead           = cursorTag + 8 + 8 + 16 + 1
	maxFeedCursor        = 1024 // characters; longer than any
)

// FeedCursor returns the cursor that continues at a mark of a log, for an account.
func (r *Reader) FeedCursor(account, epoch string, m FeedMark) string {
	text := binary.BigEndian.AppendUint64(nil, uint64(m.Position))
	text = binary.BigEndian.AppendUint64(text, uint64(m.Revision))
	text = append(text, m.ID[:]...)
	text = append(append(text, byte(len(m.Stream))), m.Stream...)
	text = append(text, epoch...)
	cursor := append(r.tags.Tag(account, string(text)), text...)
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(cursor, crc32.ChecksumIEEE(cursor)))
}

// FeedMark reads a cursor of an account; an empty one is the beginning of the log. The errors are ErrCursor, if the
// account was not given this cursor, ErrOtherLog, and those of the store.
func (r *Reader) FeedMark(ctx context.Context, account, epoch, cursor string) (FeedMark, error) {
	if cursor == "" {
		return FeedMark{}, nil
	}
	if len(cursor) > maxFeedCursor || strings.ContainsAny(cursor, "\r\n") {
		return FeedMark{}, ErrCursor
	}
	decoded, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(decoded) < cursorHead+cursorSum {
		return FeedMark{}, ErrCursor
	}
	sealed, sum := decoded[:len(decoded)-cursorSum], decoded[len(decoded)-cursorSum:]
	behind := cursorHead + int(sealed[cursorHead-1]) // the stream
	if crc32.ChecksumIEEE(sealed) != binary.BigEndian.Uint32(sum) || len(sealed) < behind {
		return FeedMark{}, ErrCursor
	}
	if string(sealed[behind:]) != epoch {
		return FeedMark{}, ErrOtherLog
	}
	if subtle.ConstantTimeCompare(r.tags.Tag(account, string(sealed[cursorTag:])), sealed[:cursorTag]) != 1 {
		return FeedMark{}, ErrCursor
	}
	m := FeedMark{
		Position: eventstore.Position(binary.BigEndian.Uint64(sealed[cursorTag:])),
		Stream:   string(sealed[cursorHead:behind]),
		Revision: eventstore.Revision(binary.BigEndian.Uint64(sealed[cursorTag+8:])),
		ID:       ulid.ULID(sealed[cursorTag+16 : cursorHead-1]),
	}
	return m, r.checkMark(ctx, m)
}

// checkMark checks that the log has the last event that a follower has seen. The error is ErrOtherLog if it does not.
func (r *Reader) checkMark(ctx context.Context, m FeedMark) error {
	end, err := r.store.Head(ctx)
	if err != nil {
		return err
	}
	if m.Position > end {
		return ErrOtherLog
	}
	if m.ID.IsZero() {
		return nil
	}
	onLog, err := eventstore.HasEvent(ctx, r.store, m.Stream, m.Revision, m.ID.String())
	if err == nil && !onLog {
		err = ErrOtherLog
	}
	return err
}

// Epoch identifies the log that cursors of the feed are of.
func (r *Reader) Epoch(ctx context.Context) (string, error) { return r.store.Epoch(ctx) }

// FeedPage is a part of an account's change feed.
type FeedPage struct {
	Events []FeedEvent
	End    eventstore.Position // up to which everything was read; the log gave it
	More   bool                // the log has more after End: at most Limit events are read, and only for a limited time
}

const (
	// feedTime bounds one read of the feed, so that a request is answered in time. The next request continues after it.
	feedTime = 2 * time.Second
	// feedBytes bounds the payload of a page, except for the last read of the log.
	feedBytes = 4 << 20
)

// Feed returns the events after a position in an account's change feed: at most limit events of the stored types, in
// log order, each once. It reads up to the head of the log, whether or not the views have reached it.
func (r *Reader) Feed(
	ctx context.Context, account string, types []string, after eventstore.Position, limit int,
) (FeedPage, error) {
	page := FeedPage{Events: []FeedEvent{}, End: after}
	head, err := r.store.Head(ctx)
	if err != nil || len(types) == 0 {
		page.End = max(after, head)
		return page, err
	}
	search := feedSearch{Reader: r, account: account, kinds: kindsOf(types), head: head, at: after, scanned: after}
	if search.indexed, err = r.indexedUpTo(ctx, head); err != nil {
		return page, err
	}
	bytes := 0
	for began := time.Now(); search.scanned < head && len(page.Events) < limit && bytes < feedBytes &&
		time.Since(began) < feedTime; {
		part, err := search.next(ctx)
		if err != nil {
			return page, err
		}
		part.Filter, part.Account, part.Limit = eventstore.Filter{Types: types}, account, limit-len(page.Events)
		events, reached, err := eventstore.ReadRange(ctx, r.store, part)
		if err != nil {
			return page, err
		}
		if err := r.hideErased(ctx, events); err != nil {
			return page, err
		}
		for _, e := range events {
			bytes += len(e.Data)
			shown, err := newFeedEvent(e)
			if err != nil {
				return page, err
			}
			page.Events = append(page.Events, shown)
		}
		search.read(part, events, reached)
	}
	page.End, page.More = search.at, search.scanned < head
	return page, nil
}

// FeedAll yields everything that Feed returns, up to where the log ends at present. It ends after yielding an error.
// While the consumer works on one page, the next is read.
func (r *Reader) FeedAll(
	ctx context.Context, account string, types []string, after eventstore.Position,
) iter.Seq2[FeedEvent, error] {
	const limit = 2000
	type answer struct {
		FeedPage
		err error
	}
	return func(yield func(FeedEvent, error) bool) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		head, err := r.store.Head(ctx)
		if err != nil {
			yield(FeedEvent{}, err)
			return
		}
		read := func(after eventstore.Position) <-chan answer {
			answered := make(chan answer, 1)
			go func() {
				page, err := r.Feed(ctx, account, types, after, limit)
				answered <- answer{page, err}
			}()
			return answered
		}
		for next := read(after); next != nil; {
			page := <-next
			if next = nil; page.err == nil && page.More && page.End < head {
				next = read(page.End)
			}
			for _, e := range page.Events {
				if e.Position > head || !yield(e, nil) {
					return
				}
			}
			if page.err != nil {
				yield(FeedEvent{}, page.err)
			}
		}
	}
}

// FilterPreview has the decisions of a filter on recent events.
type FilterPreview struct {
	Events  int `json:"events"`  // looked at
	Matched int `json:"matched"` // of them
	// for which the filter could not be computed, which counts as not matching
	Failed int              `json:"failed"`
	Sample []jsontext.Value `json:"sample"` // the bodies of the first that match
}

// RecentEvents returns the last events of an account's change feed since a time, of the stored types, oldest first. It
// reads increasing parts of the feed's end, found by the index of the log by account, until a part has as many events
// as limit, or an earlier one.
func (r *Reader) RecentEvents(
	ctx context.Context, account string, types []string, since time.Time, limit int,
) (events []FeedEvent, err error) {
	for blocks := 4; ; blocks *= 8 {
		after, all, err := r.blocksBack(ctx, account, kindsOf(types), blocks)
		if err != nil {
			return nil, err
		}
		events = events[:0]
		earlier := false
		for e, err := range r.FeedAll(ctx, account, types, after) {
			if err != nil {
				return nil, err
			}
			if time.Time(e.At).Before(since) {
				earlier = true
				continue
			}
			events = append(events, e)
		}
		if all || earlier || len(events) >= limit || blocks > limit {
			return events[max(0, len(events)-limit):], nil
		}
	}
}

// blocksBack returns a position after which the index of the log by account has so many entries of an account. If it
// has fewer, the position is the beginning of the log, and all is true.
func (r *Reader) blocksBack(
	ctx context.Context, account string, kinds []string, blocks int,
) (after eventstore.Position, all bool, err error) {
	var position *int64
	err = r.pool.QueryRow(ctx, `
		SELECT (SELECT max(b.position) FROM views.account_index b WHERE b.position < p.position)
		  FROM (SELECT position FROM views.account_index WHERE account = $1 AND kind = ANY ($2)
		    ORDER BY position DESC OFFSET $3 LIMIT 1) AS p`,
		account, kinds, blocks-1).Scan(&position)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && position == nil {
		return 0, true, nil
	}
	if err != nil {
		return 0, false, schema.Unavailable(err)
	}
	return eventstore.Position(*position), false, nil
}

func kindsOf(types []string) []string {
	kinds := map[string]struct{}{}
	for _, t := range types {
		kinds[event.FeedKind(t)] = struct{}{}
	}
	return slices.Sorted(maps.Keys(kinds))
}

// indexedUpTo returns the position of the index of the log by account: 0 if it is of another log.
func (r *Reader) indexedUpTo(ctx context.Context, head eventstore.Position) (eventstore.Position, error) {
	epoch, err := r.store.Epoch(ctx)
	if err != nil {
		return 0, err
	}
	var position int64
	err = r.pool.QueryRow(ctx, `SELECT position FROM views.checkpoint WHERE projector = $1 AND epoch = $2`,
		schema.LogIndex, epoch).Scan(&position)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && eventstore.Position(position) > head {
		return 0, nil
	}
	return eventstore.Position(position), schema.Unavailable(err)
}

// feedSearch finds the parts of the log that may have events of an account.
type feedSearch struct {
	*Reader
	account string
	kinds   []string
	head    eventstore.Position
	indexed eventstore.Position // the index has everything up to here

	at      eventstore.Position // every event up to here was read; the log gave it
	scanned eventstore.Position // and so was every event up to here, where perhaps none is
	parts   []eventstore.Range  // to be read next
}

// next returns the next part of the log to read.
func (s *feedSearch) next(ctx context.Context) (eventstore.Range, error) {
	if len(s.parts) == 0 && s.scanned < s.indexed {
		if err := s.look(ctx); err != nil {
			return eventstore.Range{}, err
		}
	}
	if len(s.parts) == 0 { // the part after the index
		s.at = max(s.at, s.indexed)
		s.parts = []eventstore.Range{{After: s.at, Until: s.head}}
	}
	part := s.parts[0]
	part.After = max(part.After, s.at)
	return part, nil
}

// read notes how far a part was read.
func (s *feedSearch) read(part eventstore.Range, events []eventstore.Recorded, reached eventstore.Position) {
	s.at, s.scanned = max(s.at, part.After), reached
	if n := len(events); n > 0 {
		s.at = events[n-1].Position
	}
	if reached < part.Until {
		s.at = reached
		return
	}
	if s.parts = s.parts[1:]; reached == s.head {
		s.at = reached
	}
}

// lookAhead is how many rows of the index are read at a time.
const lookAhead = 32

// selectBlocks selects rows of the index from the block on that has a position: each with the row of any account before
// it, the beginning of its block and that of the next.
const selectBlocks = `
	SELECT p.position,
	       coalesce((SELECT max(b.position) FROM views.account_index b WHERE b.position < p.position), 0),
	       coalesce((SELECT max(b.position) FROM views.account_index b WHERE b.account = ''
	         AND b.position <= p.position), 0),
	       coalesce((SELECT min(b.position) FROM views.account_index b WHERE b.account = ''
	         AND b.position > p.position), $4)
	  FROM views.account_index p
	 WHERE p.account = $1 AND p.kind = ANY ($2) AND p.position <= $4
	   AND p.position >= coalesce((SELECT max(b.position) FROM views.account_index b WHERE b.account = ''
	     AND b.position <= $3), 0)
	 ORDER BY p.position LIMIT $5`

// look fills parts from the index. Neighbouring blocks make one part.
func (s *feedSearch) look(ctx context.Context) error {
	rows, err := s.pool.Query(ctx, selectBlocks, s.account, s.kinds, int64(s.scanned), int64(s.indexed), lookAhead)
	if err != nil {
		return schema.Unavailable(err)
	}
	var position, before, begins, ends int64
	_, err = pgx.ForEachRow(rows, []any{&position, &before, &begins, &ends}, func() error {
		until := min(eventstore.Position(ends), s.indexed)
		if until <= s.scanned {
			return nil
		}
		if n := len(s.parts); n > 0 && s.parts[n-1].Until >= eventstore.Position(begins) {
			s.parts[n-1].Until = max(s.parts[n-1].Until, until)
			return nil
		}
		s.parts = append(s.parts, eventstore.Range{After: eventstore.Position(before), Until: until})
		return nil
	})
	return schema.Unavailable(err)
}

// hideErased replaces the events of leads whose erasure has begun: the fact is appended first, and the keys are
// destroyed after it. Such a lead is not in the view of leads. Nor is a lead that was joined into another.
func (r *Reader) hideErased(ctx context.Context, events []eventstore.Recorded) error {
	var ids []string // some of them more than once
	for i := range events {
		e := &events[i]
		if id, ok := strings.CutPrefix(e.Stream, event.LeadPrefix); ok && !erasure(*e) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var position int64
	var gone []string
	err := r.pool.QueryRow(ctx, `
		SELECT coalesce((SELECT position FROM views.checkpoint WHERE projector = $1), 0),
		       ARRAY(SELECT id FROM unnest($2::text[]) AS a (id)
		         WHERE NOT EXISTS (SELECT FROM views.lead l WHERE l.lead_id = a.id COLLATE "C"))`,
		schema.Lead, ids).Scan(&position, &gone)
	if err != nil {
		return schema.Unavailable(err)
	}
	if len(gone) == 0 {
		return nil
	}
	erased := map[string]bool{}
	for _, id := range gone {
		erased[event.LeadStream(id)] = false
	}
	for i, e := range events {
		is, missing := erased[e.Stream]
		if !missing || erasure(e) || int64(e.Position) > position { // the view may not have it yet
			continue
		}
		if !is {
			if is, err = r.erasing(ctx, e.Stream); err != nil {
				return err
			}
			if erased[e.Stream] = is; !is {
				delete(erased, e.Stream)
				continue
			}
		}
		events[i] = r.asErased(e)
	}
	return nil
}

// erasing reports whether a lead, or the one that it was joined into, was erased.
func (r *Reader) erasing(ctx context.Context, stream string) (bool, error) {
	for range maxJoins {
		last, err := r.store.Last(ctx, stream)
		if err != nil || erasure(last) {
			return err == nil, err
		}
		data, err := last.Decode()
		if err != nil {
			return false, err
		}
		joined, ok := data.(event.LeadJoinedInto)
		if !ok {
			return false, nil
		}
		stream = event.LeadStream(joined.Into)
	}
	return false, nil
}

func newFeedEvent(r eventstore.Recorded) (FeedEvent, error) {
	data, err := feedData(r)
	if err != nil {
		return FeedEvent{}, fmt.Errorf("event at position %d: %w", r.Position, err)
	}
	return FeedEvent{
		ID: r.ID.String(), Type: event.PublicName(r.Type), At: Timestamp(r.At), Actor: r.Metadata.Actor,
		RequestID: r.Metadata.RequestID, Stream: r.Stream, Revision: r.Revision, Position: r.Position, Data: data,
		Erased: r.Erased,
	}, nil
}

// feedData returns the data of an event as the list of the events of its lead, or of its token, shows it. Internal
// members are left out: the slot of a token, endpoint or intake, and the claims of an erased lead.
func feedData(r eventstore.Recorded) (jsontext.Value, error) {
	kind := event.FeedKind(r.Type)
	if kind == event.LeadKind && r.Type != (event.LeadErased{}).EventType() {
		return jsontext.Value(r.Data), nil
	}
	data, err := r.Decode()
	if err != nil {
		return nil, err
	}
	if kind == event.TokenKind {
		return audit.Shown(data)
	}
	if quarantined, is := data.(event.ArrivalQuarantined); is {
		return json.Marshal(Arrival{
			Record:     arrival.Quarantine(event.ArrivalID(r.Stream), quarantined),
			ReceivedAt: Timestamp(quarantined.ReceivedAt), ExpiresAt: Timestamp(quarantined.ExpiresAt),
		}, json.Deterministic(true))
	}
	_, shown, err := event.Encode(data)
	if err != nil {
		return nil, err
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(shown, &members); err != nil {
		return nil, err
	}
	for _, internal := range []string{"slot", "claims", "visitors"} {
		delete(members, internal)
	}
	return json.Marshal(members, json.Deterministic(true))
}

// feedWaits wakes waiting requests when an event of their account is appended. While there are any, one follower of the
// tail serves all.
type feedWaits struct {
	store eventstore.Store
	tail  *eventstore.Tail

	mu      sync.Mutex
	waiting map[string]map[*FeedWait]struct{} // by account
	stop    context.CancelFunc                // ends the follower; nil: there is none
}

// FeedWait is a request that waits for events of an account.
type FeedWait struct {
	Woken   <-chan struct{} // receives when there may be an event
	woken   chan struct{}
	account string
	types   []string
	waits   *feedWaits
}

// AwaitFeed begins to wait for events of an account of some stored types. A read of the feed that begins after it has
// returned misses no event for which it is not woken later. Close must be called.
func (r *Reader) AwaitFeed(account string, types []string) *FeedWait {
	woken := make(chan struct{}, 1)
	w := &FeedWait{Woken: woken, woken: woken, account: account, types: types, waits: r.waits}
	r.waits.mu.Lock()
	defer r.waits.mu.Unlock()
	if r.waits.waiting[account] == nil {
		r.waits.waiting[account] = map[*FeedWait]struct{}{}
	}
	r.waits.waiting[account][w] = struct{}{}
	if r.waits.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		r.waits.stop = stop
		go r.waits.follow(ctx)
	}
	return w
}

// Close ends the wait.
func (w *FeedWait) Close() {
	w.waits.mu.Lock()
	defer w.waits.mu.Unlock()
	if delete(w.waits.waiting[w.account], w); len(w.waits.waiting[w.account]) == 0 {
		delete(w.waits.waiting, w.account)
	}
	if len(w.waits.waiting) == 0 && w.waits.stop != nil {
		w.waits.stop()
		w.waits.stop = nil
	}
}

// follow follows the tail until the context ends. Whenever it begins to, it wakes all: they may have read before that.
func (w *feedWaits) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if head, err := w.store.Head(ctx); err == nil {
			w.wakeAll()
			w.followAfter(ctx, head)
		}
		_ = eventstore.Sleep(ctx, feedRetry)
	}
}

// followAfter follows the tail from a position until an error.
func (w *feedWaits) followAfter(ctx context.Context, head eventstore.Position) {
	types, _ := FeedTypes(event.FeedKinds(), nil)
	f := w.tail.Follow(eventstore.Start{After: head, Filter: eventstore.Filter{Types: types}, Stored: true})
	defer f.Close()
	for events := []eventstore.Decoded(nil); ; clear(events) {
		var err error
		if events, _, err = f.Next(ctx, events[:0], feedEvents, nil); err != nil {
			return
		}
		for _, e := range events {
			w.wake(e.Recorded)
		}
	}
}

// feedEvents is how many events are taken from the tail at a time.
const feedEvents = 1000

// feedRetry is the pause after the log could not be followed.
const feedRetry = 250 * time.Millisecond

func (w *feedWaits) wake(e *eventstore.Recorded) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for waiting := range w.waiting[e.Metadata.Account] {
		if slices.Contains(waiting.types, e.Type) {
			waiting.wake()
		}
	}
}

func (w *feedWaits) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, all := range w.waiting {
		for waiting := range all {
			waiting.wake()
		}
	}
}

func (w *FeedWait) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}
