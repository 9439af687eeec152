package delivery

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/command/attribution"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
)

// rendererVersion is stored with each delivery. When the format of bodies changes, deliveries of an earlier version
// keep their format, so that each attempt sends the same bytes.
const rendererVersion = 1

// maxBody is the maximum size in bytes of a body that is not truncated.
const maxBody = 64 << 10

// timeFormat is the format of times in the API: UTC, three decimals.
const timeFormat = "2006-01-02T15:04:05.000Z"

// ErrNotOnLog means that the log does not have the event of a delivery at its position. It is shown to the owner of the
// endpoint.
var ErrNotOnLog = errors.New("not sent: the event is not on the log any more, which was restored from a backup")

// ErrForgotten means that a delivery is cancelled because its lead was erased.
var ErrForgotten = errors.New("the lead of the delivery is erased")

// Source is the event that the body of a delivery is rendered from.
type Source struct {
	Stream   string
	Revision eventstore.Revision
	Position eventstore.Position
	webhook.Message
	EventID string // empty: unknown
}

// Body is the body of a delivery.
type Body struct {
	JSON        []byte
	TraceParent string // of the request that caused the event
}

// envelope is the JSON body of a delivery.
type envelope struct {
	Type      string `json:"type"`
	Timestamp string `json:"timestamp"`
	Data      any    `json:"data"`
	ID        string `json:"id"`                 // of the event
	Sequence  int64  `json:"sequence"`           // the event's position on the log
	Truncated bool   `json:"truncated,omitzero"` // custom fields and metadata were left out

	Changes []changeData `json:"changes,omitzero"` // of lead events; empty, not nil, without changes
	Touch   *touchData   `json:"touch,omitzero"`   // of arrivals
	Consent *consentData `json:"consent,omitzero"` // of a lead.consent
}

// changeData is a field of the lead whose value the event changed. A value that is not set is null.
type changeData struct {
	Field string         `json:"field"` // as in data; for a member customFields.{key} or metadata.{key}
	Old   jsontext.Value `json:"old"`
	New   jsontext.Value `json:"new"`
}

// touchData is an arrival in the format of the API's touches.
type touchData struct {
	TouchID string `json:"touchId"`
	LeadID  string `json:"leadId"`
	At      string `json:"at"`
	Source  string `json:"source"`
	Kind    string `json:"kind"` // created or merged
	lead.Origin
	Credential string              `json:"credential"`
	IntakeID   *string             `json:"intakeId"`
	RequestID  *string             `json:"requestId"`
	Position   eventstore.Position `json:"position"`
	Erased     bool                `json:"erased"` // always false: an erased person has no bodies
}

// consentData is a consent that an event changed, in the format of the API's consents. After a join or split, eventId
// is that of the event that recorded it, which has the words.
type consentData struct {
	Purpose    string         `json:"purpose"`
	Granted    *bool          `json:"granted"` // null: the lead has none of this purpose any more
	Text       string         `json:"text"`
	Version    string         `json:"version"`
	URL        string         `json:"url"`
	Method     string         `json:"method"`
	At         string         `json:"at"`
	EventID    string         `json:"eventId"`
	Credential credentialData `json:"credential"`
	IP         string         `json:"ip"`
	UserAgent  string         `json:"userAgent"`
}

type leadData struct {
	lead.Record
	CreatedAt   string          `json:"createdAt"`
	UpdatedAt   string          `json:"updatedAt"`
	Consents    map[string]bool `json:"consents"`
	SourceEntry *sourceData     `json:"sourceEntry,omitzero"` // of a merge: the history entry of its source
	JoinedFrom  string          `json:"joinedFrom,omitzero"`  // of a join: the source lead
	SplitFrom   string          `json:"splitFrom,omitzero"`   // of a split: the lead that stays
	SplitInto   string          `json:"splitInto,omitzero"`   // of a split: the lead that left
}

// sourceData is an entry of a source history in the format of the API.
type sourceData struct {
	LeadID      string                    `json:"leadId"`
	Source      string                    `json:"source"`
	FirstSeenAt string                    `json:"firstSeenAt"`
	LastSeenAt  string                    `json:"lastSeenAt"`
	Arrivals    int                       `json:"arrivals"`
	Credential  credentialData            `json:"credential"`
	Metadata    map[string]jsontext.Value `json:"metadata,omitzero"` // left out together with the lead's
	IP          string                    `json:"ip"`
	UserAgent   string                    `json:"userAgent"`
	RequestID   string                    `json:"requestId"`
	Changed     []string                  `json:"changed"`
}

