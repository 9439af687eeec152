// Package command executes the commands of callers, mostly one file each, with its struct and its method. It makes
// every append to the log that a caller causes. It does not know HTTP, and reads no views.
//
// A command loads the streams it decides on, lets the pure deciders in the packages below this one decide, and appends
// their decision at the revisions they saw. A fact from a cache, such as that a token is live, is checked by the same
// append, so that a stale cache lets nothing through.
package command

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/semaphore"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/turns"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

var (
	// ErrUnauthorized means that a credential does not let its bearer in, or no longer does.
	ErrUnauthorized = errors.New("missing or invalid token")
	// ErrLeadsHidden means that a caller without leads:read requested something that would send or show leads.
	ErrLeadsHidden = errors.New("scope leads:read required")
	// ErrNotProvisioned means that there is no such account.
	ErrNotProvisioned = errors.New("account is not provisioned")
	// ErrFeatureDisabled means that the account's plan does not have the feature crm_api, or that there is no account.
	ErrFeatureDisabled = errors.New("feature crm_api is not enabled for this account")
)

// Caller identifies the caller, the request and where it came from.
type Caller struct {
	Account     string
	Actor       string // user:{sub}, token:{tokenId} or system:{what}
	Credential  string // jwt:{sub} or token:{tokenId}
	RequestID   string // as in the answer; the caller may have chosen it, so it may be about a person
	Correlation string // the service's own id of the request; empty: RequestID is one
	TraceParent string
	IP          string
	UserAgent   string
	Line        string // of a batch or import; empty for a single request

	// ReadsLeads reports whether the caller may read leads. Others get back only the fields that they set.
	ReadsLeads bool
	// FromPage reports whether the request has an Origin: a page in a browser sent it. Its answer shows no data stored
	// before the request.
	FromPage bool
}

// seesLeads reports whether an answer to the caller may show what was stored before the request.
func (c Caller) seesLeads() bool { return c.ReadsLeads && !c.FromPage }

func (c Caller) metadata() event.Metadata {
	return event.Metadata{
		Account: c.Account, Actor: c.Actor, Credential: c.Credential,
		RequestID: c.RequestID, Correlation: c.ownRequestID(), TraceParent: c.TraceParent,
		IP: c.IP, UserAgent: c.UserAgent, Line: c.Line,
	}
}

// systemCaller is the caller of appends that follow from another's command.
func systemCaller(account string) Caller { return Caller{Account: account, Actor: "system:claims"} }

// ownRequestID returns the id that the service gave the request.
func (c Caller) ownRequestID() string { return cmp.Or(c.Correlation, c.RequestID) }

// withoutOrigin returns the caller without IP address and user agent, which are personal data, and without a request id
// that it chose. It is for facts that are not sealed and stay when a person is forgotten.
func (c Caller) withoutOrigin() Caller {
	c.IP, c.UserAgent, c.RequestID = "", "", c.ownRequestID()
	return c
}

// Handlers carries out commands against one log. Its methods may be called from many goroutines.
type Handlers struct {
	store          eventstore.Store
	transact       eventstore.Transactor
	claims         claim.Names
	directory      *Directory
	holders        *holderCache
	leads          *eventstore.Folds[lead.State]
	endpoints      *eventstore.Folds[webhook.State]
	secrets        Secrets
	intakes        *eventstore.Folds[intake.State]
	intakeSecrets  IntakeSecrets
	privateTargets bool // lets endpoints be http, loopback or private addresses
	log            *slog.Logger
	now            func() time.Time
	random         io.Reader
	entropy        *ulid.LockedMonotonicReader
	mappings       *mappingCache
	turns          *turns.Turns
	samples        *sampleCache
	recordSlots    *semaphore.Weighted // max samples that are being recorded
	arrivalSlots   *semaphore.Weighted // max arrivals in flight in all calls of CaptureLeads
	activities     activityQueues
}

// Options are the dependencies of handlers. Now and Random default to the system's.
type Options struct {
	Store     eventstore.Store
	Claims    claim.Names
	Directory *Directory
	Secrets   Secrets
	Leads     *eventstore.Folds[lead.State] // nil: a cache of their own
	// IntakeSecrets may be nil if no command is about an intake.
	IntakeSecrets IntakeSecrets
	Log           *slog.Logger
	Now           func() time.Time
	Random        io.Reader
	// AllowPrivateTargets lets addresses that are sent to or fetched from be http, loopback or private: for
	// development.
	AllowPrivateTargets bool
}

