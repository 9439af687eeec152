package command

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// The handlers in this file record who read personal data.

// What can be revealed.
const (
	RevealOne     = "lead"    // one lead
	RevealArrival = "arrival" // what was posted
)

// Reveal is about to show a caller personal data of one lead, or what was posted. The caller has checked that the
// account has it.
type Reveal struct {
	Caller    Caller
	What      string
	LeadID    string // of RevealOne
	ArrivalID string // of RevealArrival
}

func (r Reveal) sample() accessSample {
	return accessSample{r.Caller, r.What + " " + r.LeadID + r.ArrivalID, event.DataRevealed{
		LeadID: r.LeadID, ArrivalID: r.ArrivalID, What: r.What,
	}}
}

// Reveal records the first reading of a minute by a caller, of one lead or arrival. Nothing may be shown when it
// returns an error: the errors are ErrNotRecorded and those of the store.
func (h *Handlers) Reveal(ctx context.Context, cmd Reveal) error {
	return notRecorded(h.record(ctx, cmd.sample()))
}

// RevealLeads is Reveal for the leads of a list, in one append.
func (h *Handlers) RevealLeads(ctx context.Context, caller Caller, ids ...string) error {
	samples := make([]accessSample, len(ids))
	for i, id := range ids {
		samples[i] = Reveal{Caller: caller, What: RevealOne, LeadID: id}.sample()
	}
	return notRecorded(h.record(ctx, samples...))
}

// ErrNotRecorded means that personal data are not shown because the log, which must have a record of it first, cannot
// be written. It comes with eventstore.ErrUnavailable.
var ErrNotRecorded = errors.New("personal data are shown only once the log has a record of it")

func notRecorded(err error) error {
	if errors.Is(err, eventstore.ErrUnavailable) {
		return fmt.Errorf("%w: %w", ErrNotRecorded, err)
	}
	return err
}

// Read is Reveal for a caller who must be answered also while the log cannot be written.
func (h *Handlers) Read(ctx context.Context, cmd Reveal) { h.note(ctx, cmd.sample()) }

// Search records the first of a minute of a caller's lists of personal data, by what is listed and by which personal
// fields it was searched by. The values are not recorded. The caller is answered also while the log cannot be written.
func (h *Handlers) Search(ctx context.Context, caller Caller, what string, fields ...string) {
	slices.Sort(fields)
	h.note(ctx, accessSample{caller, "search " + what + " " + strings.Join(fields, " "), event.DataSearched{
		What: what, Fields: fields,
	}})
}

// accessSample is a read of personal data, which is recorded once a minute for a caller and subject.
type accessSample struct {
	caller  Caller
	subject string
	fact    event.Data
}

// stream is that of the record. The log decides which of several processes appends it: the name is made of the caller,
// the subject and the minute.
func (s accessSample) stream(at time.Time) string {
	hash := sha256.Sum256(
		[]byte(
			strings.Join([]string{s.caller.Account, s.caller.Actor, s.subject, at.Format("2006-01-02T15:04")}, "\x00"),
		),
	)
	return event.RecordStream(hex.EncodeToString(hash[:16]))
}

// sampleCache has the samples that this process has recorded, so that most readings append nothing.
type sampleCache = lru.Cache[string, struct{}]

const sampleCacheSize = 20_000 // a few MiB

// record appends samples in one append, except those that are on the log.
func (h *Handlers) record(ctx context.Context, samples ...accessSample) error {
	at := h.timestamp()
	var missing []accessSample
	var writes []eventstore.Write
	for _, s := range samples {
		stream := s.stream(at)
		if _, recorded := h.samples.Get(stream); recorded {
			continue
		}
		write, err := h.write(s.caller.ofRecord(), stream, eventstore.NoStream, at, s.fact)
		if err != nil {
			return err
		}
		missing, writes = append(missing, s), append(writes, write)
	}
	if len(writes) == 0 {
		return nil
	}
	_, err := h.store.Append(ctx, writes...)
	_, conflict := errors.AsType[*eventstore.ConflictError](err)
	switch {
	case conflict && len(missing) > 1: // some were recorded by another process
		for _, s := range missing {
			if err := h.record(ctx, s); err != nil {
				return err
			}
		}
		return nil
	case err == nil || conflict:
		for _, write := range writes {
			h.samples.Add(write.Stream, struct{}{})
		}
		return nil
	}
	return err
}

