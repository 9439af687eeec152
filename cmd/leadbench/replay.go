package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/projection/schema"
)

// replayBenchmark measures how fast the log is read, the views are built from it, and both are verified, beside
// PostgreSQL's COPY of the same rows.
type replayBenchmark struct {
	settings `embed:""`
	Events   int `default:"1000000" help:"Events on the log."`
}

// Run is leadbench replay.
func (b *replayBenchmark) Run(ctx context.Context) error {
	r, err := newRig(ctx, b.settings)
	if err != nil {
		return err
	}
	defer r.close()
	l, err := r.sealedLog(ctx, b.Events)
	if err != nil {
		return err
	}
	defer l.close()
	env := append(
		[]string{"PATH=" + os.Getenv("PATH"), "LEADLOG_DATABASE_URL=" + l.address, "LEADLOG_SEAL_KEY=" + l.sealKey},
		r.setting...,
	)
	command := func(args ...string) func() (time.Duration, error) {
		return func() (time.Duration, error) {
			_, used, err := r.leadlog(ctx, env, args...)
			return used, err
		}
	}
	measures := []struct {
		what, goal              string
		run                     func() (program time.Duration, err error)
		took, program, database []time.Duration
	}{
		{
			what: "events by an ordered binary COPY", run: func() (time.Duration, error) {
				return 0, copyLog(ctx, l.address)
			},
		},
		{
			what: "events read through the store", goal: "0.75 of the COPY",
			run: func() (time.Duration, error) { return 0, readAll(ctx, l.store, l.head) },
		},
		{
			what: "events read through the store, and opened",
			run:  func() (time.Duration, error) { return 0, readAll(ctx, l.opened, l.head) },
		},
		{what: "events, all views replayed", goal: "0.3 of the COPY", run: command("replay", "all")},
		{what: "events, log and views verified", run: command("verify", "--most", "1")},
	}
	for round := range b.Rounds {
		progress("round %d of %d", round+1, b.Rounds)
		for i := range measures {
			m := &measures[i]
			if err := r.checkpoint(ctx); err != nil {
				return err
			}
			before, err := r.processor()
			if err != nil {
				return err
			}
			began := time.Now()
			program, err := m.run()
			if err != nil {
				return err
			}
			m.took, m.program = append(m.took, time.Since(began)), append(m.program, program)
			after, err := r.processor()
			if err != nil {
				return err
			}
			m.database = append(m.database, after-before)
		}
	}
	t := newTable("what", "a second", "to the binary COPY", "aim", "processor time per million: program, PostgreSQL")
	for _, m := range measures {
		each := func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()*1e6/float64(l.head)) }
		processor := ""
		if median(m.program) > 0 {
			processor = each(median(m.program)) + ", " + each(median(m.database))
		}
		took := median(m.took)
		t.row(m.what, count(float64(l.head)/took.Seconds()), times(median(measures[0].took).Seconds()/took.Seconds()),
			m.goal, processor)
	}
	t.print()
	t = newSummary()
	replayed, verified := measures[3], measures[4]
	t.row("replay of all views, to a binary COPY of the log", times(ratio(measures[0].took, replayed.took)), "0.3")
	t.row("`verify` of two million events",
		fmt.Sprintf("%s, from %s events", seconds(median(verified.took)*2_000_000/time.Duration(l.head)),
			count(float64(l.head))), "40 s")
	t.print()
	return nil
}

// copyLog is the least that any reader of the log can do.
func copyLog(ctx context.Context, address string) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.PgConn().CopyTo(ctx, io.Discard, `COPY (
		SELECT position, recorded_at, revision, event_id, stream, type, data, metadata FROM log.event ORDER BY position
	) TO STDOUT (FORMAT binary)`)
	return err
}

// sealedLog is a database with a log of leads, sealed as the service seals it, and the tables of the views.
type sealedLog struct {
	address string
	sealKey string
	store   *postgres.Store // shows events as they are stored
	opened  eventstore.Store
	pool    *pgxpool.Pool
	head    eventstore.Position
}

func (l *sealedLog) close() {
	if l.pool != nil {
		l.pool.Close()
	}
	if l.store != nil {
		l.store.Close()
	}
}

// sealedLog writes a log of so many events.
func (r *rig) sealedLog(ctx context.Context, events int) (_ *sealedLog, err error) {
	l := &sealedLog{sealKey: key()}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.address, err = r.database(ctx, "log"); err != nil {
		return nil, err
	}
	if err := schema.Migrate(ctx, l.address); err != nil {
		return nil, err
	}
	if l.store, err = openLog(ctx, l.address); err != nil {
		return nil, err
	}
	if l.pool, err = pgxpool.New(ctx, l.address); err != nil {
		return nil, err
	}
	if l.opened, err = sealing(l.store, l.pool, l.sealKey, true); err != nil {
		return nil, err
	}
	progress("writing a log of %d events", events)
	l.head, err = newHistory().write(ctx, l.opened, events)
	return l, err
}

// sealing seals what is appended to a log, with keys in the database of a pool.
func sealing(log eventstore.Store, keys *pgxpool.Pool, sealKey string, sameDatabase bool) (eventstore.Store, error) {
	raw, err := base64.StdEncoding.DecodeString(sealKey)
	if err != nil {
		return nil, err
	}
	box, err := sealbox.New(raw)
	if err != nil {
		return nil, err
	}
	return sealed.Wrap(log, sealed.NewVault(keys, box), sameDatabase, slog.New(slog.DiscardHandler)), nil
}