type credentialData struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

type tokenData struct {
	TokenID   string `json:"tokenId"`
	Name      string `json:"name"`
	Prefix    string `json:"prefix"`
	ExpiresAt string `json:"expiresAt"`
}

// intakeData is an intake in the format of the API.
type intakeData struct {
	intake.Record
	CreatedAt     string  `json:"createdAt"`
	LastArrivalAt *string `json:"lastArrivalAt"`
	FailingSince  *string `json:"failingSince"`
	OldUntil      *string `json:"oldSecretUntil"`
	LastError     string  `json:"lastError,omitzero"`
}

func newIntakeData(id string, s intake.State) intakeData {
	data := intakeData{Record: s.Record(id), CreatedAt: formatTime(s.CreatedAt), LastError: s.LastError}
	if !s.OldUntil.IsZero() {
		data.OldUntil = new(formatTime(s.OldUntil))
	}
	if s.Failing {
		data.FailingSince = new(formatTime(s.FailingSince))
	}
	if !s.ArrivedAt.IsZero() {
		data.LastArrivalAt = new(formatTime(s.ArrivedAt))
	}
	return data
}

// arrivalData is an arrival in the format of the API.
type arrivalData struct {
	arrival.Record
	ReceivedAt string `json:"receivedAt"`
	ExpiresAt  string `json:"expiresAt"`
}

type erasedData struct {
	LeadID     string `json:"leadId"`
	ContactUID string `json:"contactUID"`
}

type testData struct {
	WebhookID string `json:"webhookId"`
}

// subject is the lead, token or intake of a delivery.
type subject struct {
	Lead   lead.State
	Was    leadValues // before the latest event
	Token  token.State
	Intake intake.State
}

// leadValues holds the values of a lead that changes compare. The maps are shared with its state, which replaces them
// when they change.
type leadValues struct {
	event.LeadFields
	Source   string                    `json:"source,omitzero"`
	Metadata map[string]jsontext.Value `json:"metadata,omitzero"`
}

func (s subject) evolve(fact event.Fact) subject {
	was := leadValues{s.Lead.LeadFields, s.Lead.Source, s.Lead.Metadata}
	return subject{lead.Fold(s.Lead, fact), was, token.Evolve(s.Token, fact), intake.Evolve(s.Intake, fact)}
}

// subjects configures the cache of folds: a lead with repeated arrivals has one delivery after another. Erased leads
// are not cached.
var subjects = eventstore.FoldRules[subject]{
	Evolve:    subject.evolve,
	Cacheable: func(s subject) bool { return s.Lead.Phase == lead.Live || s.Lead.Phase == lead.NotCreated },
	Long:      128, Memory: 4 << 20,
}

// render renders the body of a delivery from the event's stream, up to the event. Every attempt gets the same bytes.
func render(ctx context.Context, store eventstore.Store, folds *eventstore.Folds[subject], s Source) (Body, error) {
	fact, about, err := s.load(ctx, store, folds)
	if err != nil {
		return Body{}, err
	}
	body, err := s.encode(fact, about)
	return Body{JSON: body, TraceParent: fact.Metadata.TraceParent}, err
}

// load reads the event, and the state after it. The errors are ErrNotOnLog, ErrForgotten and those of the store.
func (s Source) load(
	ctx context.Context, store eventstore.Store, folds *eventstore.Folds[subject],
) (fact event.Fact, about subject, err error) {
	now, recorded, err := folds.LoadTo(ctx, store, s.Stream, math.MaxInt64)
	about = now
	if err == nil && recorded.Revision > s.Revision {
		about, recorded, err = folds.LoadTo(ctx, store, s.Stream, s.Revision)
	}
	if err != nil {
		return fact, about, err
	}
	if recorded.Stream == "" || recorded.Revision != s.Revision || s.EventID != "" &&
		s.EventID != recorded.ID.String() {
		return fact, about, ErrNotOnLog // another event has its revision
	}
	if (now.Lead.Phase == lead.Erased || about.Lead.Phase == lead.Erased) && s.Type != erasedType {
		return fact, about, ErrForgotten
	}
	fact, err = recorded.Fact()
	return fact, about, err
}

