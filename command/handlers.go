// Package command carries out what callers intend: one file for each intention, with its struct and its method.
//
// A command loads the streams it decides on, lets the pure deciders below this package decide, and appends what
// they decided at the revisions they saw. What it merely believes, such as that a token is live, goes into the same
// append as a check, so that no cache can let through what the log no longer allows.
package command

import (
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/semaphore"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

var (
	// ErrUnauthorized says that a credential does not let its bearer in, or not any more.
	ErrUnauthorized = errors.New("missing or invalid token")
	// ErrFeatureDisabled says that the account's plan does not have the feature crm_api, or that there is no account.
	ErrFeatureDisabled = errors.New("feature crm_api is not enabled for this account")
)

// Caller is who asks, by which request and from where.
type Caller struct {
	Account     string
	Actor       string // user:{sub}, token:{tokenId} or system:{what}
	Credential  string // jwt:{sub} or token:{tokenId}
	RequestID   string
	TraceParent string
	IP          string
	UserAgent   string
	Line        string // which of many lines this is about; empty: there is but one
}

func (c Caller) metadata() event.Metadata {
	return event.Metadata{
		Account: c.Account, Actor: c.Actor, Credential: c.Credential,
		RequestID: c.RequestID, Correlation: c.RequestID, TraceParent: c.TraceParent,
		IP: c.IP, UserAgent: c.UserAgent, Line: c.Line,
	}
}

// withoutOrigin is the caller without address and user agent, which may tell where a person is. It is for facts that are
// about no person and so are not sealed.
func (c Caller) withoutOrigin() Caller {
	c.IP, c.UserAgent = "", ""
	return c
}

// Handlers carries out commands against one log. Its methods may be called from many goroutines.
type Handlers struct {
	store     eventstore.Store
	transact  eventstore.Transactor
	claims    claim.Names
	directory *Directory
	holders   *holderCache
	leads     *eventstore.Folds[leadFold]
	endpoints *eventstore.Folds[webhook.State]
	secrets   Secrets
	// forgetting is what EraseLead needs.
	forgetting Forgetting
	// privateTargets lets endpoints be http, loopback or private addresses.
	privateTargets bool
	resolver       Resolver
	log            *slog.Logger
	now            func() time.Time
	random         io.Reader
	entropy        *ulid.LockedMonotonicReader
	windows        *semaphore.Weighted // of CaptureLeads, all together
}

// Options are what handlers need. Now, Random and Resolver default to the system's.
type Options struct {
	Store     eventstore.Store
	Claims    claim.Names
	Directory *Directory
	Secrets   Secrets
	// Forgetting does away with persons; only EraseLead needs it.
	Forgetting Forgetting
	Log        *slog.Logger
	Now        func() time.Time
	Random     io.Reader
	// AllowPrivateTargets lets webhook endpoints be http, loopback or private addresses: for development.
	AllowPrivateTargets bool
	// Resolver looks up the hosts of endpoints' URLs, for a first judgement.
	Resolver Resolver
}

// NewHandlers wires the commands.
func NewHandlers(o Options) *Handlers {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	return &Handlers{
		store: o.Store, claims: o.Claims, directory: o.Directory, secrets: o.Secrets, forgetting: o.Forgetting, log: o.Log,
		privateTargets: o.AllowPrivateTargets, resolver: o.Resolver, now: o.Now, random: o.Random,
		entropy: &ulid.LockedMonotonicReader{MonotonicReader: ulid.Monotonic(o.Random, 0)},
		windows: semaphore.NewWeighted(windows), holders: &holderCache{}, leads: eventstore.NewFolds(leadFolds),
		endpoints: eventstore.NewFolds(endpointFolds),
	}
}

// newID makes an id that sorts after those made before it in this process.
func (h *Handlers) newID() (ulid.ULID, error) {
	return ulid.New(ulid.Timestamp(h.now()), h.entropy)
}

// newIDs makes n ids as text.
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

// timestamp is now, in whole milliseconds, for the first fact of a stream.
func (h *Handlers) timestamp() time.Time { return h.after(time.Time{}) }

// after is the time of a fact that follows another on its stream: now, in whole milliseconds, but never before its
// predecessor, whose process may have had a faster clock.
func (h *Handlers) after(previous time.Time) time.Time {
	now := h.now().UTC().Truncate(time.Millisecond)
	if now.Before(previous) {
		return previous
	}
	return now
}

// stamp makes a fact ready to append.
func (h *Handlers) stamp(caller Caller, at time.Time, data event.Data) (eventstore.Event, error) {
	id, err := h.newID()
	if err != nil {
		return eventstore.Event{}, err
	}
	eventType, encoded, err := event.Encode(data)
	if err != nil {
		return eventstore.Event{}, err
	}
	return eventstore.Event{ID: id, Type: eventType, At: at, Data: encoded, Metadata: caller.metadata()}, nil
}

// write is the write of one fact.
func (h *Handlers) write(caller Caller, stream string, expect eventstore.Expected, at time.Time, data event.Data) (eventstore.Write, error) {
	stamped, err := h.stamp(caller, at, data)
	return eventstore.Write{Stream: stream, Expect: expect, Events: []eventstore.Event{stamped}}, err
}
