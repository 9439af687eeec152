package command

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// RefusedUse is the error for a value that was a token's value once and no longer lets its bearer in.
type RefusedUse struct {
	Account string
	TokenID string
	Prefix  string // of the value
	Reason  token.Reason
}

func (r *RefusedUse) Error() string {
	return fmt.Sprintf("%v: a value of token %s that is %s", ErrUnauthorized, r.TokenID, r.Reason)
}

// Unwrap returns ErrUnauthorized.
func (r *RefusedUse) Unwrap() error { return ErrUnauthorized }

// refusal returns the error for a value that does not let its bearer in.
func refusal(value token.Value, presented token.Presented, now time.Time) error {
	reason := presented.Refusal(now)
	if reason == "" {
		return ErrUnauthorized
	}
	return &RefusedUse{Account: presented.Account, TokenID: value.TokenID(), Prefix: value.Prefix(), Reason: reason}
}

// Uses records samples of how tokens are used: for each token, the first use of a minute and the first refusal of a
// minute. Requests do not wait for it. If it cannot keep up, it drops samples and counts them.
type Uses struct {
	store  eventstore.Store
	now    func() time.Time
	log    *slog.Logger
	queue  chan use
	sample *lru.Cache[sample, struct{}]        // taken by this process
	ends   *lru.Cache[string, streamEnd]       // of the streams of uses
	counts map[string]*[outcomes]atomic.Uint64 // by type; the keys never change

	timeout time.Duration // for one sample, and for all that are left at the end
}

// use is a sample with the data of its record.
type use struct {
	sample  sample
	caller  Caller
	tokenID string
	at      time.Time
	data    event.Data
}

// sample identifies what is recorded once: the uses, or the refusals, of a token in a minute.
type sample struct {
	token, eventType string
	minute           int64 // since 1970
}

// streamEnd is the last known end of a stream.
type streamEnd struct {
	expect eventstore.Expected
	at     time.Time
	others []ulid.ULID // samples that other processes appended recently
}

// Outcomes of samples.
const (
	usesRecorded = iota
	usesDropped
	outcomes
)

const (
	usesQueued    = 1024
	usesRecorders = 4
	usesKept      = 20_000 // samples and stream ends remembered: a few MiB
	recordTime    = 5 * time.Second
	usesLate      = 5 * time.Minute // longer than any sample waits until it is recorded
)

// NewUses returns a recorder that appends to a log. Nothing is recorded until Run is called.
func NewUses(store eventstore.Store, now func() time.Time, log *slog.Logger) *Uses {
	return &Uses{
		store: store, now: now, log: log, queue: make(chan use, usesQueued), timeout: recordTime,
		sample: newCache[sample, struct{}](usesKept), ends: newCache[string, streamEnd](usesKept),
		counts: map[string]*[outcomes]atomic.Uint64{
			event.TokenUsed{}.EventType(): {}, event.TokenRefused{}.EventType(): {},
		},
	}
}

// Used notes that a token let its bearer in. The sample does not say from which address, which may be a person's.
func (u *Uses) Used(account, tokenID string) {
	u.note(Caller{Account: account}, tokenID, event.TokenUsed{})
}

// Refused notes that a value which once let its bearer in was refused, and to which caller.
func (u *Uses) Refused(caller Caller, refused *RefusedUse) {
	caller.Account = refused.Account
	u.note(caller, refused.TokenID, event.TokenRefused{Reason: string(refused.Reason), Prefix: refused.Prefix})
}

func (u *Uses) note(caller Caller, tokenID string, data event.Data) {
	now := u.now().UTC().Truncate(time.Millisecond)
	key := sample{tokenID, data.EventType(), now.Unix() / 60}
	if sampled, _ := u.sample.ContainsOrAdd(key, struct{}{}); sampled {
		return
	}
	caller.Actor, caller.Credential = "token:"+tokenID, "token:"+tokenID
	select {
	case u.queue <- use{key, caller, tokenID, now, data}:
	default:
		u.drop(key)
	}
}