// renderFirst renders the body of a delivery whose event is the first of its stream.
func renderFirst(s Source, e projection.Event) (Body, error) {
	fact := e.Fact()
	body, err := s.encode(fact, subject{}.evolve(fact))
	return Body{JSON: body, TraceParent: e.Metadata.TraceParent}, err
}

// encode returns the body of an event and the state after it.
func (s Source) encode(fact event.Fact, about subject) ([]byte, error) {
	leadState, tokenState := about.Lead, about.Token
	out := envelope{
		Type: s.Type, Timestamp: formatTime(fact.At), ID: fact.ID.String(), Sequence: int64(s.Position),
	}
	if s.Part > 0 {
		var err error
		if out.Consent, err = s.consent(&fact, leadState); err != nil {
			return nil, err
		}
	}
	switch data := fact.Data.(type) {
	case event.LeadCreated:
		out.Touch = s.touch(&fact, "created", data.Source, data.Campaign, data.Metadata, data.ArrivalRef)
		return encodeLead(out, newLeadData(leadState), about.changes())
	case event.LeadUpdated, event.LeadReleased, event.LeadConsented:
		return encodeLead(out, newLeadData(leadState), about.changes())
	case event.LeadMerged:
		out.Touch = s.touch(&fact, "merged", data.Source, data.Campaign, data.Metadata, data.ArrivalRef)
		of := newLeadData(leadState)
		of.SourceEntry = newSourceData(leadState, data.Source)
		return encodeLead(out, of, about.changes())
	case event.LeadJoined:
		of := newLeadData(leadState)
		of.JoinedFrom = data.From
		return encodeLead(out, of, about.changes())
	case event.LeadSplit:
		of := newLeadData(leadState)
		of.SplitFrom, of.SplitInto = data.From, data.Into
		return encodeLead(out, of, about.changes())
	case event.LeadErased:
		out.Data, out.Changes = erasedData{leadState.ID, leadState.ContactUID}, []changeData{}
		return json.Marshal(out, json.Deterministic(true))
	case event.WebhookTested:
		out.Data = testData{event.WebhookID(s.Stream)}
		return json.Marshal(out, json.Deterministic(true))
	case event.ArrivalQuarantined:
		out.Data = arrivalData{
			arrival.Quarantine(event.ArrivalID(s.Stream), data), formatTime(data.ReceivedAt), formatTime(data.ExpiresAt),
		}
		return json.Marshal(out, json.Deterministic(true))
	case event.IntakeSilent, event.IntakeResumed, event.IntakeFailing, event.IntakeRecovered:
		out.Data = newIntakeData(event.IntakeID(s.Stream), about.Intake)
		return json.Marshal(out, json.Deterministic(true))
	case event.TokenCreated, event.TokenRotated, event.TokenDeleted, event.TokenExpiring:
		out.Data = tokenData{
			event.TokenID(s.Stream), tokenState.Name, tokenState.Prefix, formatTime(tokenState.ExpiresAt),
		}
		return json.Marshal(out, json.Deterministic(true))
	default:
		return nil, fmt.Errorf("events of type %s have no body for webhooks", fact.Data.EventType())
	}
}

// changes lists the changes of the latest event to the lead's record.
func (s subject) changes() []changeData {
	list := make([]changeData, 0, 12)
	add := func(field string, old, latest jsontext.Value) {
		if string(old) != string(latest) {
			list = append(list, changeData{field, old, latest})
		}
	}
	add("source", textOrNull(s.Was.Source), textOrNull(s.Lead.Source))
	add("opportunityId", textOrNull(s.Was.OpportunityID), textOrNull(s.Lead.OpportunityID))
	before := lead.State{LeadFields: s.Was.LeadFields, Metadata: s.Was.Metadata}
	for _, c := range lead.Changes(&before, &s.Lead) {
		switch {
		case c.Key != "":
			add(c.Field+"."+c.Key, orNull(c.Old), orNull(c.New))
		case c.Field == "opportunityValue":
			add(c.Field, orNull(c.Old), orNull(c.New))
		default:
			add(c.Field, textOrNull(c.Old), textOrNull(c.New))
		}
	}
	return list
}

