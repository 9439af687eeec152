package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// history makes the log that a replay reads: four arrivals in five are new people, each with claims on a phone and an
// email; the fifth is somebody who comes again, half of the time one of the latest, and now and then an arrival is
// refused. One lead is as busy as none ever is.
type history struct {
	random *rand.Rand
	at     time.Time
	people []arrived
	busy   string // id of that lead
	append int    // the one that is being made
}

// arrived is a lead that was born.
type arrived struct {
	lead     string
	revision eventstore.Revision
	append   int // that it was in last: a stream may be in one but once
}

// busyEvents is how many events the busy lead has.
const busyEvents = 1000

// beginning is when a history begins: with the busy lead.
var beginning = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newHistory() *history {
	return &history{random: rand.New(rand.NewPCG(1, 2)), at: beginning}
}

// write appends events until the log has as many, many arrivals at a time. It returns the position of the last.
func (h *history) write(ctx context.Context, store eventstore.Store, events int) (last eventstore.Position, err error) {
	if last, err = store.Append(ctx, h.busyLead()...); err != nil {
		return 0, err
	}
	for int(last) < events {
		var writes []eventstore.Write
		h.append++
		for len(writes) < min(2000, events-int(last)) {
			writes = append(writes, h.arrival()...)
		}
		if last, err = store.Append(ctx, writes...); err != nil {
			return 0, err
		}
	}
	return last, nil
}

func (h *history) arrival() []eventstore.Write {
	h.at = h.at.Add(3 * time.Millisecond)
	switch n := h.random.IntN(100); {
	case n < 78 || len(h.people) == 0:
		return h.newcomer()
	case n < 98:
		back := h.random.IntN(len(h.people))
		if n%2 == 0 {
			back = h.random.IntN(min(2000, len(h.people)))
		}
		return h.again(&h.people[len(h.people)-1-back])
	default:
		lead := h.people[h.random.IntN(len(h.people))].lead
		return []eventstore.Write{h.begin(event.RefusedStream(h.id().String()),
			event.LeadRefused{Source: "api", Code: "DUPLICATE_LEAD_SOURCE", LeadID: lead})}
	}
}

func (h *history) newcomer() []eventstore.Write {
	lead := h.id().String()
	h.people = append(h.people, arrived{lead: lead, append: h.append})
	return h.lead(lead)
}

// again is an arrival of somebody who is known, unless it is too early for another one.
func (h *history) again(p *arrived) []eventstore.Write {
	if p.append == h.append {
		return nil
	}
	write := eventstore.Write{Stream: event.LeadStream(p.lead), Expect: eventstore.At(p.revision), Events: []eventstore.Event{h.fact(h.merged())}}
	p.revision, p.append = p.revision+1, h.append
	return []eventstore.Write{write}
}

// lead is what appends a new lead: its claims go with it.
func (h *history) lead(lead string) []eventstore.Write {
	claim := func(kind string) eventstore.Write {
		return h.begin(fmt.Sprintf("%s%016x%016x", event.ClaimPrefix, h.random.Uint64(), h.random.Uint64()), event.ClaimTaken{Kind: kind, Holder: lead})
	}
	return []eventstore.Write{h.begin(event.LeadStream(lead), h.created()), claim("phone"), claim("email")}
}

func (h *history) created() event.LeadCreated {
	n := len(h.people)
	return event.LeadCreated{
		ContactUID: h.id().String(), Name: fmt.Sprintf("Person %d", n), Phone: fmt.Sprintf("+91%010d", 9_000_000_000+n),
		Email: fmt.Sprintf("person%d@example.com", n), Status: "new", Temperature: "warm", Source: h.source(),
		Metadata: metadata(), CustomFields: map[string]jsontext.Value{"city": jsontext.Value(`"Pune"`)},
		IP: "198.51.100.7", UserAgent: "Mozilla/5.0", Changed: []string{"name", "phone", "email", "metadata", "customFields"},
	}
}

func (h *history) merged() event.LeadMerged {
	return event.LeadMerged{Source: h.source(), Metadata: metadata(), IP: "198.51.100.7", UserAgent: "Mozilla/5.0", Changed: []string{"metadata"}}
}

func metadata() map[string]jsontext.Value {
	return map[string]jsontext.Value{"source": jsontext.Value(`"website"`), "utm_campaign": jsontext.Value(`"diwali"`)}
}

func (h *history) source() string {
	sources := []string{"website", "api", "facebook_ad", "whatsapp", "chatbot"}
	return sources[h.random.IntN(len(sources))]
}

func (h *history) busyLead() []eventstore.Write {
	h.busy = h.id().String()
	writes := h.lead(h.busy)
	for len(writes[0].Events) < busyEvents {
		h.at = h.at.Add(time.Second)
		writes[0].Events = append(writes[0].Events, h.fact(h.merged()))
	}
	return writes
}

func (h *history) begin(stream string, data event.Data) eventstore.Write {
	return eventstore.Write{Stream: stream, Expect: eventstore.NoStream, Events: []eventstore.Event{h.fact(data)}}
}

func (h *history) fact(data event.Data) eventstore.Event {
	eventType, encoded, err := event.Encode(data)
	if err != nil {
		panic(err) // a fact of ours
	}
	return eventstore.Event{ID: h.id(), Type: eventType, At: h.at, Data: encoded, Metadata: event.Metadata{
		Account: account, Actor: "token:01J000000000000000000000TK", Credential: "token:01J000000000000000000000TK",
		RequestID: h.id().String(), IP: "192.0.2.7", UserAgent: "Mozilla/5.0",
	}}
}

// id grows with time.
func (h *history) id() (id ulid.ULID) {
	_ = id.SetTime(ulid.Timestamp(h.at)) // a time of ours
	for i := 6; i < len(id); i++ {
		id[i] = byte(h.random.Uint32())
	}
	return id
}