// NewHandlers wires the commands.
func NewHandlers(o Options) *Handlers {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if o.Leads == nil {
		o.Leads = NewLeads()
	}
	intakes := eventstore.NewFolds(intakeFolds)
	if o.Directory != nil {
		intakes = o.Directory.folds
	}
	return &Handlers{
		store: countingStore{o.Store}, claims: o.Claims, directory: o.Directory, secrets: o.Secrets, log: o.Log,
		privateTargets: o.AllowPrivateTargets, mappings: newCache[string, cachedMapping](mappingCacheSize),
		turns: turns.New(), now: o.Now, random: o.Random, samples: newCache[string, struct{}](sampleCacheSize),
		recordSlots:  semaphore.NewWeighted(notesAtOnce),
		entropy:      &ulid.LockedMonotonicReader{MonotonicReader: ulid.Monotonic(o.Random, 0)},
		arrivalSlots: semaphore.NewWeighted(maxArrivals), holders: newCache[string, string](holderCacheSize),
		leads: o.Leads, endpoints: eventstore.NewFolds(endpointFolds), intakes: intakes, intakeSecrets: o.IntakeSecrets,
		activities: activityQueues{of: map[string][]*activity{}},
	}
}

// Turns limits mappings, and whatever else evaluates expressions of an account.
func (h *Handlers) Turns() *turns.Turns { return h.turns }

// newID returns an id that sorts after those this process made before.
func (h *Handlers) newID() (ulid.ULID, error) {
	return ulid.New(ulid.Timestamp(h.now()), h.entropy)
}

// newIDs returns n new ids as text.
func (h *Handlers) newIDs(n int) ([]string, error) {
	ids, now := make([]string, n), ulid.Timestamp(h.now())
	for i := range ids {
		id, err := ulid.New(now, h.entropy)
		if err != nil {
			return nil, err
		}
		ids[i] = id.String()
	}
	return ids, nil
}

// timestamp returns the time for the first fact of a stream: now, in whole milliseconds.
func (h *Handlers) timestamp() time.Time { return h.after(time.Time{}) }

// after returns the time of a fact that follows another on its stream: now, in whole milliseconds, but never before the
// previous fact, whose process may have a clock that is ahead.
func (h *Handlers) after(previous time.Time) time.Time {
	now := h.now().UTC().Truncate(time.Millisecond)
	if now.Before(previous) {
		return previous
	}
	return now
}

// stamp returns a fact as an event, with a time, an id that begins with this time, and the caller's metadata.
func (h *Handlers) stamp(caller Caller, at time.Time, data event.Data) (eventstore.Event, error) {
	id, err := ulid.New(ulid.Timestamp(at), h.entropy)
	if err != nil {
		return eventstore.Event{}, err
	}
	eventType, encoded, err := event.Encode(data)
	if err != nil {
		return eventstore.Event{}, err
	}
	return eventstore.Event{ID: id, Type: eventType, At: at, Data: encoded, Metadata: caller.metadata()}, nil
}

// write returns the write that appends one fact.
func (h *Handlers) write(
	caller Caller, stream string, expect eventstore.Expected, at time.Time, data event.Data,
) (eventstore.Write, error) {
	stamped, err := h.stamp(caller, at, data)
	return eventstore.Write{Stream: stream, Expect: expect, Events: []eventstore.Event{stamped}}, err
}

// countingStore counts the bytes that commands append, for quotas.
type countingStore struct{ eventstore.Store }

type appendedKey struct{}

// CountAppended returns a context in which commands add the bytes that they append to a counter.
func CountAppended(ctx context.Context, counter *atomic.Int64) context.Context {
	return context.WithValue(ctx, appendedKey{}, counter)
}

// Append implements eventstore.Store.
func (s countingStore) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	position, err := s.Store.Append(ctx, writes...)
	if err == nil {
		countAppended(ctx, bytesOf(writes))
	}
	return position, err
}

// uncounted returns a context in which appends are not counted.
func uncounted(ctx context.Context) context.Context {
	return context.WithValue(ctx, appendedKey{}, nil)
}

func countAppended(ctx context.Context, bytes int64) {
	if counter, counts := ctx.Value(appendedKey{}).(*atomic.Int64); counts {
		counter.Add(bytes)
	}
}

// bytesOfEvent is the size of an event without its data and without the parts of its metadata that the caller chose.
const bytesOfEvent = 256

func bytesOf(writes []eventstore.Write) (n int64) {
	for _, w := range writes {
		for i := range w.Events {
			e := &w.Events[i]
			n += int64(len(e.Data) + len(e.Metadata.RequestID) + len(e.Metadata.UserAgent) + bytesOfEvent)
		}
	}
	return n
}