// orNull returns a JSON value, or null for an empty one.
func orNull(value string) jsontext.Value {
	if value == "" {
		return jsontext.Value("null")
	}
	return jsontext.Value(value)
}

func textOrNull(value string) jsontext.Value {
	if value == "" {
		return jsontext.Value("null")
	}
	quoted, _ := jsontext.AppendQuote(nil, value) // text on the log is valid UTF-8
	return quoted
}

// isMember reports whether a change is of a custom field or of metadata. A truncated body leaves these changes out.
func (c changeData) isMember() bool { return strings.Contains(c.Field, ".") }

// consent returns the consent of a part of an event.
func (s Source) consent(fact *event.Fact, of lead.State) (*consentData, error) {
	changed := event.PurposesOf(fact.Data)
	if s.Part > len(changed.ChangedConsents) {
		return nil, fmt.Errorf("%s %s has no part %d", fact.Data.EventType(), fact.ID, s.Part)
	}
	purpose := changed.ChangedConsents[s.Part-1]
	granted, has := changed.Consents[purpose]
	if !has {
		return &consentData{Purpose: purpose, At: formatTime(fact.At)}, nil
	}
	latest := of.Consents[purpose]
	data := &consentData{Purpose: purpose, Granted: &granted, At: formatTime(latest.At), EventID: latest.EventID}
	given, _ := lead.ConsentsOf(fact) // none of a join or split
	for _, words := range given {
		if words.Purpose == purpose { // the last one counts
			data.Text, data.Version, data.URL, data.Method = words.Text, words.Version, words.URL, words.Method
			data.setCaller(fact)
		}
	}
	return data, nil
}

// setCaller sets where a consent came from.
func (c *consentData) setCaller(fact *event.Fact) {
	c.Credential = newCredentialData(fact.Metadata.Credential)
	c.IP, c.UserAgent = fact.Metadata.IP, fact.Metadata.UserAgent
	switch arrival := fact.Data.(type) {
	case event.LeadCreated:
		c.IP, c.UserAgent = arrival.IP, arrival.UserAgent
	case event.LeadMerged:
		c.IP, c.UserAgent = arrival.IP, arrival.UserAgent
	}
}

func newCredentialData(credential string) credentialData {
	kind, id, _ := strings.Cut(credential, ":")
	return credentialData{kind, id}
}

// touch returns the touch of an arrival.
func (s Source) touch(
	fact *event.Fact, kind, source string, campaign event.Campaign, metadata map[string]jsontext.Value,
	kept event.ArrivalRef,
) *touchData {
	t := &touchData{
		TouchID: fact.ID.String(), LeadID: event.LeadID(fact.Stream), At: formatTime(kept.SeenAt(fact.At)),
		Source: source, Kind: kind, Origin: lead.NewOrigin(campaign, metadata),
		Credential: attribution.TouchCredential(fact.Metadata.Credential),
		Position:   s.Position,
	}
	if kept.IntakeID != "" {
		t.IntakeID = &kept.IntakeID
	}
	if fact.Metadata.RequestID != "" {
		t.RequestID = &fact.Metadata.RequestID
	}
	return t
}

func newLeadData(s lead.State) leadData {
	data := leadData{Record: s.Record(), CreatedAt: formatTime(s.CreatedAt), UpdatedAt: formatTime(s.UpdatedAt)}
	data.Metadata, data.Consents = s.Metadata, s.Granted()
	return data
}

// newSourceData returns the history entry of a source, or nil.
func newSourceData(s lead.State, source string) *sourceData {
	i := slices.IndexFunc(s.Sources, func(e lead.SourceEntry) bool { return e.Source == source })
	if i < 0 {
		return nil
	}
	entry := s.Sources[i]
	if entry.Metadata == nil {
		entry.Metadata = map[string]jsontext.Value{}
	}
	return &sourceData{
		LeadID: s.ID, Source: entry.Source, FirstSeenAt: formatTime(entry.FirstSeenAt),
		LastSeenAt: formatTime(entry.LastSeenAt), Arrivals: entry.Arrivals, Credential: newCredentialData(entry.Credential),
		Metadata: entry.Metadata, IP: entry.IP, UserAgent: entry.UserAgent, RequestID: entry.RequestID,
		Changed: entry.Changed,
	}
}