// drop discards a sample. A later use in the same minute is sampled instead.
func (u *Uses) drop(key sample) {
	u.sample.Remove(key)
	u.counts[key.eventType][usesDropped].Add(1)
}

// Counts calls report for each event type, by its public name, with the numbers of samples recorded and dropped.
func (u *Uses) Counts(report func(eventType string, recorded, dropped uint64)) {
	for eventType, n := range u.counts {
		report(event.PublicName(eventType), n[usesRecorded].Load(), n[usesDropped].Load())
	}
}

// Run records samples until the context ends, and then, within timeout, those that are still in the queue.
func (u *Uses) Run(ctx context.Context) {
	var recorders sync.WaitGroup
	for range usesRecorders {
		recorders.Go(func() { u.recorder(ctx) })
	}
	recorders.Wait()
}

func (u *Uses) recorder(ctx context.Context) {
	working := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		select {
		case next := <-u.queue:
			u.write(working, next)
		case <-ctx.Done():
		}
	}
	working, cancel := context.WithTimeout(working, u.timeout)
	defer cancel()
	for {
		select {
		case next := <-u.queue:
			u.write(working, next)
		default:
			return
		}
	}
}

func (u *Uses) write(ctx context.Context, next use) {
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	if err := u.record(ctx, next); err != nil {
		u.drop(next.sample)
		u.log.Warn("a token's use is not recorded", slog.String("token", next.tokenID), slog.Any("error", err))
		return
	}
	u.counts[next.sample.eventType][usesRecorded].Add(1)
}

// record appends a sample, unless another process has done so. It expects the stream to end where it last saw it end,
// and reads the stream only after a conflict, so mostly it reads nothing.
func (u *Uses) record(ctx context.Context, next use) error {
	stream := event.TokenUseStream(next.tokenID, next.at)
	eventType, encoded, err := event.Encode(next.data)
	if err != nil {
		return err
	}
	id, err := next.sample.id()
	if err != nil {
		return err
	}
	end, seen := u.ends.Get(stream)
	if !seen {
		end.expect = eventstore.NoStream
	}
	for !slices.Contains(end.others, id) {
		at := next.at
		if at.Before(end.at) {
			at = end.at
		}
		_, err := u.store.Append(ctx, eventstore.Write{Stream: stream, Expect: end.expect, Events: []eventstore.Event{{
			ID: id, Type: eventType, At: at, Data: encoded, Metadata: next.caller.metadata(),
		}}})
		if err == nil {
			u.ends.Add(stream, streamEnd{end.expect + 1, at, end.others})
			return nil
		}
		if eventstore.Conflict(err) == nil {
			return err
		}
		if end, err = u.look(ctx, stream, end, next.at); err != nil {
			return err
		}
		u.ends.Add(stream, end)
	}
	return nil
}

// look reads the events after a stream's last known end, and returns its present end. It forgets the ids of samples so
// much older than before that no process appends them any more.
func (u *Uses) look(ctx context.Context, stream string, end streamEnd, before time.Time) (streamEnd, error) {
	since := ulid.Timestamp(before.Add(-usesLate))
	others := slices.Clone(end.others)
	for recorded, err := range u.store.Read(ctx, stream, eventstore.Revision(end.expect+1)) {
		if err != nil {
			return end, err
		}
		others = append(others, recorded.ID)
		end.expect, end.at = eventstore.At(recorded.Revision), recorded.At
	}
	end.others = slices.DeleteFunc(others, func(id ulid.ULID) bool { return id.Time() < since })
	return end, nil
}

// id returns the same id in every process, so that a sample which two processes take is one event.
func (s sample) id() (id ulid.ULID, err error) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", s.token, s.eventType, s.minute))
	if err := id.SetTime(uint64(s.minute) * 60_000); err != nil {
		return id, err
	}
	return id, id.SetEntropy(sum[:10])
}