const (
	noteWait    = 250 * time.Millisecond // how long an answer waits for the record
	noteTimeout = 10 * time.Second       // how long the append is retried
	notesAtOnce = 64                     // max concurrent appends; a sample that gets no slot within noteWait is lost
)

// note waits up to noteWait for a sample to be recorded, and retries in the background after that. It logs a sample
// that is lost.
func (h *Handlers) note(ctx context.Context, s accessSample) {
	if _, recorded := h.samples.Get(s.stream(h.timestamp())); recorded {
		return
	}
	logLost := func(err error) {
		h.log.Warn("reading of personal data not recorded", slog.String("account", s.caller.Account),
			slog.String("requestId", s.caller.ownRequestID()), slog.Any("error", err))
	}
	waiting, end := context.WithTimeout(ctx, noteWait)
	defer end()
	if err := h.recordSlots.Acquire(waiting, 1); err != nil {
		logLost(eventstore.ErrUnavailable)
		return
	}
	done := make(chan struct{})
	go func() {
		defer h.recordSlots.Release(1)
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
		defer cancel()
		if err := h.record(ctx, s); err != nil {
			logLost(err)
		}
	}()
	select {
	case <-done:
	case <-waiting.Done():
	}
}

// ofRecord returns the caller of a record, which outlives the persons that it is about: the request's id is the
// service's own.
func (c Caller) ofRecord() Caller {
	c.RequestID = c.ownRequestID()
	return c
}

// Export is an export that is recorded.
type Export struct {
	caller Caller
	stream string
	fact   event.DataExported
}

// BeginExport records that a caller is about to export a list. The filter is by parameter; personal values are masked.
// The errors are ErrNotRecorded and those of the store.
func (h *Handlers) BeginExport(
	ctx context.Context, caller Caller, what, format string, filter map[string]string,
) (Export, error) {
	id, err := h.newID()
	if err != nil {
		return Export{}, err
	}
	e := Export{caller.ofRecord(), event.RecordStream(id.String()), event.DataExported{
		ExportID: id.String(), What: what, Format: format, Filter: maskedFilter(filter),
	}}
	write, err := h.write(e.caller, e.stream, eventstore.NoStream, h.timestamp(), e.fact)
	if err != nil {
		return Export{}, err
	}
	_, err = h.store.Append(ctx, write)
	return e, notRecorded(err)
}

// EndExport records how an export ended. The errors are those of the store.
func (h *Handlers) EndExport(ctx context.Context, e Export, rows int, complete bool) error {
	count := int64(rows)
	e.fact.Rows, e.fact.Complete = &count, &complete
	write, err := h.write(e.caller, e.stream, eventstore.At(0), h.timestamp(), e.fact)
	if err != nil {
		return err
	}
	_, err = h.store.Append(ctx, write)
	return err
}

// PersonalFilters are the parameters of lists whose values are personal.
func PersonalFilters() []string { return []string{"q", "phone", "email"} }

// plainFilters are the other parameters by which lists that are exported can be filtered.
func plainFilters() []string {
	return []string{
		"asOf", "campaign", "consent", "createdSince", "createdUntil", "include", "leadId", "leadTemperature", "medium",
		"since", "source", "state", "status", "type", "types", "until",
	}
}

// maxFilter is the maximum length of a recorded value, in characters.
const maxFilter = 200

// maskedFilter returns what is recorded of a filter. The record is not erased with a person. So parameters that lists
// ignore, in which a caller may send anything, are left out, and values with an email are masked.
func maskedFilter(filter map[string]string) map[string]string {
	masked := map[string]string{}
	for name, value := range filter {
		switch runes := []rune(strings.ToValidUTF8(value, "\uFFFD")); {
		case value == "":
		case slices.Contains(PersonalFilters(), name):
			masked[name] = "***"
		case !slices.Contains(plainFilters(), name):
		case contact.NamesPerson(value, ""):
			masked[name] = "***"
		default:
			masked[name] = string(runes[:min(len(runes), maxFilter)])
		}
	}
	if len(masked) == 0 {
		return nil
	}
	return masked
}