// encodeLead encodes a body and truncates one that is too large: it first leaves out the changes of custom fields and
// metadata, which data has too, then these fields themselves.
func encodeLead(out envelope, data leadData, changes []changeData) ([]byte, error) {
	out.Data, out.Changes = data, changes
	body, err := json.Marshal(out, json.Deterministic(true))
	if err != nil || len(body) <= maxBody {
		return body, err
	}
	out.Changes, out.Truncated = slices.DeleteFunc(changes, changeData.isMember), true
	if out.Touch != nil { // the campaign is kept
		o := out.Touch.Origin
		out.Touch.Origin = lead.Origin{
			UTMSource: o.UTMSource, UTMMedium: o.UTMMedium, UTMCampaign: o.UTMCampaign, UTMID: o.UTMID,
			ClickIDs: map[string]string{},
		}
	}
	body, err = json.Marshal(out, json.Deterministic(true))
	if err != nil || len(body) <= maxBody {
		return body, err
	}
	data.CustomFields, data.Metadata = nil, nil
	if data.SourceEntry != nil {
		data.SourceEntry.Metadata = nil
	}
	out.Data = data
	return json.Marshal(out, json.Deterministic(true))
}

func formatTime(t time.Time) string { return t.UTC().Format(timeFormat) }

const (
	maxBodies     = 8192
	maxCachedBody = 4 << 10          // bytes; all together at most 32 MiB
	bodyAge       = 10 * time.Second // bounds how long the body of an erased lead is cached
)

// Bodies renders the bodies of deliveries. It caches, for a short time, those that the fan-out has rendered: of events
// that are the first of their stream, and of events that a filter was applied to. A courier in the same process then
// does not read the stream again, which would cost a sixth to a half more processor time. Filters and the courier also
// share its folds of long streams.
type Bodies struct {
	recent *lru.Cache[bodyKey, cachedBody]
	folds  *eventstore.Folds[subject]
}

// bodyKey is the location of an event on the log, and a part of it.
type bodyKey struct {
	stream   string
	revision eventstore.Revision
	part     int
}

type cachedBody struct {
	Body
	at time.Time
}

// NewBodies returns an empty cache.
func NewBodies() *Bodies {
	recent, err := lru.New[bodyKey, cachedBody](maxBodies)
	if err != nil {
		panic(err) // the size is positive
	}
	return &Bodies{recent, eventstore.NewFolds(subjects)}
}

// Body returns the body of a delivery. The errors are ErrNotOnLog, ErrForgotten and those of the store.
func (b *Bodies) Body(ctx context.Context, store eventstore.Store, s Source) (Body, error) {
	if cached, ok := b.get(s); ok {
		return cached, nil
	}
	return render(ctx, store, b.folds, s)
}

// add caches the body of an event that is the first of its stream.
func (b *Bodies) add(m webhook.Message, e projection.Event) {
	if b == nil || e.Revision != 0 {
		return
	}
	s := Source{Stream: e.Stream, Position: e.Position, Message: m}
	if body, err := renderFirst(s, e); err == nil { // the courier gets the same error
		b.cache(s, body)
	}
}

// cache caches the body of a delivery.
func (b *Bodies) cache(s Source, body Body) {
	if len(body.JSON) <= maxCachedBody {
		b.recent.Add(bodyKey{s.Stream, s.Revision, s.Part}, cachedBody{body, time.Now()})
	}
}

// forget removes the bodies of a stream.
func (b *Bodies) forget(stream string) {
	if b == nil {
		return
	}
	for _, key := range b.recent.Keys() {
		if key.stream == stream {
			b.recent.Remove(key)
		}
	}
}

func (b *Bodies) get(s Source) (Body, bool) {
	key := bodyKey{s.Stream, s.Revision, s.Part}
	cached, ok := b.recent.Get(key)
	if ok && time.Since(cached.at) > bodyAge {
		b.recent.Remove(key)
		return Body{}, false
	}
	return cached.Body, ok
}