func readAll(ctx context.Context, store eventstore.Store, head eventstore.Position) error {
	for _, err := range eventstore.ReadTo(ctx, store, 0, head, eventstore.Filter{}) {
		if err != nil {
			return err
		}
	}
	return nil
}

// writePast writes events on the log of an empty database. Personal data are not sealed.
func writePast(ctx context.Context, address string, events int) error {
	store, err := openLog(ctx, address)
	if err != nil {
		return err
	}
	defer store.Close()
	_, err = newHistory().write(ctx, store, events)
	return err
}

// history makes a log: four arrivals in five are of new people, each with claims on a phone and an email; the fifth
// merges, half of the time into one of the newest leads.
type history struct {
	account string
	won     int // how many of twenty leads are won
	random  *rand.Rand
	at      time.Time
	leads   []pastLead
	append  int // number of the append that is being made
}

type pastLead struct {
	id       string
	sources  []string
	revision eventstore.Revision
	append   int // the last one with the lead: an append has a stream once
}

func newHistory() *history {
	return &history{
		account: account, random: rand.New(rand.NewPCG(1, 2)), at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
}

// write appends events until the log has as many, 1,000 at a time, under 1 MiB. It returns the position of the last.
func (h *history) write(ctx context.Context, store eventstore.Store, events int) (last eventstore.Position, err error) {
	for written := 0; written < events; {
		var writes []eventstore.Write // of one event each
		h.append++
		for len(writes) < min(1000, events-written) {
			writes = append(writes, h.arrival()...)
		}
		if last, err = store.Append(ctx, writes...); err != nil {
			return 0, err
		}
		written += len(writes)
	}
	return last, nil
}

func (h *history) arrival() []eventstore.Write {
	h.at = h.at.Add(3 * time.Millisecond)
	if len(h.leads) > 0 && h.random.IntN(5) == 0 {
		newest := len(h.leads)
		if h.random.IntN(2) == 0 {
			newest = min(2000, newest)
		}
		return h.merge(&h.leads[len(h.leads)-1-h.random.IntN(newest)])
	}
	id := h.id().String()
	created := h.created()
	h.leads = append(h.leads, pastLead{id: id, sources: []string{created.Source}, append: h.append})
	claim := func(kind string) eventstore.Write {
		name := fmt.Sprintf("%s%016x%016x", event.ClaimPrefix, h.random.Uint64(), h.random.Uint64())
		return newStream(name, h.fact(event.ClaimTaken{Kind: kind, Holder: id}))
	}
	return []eventstore.Write{newStream(event.LeadStream(id), h.fact(created)), claim("phone"), claim("email")}
}

// merge is an arrival that merges, or none if the lead is in the append already.
func (h *history) merge(lead *pastLead) []eventstore.Write {
	if lead.append == h.append {
		return nil
	}
	source := h.source()
	merged := event.LeadMerged{Source: source, NewSource: !slices.Contains(lead.sources, source), Metadata: metadata(),
		Campaign: event.Campaign{UTMCampaign: "diwali"},
		IP:       "198.51.100.7", UserAgent: "Mozilla/5.0", Changed: []string{"metadata"}}
	write := eventstore.Write{
		Stream: event.LeadStream(lead.id), Expect: eventstore.At(lead.revision),
		Events: []eventstore.Event{h.fact(merged)},
	}
	lead.revision, lead.append = lead.revision+1, h.append
	if merged.NewSource {
		lead.sources = append(lead.sources, source)
	}
	return []eventstore.Write{write}
}

func (h *history) created() event.LeadCreated {
	n, status, changed := len(h.leads), "new", []string{"name", "phone", "email", "metadata", "customFields"}
	if n%20 < h.won {
		status, changed = "won", append(changed, "status")
	}
	return event.LeadCreated{
		ContactUID: h.id().String(), LeadFields: event.LeadFields{
			Name: fmt.Sprintf("Person %d", n), Phone: fmt.Sprintf("+91%010d", 9_000_000_000+n),
			Email: fmt.Sprintf("person%d@example.com", n), Status: status, Temperature: "warm",
			CustomFields: map[string]jsontext.Value{"city": jsontext.Value(`"Pune"`)},
		}, Source: h.source(),
		Metadata: metadata(), Campaign: event.Campaign{UTMCampaign: "diwali"},
		IP: "198.51.100.7", UserAgent: "Mozilla/5.0",
		Changed: changed,
	}
}

func metadata() map[string]jsontext.Value {
	return map[string]jsontext.Value{"source": jsontext.Value(`"website"`), "utm_campaign": jsontext.Value(`"diwali"`)}
}

func (h *history) source() string {
	sources := []string{"website", "api", "facebook_ad", "whatsapp", "chatbot"}
	return sources[h.random.IntN(len(sources))]
}

func (h *history) fact(data event.Data) eventstore.Event {
	eventType, encoded, err := event.Encode(data)
	if err != nil {
		panic(err) // constant
	}
	return eventstore.Event{ID: h.id(), Type: eventType, At: h.at, Data: encoded, Metadata: event.Metadata{
		Account: h.account, Actor: "token:01J000000000000000000000TK", Credential: "token:01J000000000000000000000TK",
		RequestID: h.id().String(), IP: "192.0.2.7", UserAgent: "Mozilla/5.0",
	}}
}

// id grows with time.
func (h *history) id() (id ulid.ULID) {
	_ = id.SetTime(ulid.Timestamp(h.at)) // within ULID's range
	for i := 6; i < len(id); i++ {
		id[i] = byte(h.random.Uint32())
	}
	return id
}
