package forget_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/worker/forget"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/projection/verify"
	"github.com/leadlog/leadlog/projection/view"
	"github.com/leadlog/leadlog/query"
)

// fixture is a log with keys, running views and a running fan-out.
type fixture struct {
	*projectiontest.World
	t         *testing.T
	sealed    *sealed.Store
	runners   []*projection.Runner
	directory *command.Directory
	handlers  *command.Handlers
	eraser    forget.Eraser
	reader    *query.Reader

	mu       sync.Mutex
	clock    time.Time
	accounts int
}

// engines are the logs of tests whose outcome may depend on the store.
var engines = map[string]func(t *testing.T) *projectiontest.World{
	"memory":     func(t *testing.T) *projectiontest.World { return projectiontest.New(t) },
	"PostgreSQL": func(t *testing.T) *projectiontest.World { return projectiontest.NewOnPostgres(t) },
	"EventStoreDB": func(t *testing.T) *projectiontest.World {
		w := projectiontest.New(t)
		store, err := esdb.Open(t.Context(), esdb.Options{URL: esdbtest.Empty(t), Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(store.Close)
		w.Store = store
		return w
	},
}

func newFixture(t *testing.T, engine string) *fixture {
	t.Helper()
	w, log := engines[engine](t), slog.New(slog.DiscardHandler)
	box, err := sealbox.New(bytes.Repeat([]byte{1}, sealbox.KeySize))
	require.NoError(t, err)
	p := &fixture{World: w, t: t, clock: projectiontest.Start}
	p.sealed = sealed.Wrap(w.Store, sealed.NewVault(w.Pool, box), engine == "PostgreSQL", log)
	w.Store = p.sealed
	require.NoError(t, delivery.Begin(t.Context(), w.Pool, w.Store))
	epoch, err := w.Store.Epoch(t.Context())
	require.NoError(t, err)
	fanOut, err := projection.New(projection.Options{
		URL: w.URL, Store: w.Store, Schema: schema.Deliveries, MinInterval: time.Millisecond, Log: log,
		Projectors: []projection.Projector{delivery.FanOut{Epoch: epoch}},
	})
	require.NoError(t, err)
	views, err := projection.New(projection.Options{
		URL: w.URL, Store: w.Store, Projectors: view.All(), MinInterval: time.Millisecond, Log: log,
	})
	require.NoError(t, err)
	p.runners = []*projection.Runner{views, fanOut}
	for _, runner := range p.runners {
		projectiontest.Run(t, runner)
	}
	p.directory = command.NewDirectory(w.Store, p.now)
	p.handlers = command.NewHandlers(command.Options{
		Store: w.Store, Claims: claim.NewNames(bytes.Repeat([]byte{2}, 32)), Directory: p.directory, Log: log,
		Now: p.now,
	})
	p.eraser = forget.Eraser{Keys: p.sealed, Views: forget.Database{Pool: w.Pool, Timeout: time.Minute}}
	p.reader = query.New(w.Pool, w.Store)
	return p
}

// now returns a time that grows with every call, so that each step has times of its own.
func (p *fixture) now() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clock = p.clock.Add(time.Millisecond)
	return p.clock
}

// await returns when views and fan-out have reached the head of the log.
func (p *fixture) await() {
	for _, runner := range p.runners {
		projectiontest.Await(p.t, runner)
	}
}

// dump returns all rows of all tables of the database as text, and the events, as stored and as read.
func (p *fixture) dump() string {
	var all strings.Builder
	for _, table := range pgtest.Rows[string](p.t, p.Pool, `
		SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		 WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema')`) {
		for _, row := range pgtest.Rows[string](p.t, p.Pool, `SELECT t::text FROM `+table+` t`) {
			all.WriteString(table + " " + row + "\n")
		}
	}
	for _, e := range storetest.Events(p.t, p.sealed.Store, eventstore.Filter{}) {
		fmt.Fprintf(&all, "log %s %v %s\n", e.Stream, e.Metadata, e.Data)
	}
	for _, e := range storetest.Events(p.t, p.Store, eventstore.Filter{}) {
		fmt.Fprintf(&all, "event %s %d of %s: %s\n", e.Type, e.Revision, e.Stream, e.Data)
	}
	return all.String()
}

// requireNo requires that a text is nowhere in a dump, also not in hexadecimal, as PostgreSQL prints bytes.
func requireNo(t *testing.T, dump, text string) {
	t.Helper()
	for _, written := range []string{text, hex.EncodeToString([]byte(text))} {
		if !strings.Contains(dump, written) {
			continue
		}
		for line := range strings.Lines(dump) {
			require.NotContains(t, line, written)
		}
	}
}

// customer is an account of a place.
type customer struct {
	*fixture
	caller command.Caller
	intake string
}

// customer makes an account whose contacts are never shared, so that strangers merge, with an intake and an endpoint
// for webhooks.
func (p *fixture) customer() *customer {
	p.accounts++
	id := fmt.Sprintf("account-%d", p.accounts)
	c := &customer{fixture: p, intake: p.NewID(), caller: command.Caller{
		Account: id, Actor: "user:owner", Credential: "jwt:owner", RequestID: "r-1", ReadsLeads: true,
	}}
	_, _, err := p.handlers.ConfigureAccount(p.t.Context(), command.ConfigureAccount{
		Caller: c.caller, AccountID: id,
		Settings: account.Settings{Features: []string{account.FeatureAPI}, SharedAfter: new(0)},
	})
	require.NoError(p.t, err)
	p.Append(p.t, id, event.IntakeStream(c.intake), event.IntakeCreated{
		IntakeSettings: event.IntakeSettings{Name: "Site", Kind: "webhook", Source: "website", Enabled: true}, Slot: 1,
	})
	p.Append(p.t, id, event.WebhookStream(p.NewID()), event.WebhookRegistered{
		WebhookSettings: event.WebhookSettings{URL: "https://example.com/hook", Events: []string{"*"}}, Slot: 1,
	})
	return c
}

func members(body string) (members map[string]jsontext.Value) {
	if err := json.Unmarshal([]byte(body), &members); err != nil {
		panic(err)
	}
	return members
}

// capture captures a person by the API, or by a post to the intake, whose body is kept, with a source. It returns the
// ids of the lead, of the touch and of the kept arrival; of a refused one only that.
func (c *customer) capture(t require.TestingT, body, posted string) (id, touch, arrival string) {
	ctx := c.t.Context()
	if posted == "" {
		admission, err := c.directory.Admit(ctx, c.caller)
		require.NoError(t, err)
		captured, err := c.handlers.CaptureLead(ctx, command.CaptureLead{Admission: admission, Body: members(body)})
		require.NoError(t, err)
		return captured.Lead.ID, captured.EventID, ""
	}
	received, err := c.handlers.ReceiveArrival(ctx, command.ReceiveArrival{
		Caller: command.Caller{
			Account: c.caller.Account, Actor: "system:intake", Credential: "intake:" + c.intake, RequestID: "r-2",
		},
		IntakeID: c.intake, Intake: eventstore.Check(event.IntakeStream(c.intake), eventstore.At(0)), Source: posted,
		Raw:    event.ArrivalRaw{ContentType: "application/json"}.WithBody([]byte(body)),
		Mapped: command.Mapped{Body: members(body)},
	})
	require.NoError(t, err)
	for recorded, err := range c.Store.Read(ctx, event.ArrivalStream(received.ID), 0) {
		require.NoError(t, err)
		fact, err := recorded.Fact()
		require.NoError(t, err)
		if data, is := fact.Data.(event.ArrivalCaptured); is {
			id, touch = data.LeadID, data.EventID
		}
	}
	return id, touch, received.ID
}

func (c *customer) join(t require.TestingT, into, from string) {
	_, err := c.handlers.JoinLeads(c.t.Context(), command.JoinLeads{
		Caller: c.caller, LeadID: into, Body: members(fmt.Sprintf(`{"from":%q}`, from)),
	})
	require.NoError(t, err)
}

func (c *customer) split(id, body string) (command.LeadSplit, error) {
	return c.handlers.SplitLead(c.t.Context(), command.SplitLead{Caller: c.caller, LeadID: id, Body: members(body)})
}

func (c *customer) erase(t require.TestingT, id string) forget.LeadErased {
	done, err := c.eraser.EraseLead(c.t.Context(), c.handlers.Erasure(c.caller), id)
	require.NoError(t, err)
	return done
}

func (c *customer) state(t require.TestingT, id string) lead.State {
	state, _, err := eventstore.Load(c.t.Context(), c.Store, event.LeadStream(id), lead.Evolve)
	require.NoError(t, err)
	return state
}

// echo records that an endpoint echoed a text for each delivery of a lead that it has not answered yet.
func (p *fixture) echo(id, text string) {
	pgtest.Exec(p.t, p.Pool, `
		INSERT INTO delivery.attempt (delivery_id, at, status, duration_ms, response, error)
		SELECT delivery_id, now(), 500, 1, $1, 'the endpoint answered ' || $1 FROM delivery.delivery d
		 WHERE stream = $2 AND NOT EXISTS (SELECT FROM delivery.attempt a WHERE a.delivery_id = d.delivery_id)`,
		text, event.LeadStream(id))
}

// verify requires that the views are a fold of the log and that no erasure is unfinished.
func (p *fixture) verify(t require.TestingT, sparse bool) {
	findings, err := verify.Verification{
		URL: p.URL, Pool: p.Pool, Store: p.sealed.Forensic(), Sparse: sparse, Limit: 3,
		Progress:   func(_, _ eventstore.Position) {},
		Unerased:   func(e verify.UnfinishedErasure) { require.Fail(t, e.Message) },
		Unfinished: p.eraser.Unfinished, HasKeys: p.sealed.HasKeys,
	}.Run(p.t.Context())
	require.NoError(t, err)
	require.Empty(t, findings)
}

// sameAfresh requires that a replay of the views gives the rows that they have.
func (p *fixture) sameAfresh(t require.TestingT) {
	before := p.Dump(p.t)
	require.NoError(t, p.Replay(view.All()...).Run(p.t.Context()))
	p.await()
	after := p.Dump(p.t)
	for table, rows := range before {
		require.Equal(t, rows, after[table], table)
	}
}

// moment is what a customer saw at a position.
type moment struct {
	position eventstore.Position
	at       time.Time
	leads    map[string]string // as JSON, by id
	owners   map[string]string // by touch
}

func (c *customer) shown(t require.TestingT, id string, at time.Time) string {
	shown, err := c.reader.LeadAsOf(c.t.Context(), c.caller.Account, id, at)
	if errors.Is(err, query.ErrNotFound) {
		return ""
	}
	require.NoError(t, err)
	encoded, err := json.Marshal(shown, json.Deterministic(true))
	require.NoError(t, err)
	return string(encoded)
}

// touchOwners returns the lead of each touch as of a position, and the touches that are erased now.
func (c *customer) touchOwners(t require.TestingT, at eventstore.Position) (owners map[string]string, erased []string) {
	owners = map[string]string{}
	for page := (query.Page{Limit: 100}); ; {
		list, err := c.reader.Touches(c.t.Context(), c.caller.Account, query.TouchFilter{AsOf: at, Masked: true}, page)
		require.NoError(t, err)
		for _, touch := range list.Items {
			if touch.Erased {
				erased = append(erased, touch.TouchID)
			} else {
				owners[touch.TouchID] = *touch.LeadID
			}
		}
		if page.Cursor = list.NextCursor; page.Cursor == "" {
			return owners, erased
		}
	}
}

// history is a random history of a customer, beside a model of which lead has which arrivals. Each arrival has a mark,
// which is readable as long as the lead that has the arrival is not erased.
type history struct {
	*customer
	t       *testing.T
	random  *rand.Rand
	leads   []string            // all that ever were, in the order of their creation
	owns    map[string][]string // touches by lead
	erased  []string            // touches
	gone    map[string]bool     // erased leads
	marks   map[string]string   // by touch
	posts   map[string]string   // ids of arrivals at the intake, by touch
	moments []moment
}

func pick[T any](h *history, from []T) T { return from[h.random.IntN(len(from))] }

func (h *history) live() []string {
	return slices.DeleteFunc(slices.Clone(h.leads), func(id string) bool { return len(h.owns[id]) == 0 })
}

func (h *history) meet(id string) {
	if !slices.Contains(h.leads, id) {
		h.leads = append(h.leads, id)
	}
}

func (h *history) step() {
	live := h.live()
	step := h.random.IntN(20)
	switch {
	case len(live) == 0 || step < 9:
		h.arrives()
	case step < 11 && len(live) > 1:
		h.random.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
		h.join(h.t, live[0], live[1])
		h.owns[live[0]], h.owns[live[1]] = append(h.owns[live[0]], h.owns[live[1]]...), nil
	case step < 12:
		id := pick(h, live)
		if s := h.state(h.t, id); len(s.Phones) > 1 {
			_, err := h.handlers.ReleaseContact(h.t.Context(), command.ReleaseContact{
				Caller: h.caller, LeadID: id, Body: members(fmt.Sprintf(`{"phone":%q}`, pick(h, s.Phones))),
			})
			require.NoError(h.t, err)
		}
	case step < 13:
		bodies := []string{`{"status":"won","opportunityValue":7}`, `{"status":"contacted"}`, `{"opportunityValue":3}`}
		_, err := h.handlers.UpdateLead(h.t.Context(), command.UpdateLead{
			Caller: h.caller, LeadID: pick(h, live), Body: members(pick(h, bodies)),
		})
		require.NoError(h.t, err)
	case step < 15:
		id := pick(h, live)
		joined := h.state(h.t, id).Joined
		done := h.erase(h.t, id)
		require.ElementsMatch(h.t, append([]string{id}, joined...), done.Leads)
		h.erased, h.owns[id] = append(h.erased, h.owns[id]...), nil
		for _, id := range done.Leads {
			h.gone[id] = true
		}
	default:
		h.divide(pick(h, live))
	}
}

func (h *history) arrives() {
	mark := fmt.Sprintf("Mark%s%03dx", h.caller.Account[8:], len(h.marks))
	body :=
		fmt.Sprintf(`{"phone":"+9198765001%02[1]d","email":"p%[2]d@example.org","name":%[3]q,"customFields":{"of":%[3]q},
		"metadata":{"source":"website","ref":%[3]q}}`, h.random.IntN(6), h.random.IntN(4), mark)
	id, touch, post := h.capture(h.t, body, pick(h, []string{"", "", "website", "whatsapp", "facebook_ad"}))
	if id == "" {
		return // the post is refused: the lead has this source
	}
	h.meet(id)
	h.owns[id], h.marks[touch] = append(h.owns[id], touch), mark
	if post != "" {
		h.posts[touch] = post
	}
}

// divide splits arrivals off a lead, or undoes a join.
func (h *history) divide(id string) {
	s := h.state(h.t, id)
	moved := slices.Clone(h.owns[id])
	h.random.Shuffle(len(moved), func(i, j int) { moved[i], moved[j] = moved[j], moved[i] })
	moved = moved[:1+h.random.IntN(len(moved))]
	encoded, err := json.Marshal(map[string]any{"touches": moved})
	require.NoError(h.t, err)
	body := string(encoded)
	switch n := h.random.IntN(4); {
	case n < 2 && len(s.Joined) > 0:
		body = fmt.Sprintf(`{"lead":%q}`, pick(h, s.Joined))
	case n == 2 && len(s.Phones) > 1:
		body = fmt.Sprintf(`{"phone":%q}`, pick(h, s.Phones))
	}
	split, err := h.split(id, body)
	if _, wrong := errors.AsType[field.Errors](err); wrong {
		return // a side would have no arrival or no contact, or an arrival is of before an erasure
	}
	require.NoError(h.t, err)
	recorded, err := h.Store.Last(h.t.Context(), event.LeadStream(id))
	require.NoError(h.t, err)
	fact, err := recorded.Fact()
	require.NoError(h.t, err)
	touches := fact.Data.(event.LeadSplit).Touches
	h.owns[id] = slices.DeleteFunc(h.owns[id], func(touch string) bool { return slices.Contains(touches, touch) })
	h.owns[split.Leaves.ID] = append(h.owns[split.Leaves.ID], touches...)
	h.meet(split.Leaves.ID)
}

// look records what the customer sees, and lets an endpoint echo it.
func (h *history) look() {
	h.await()
	m := moment{position: storetest.Head(h.t, h.Store), at: h.now(), leads: map[string]string{}}
	for _, id := range h.leads {
		m.leads[id] = h.shown(h.t, id, m.at)
		var marks []string
		for _, touch := range h.owns[id] {
			marks = append(marks, h.marks[touch])
		}
		h.echo(id, strings.Join(marks, " "))
	}
	owners, erased := h.touchOwners(h.t, m.position)
	want := map[string]string{}
	for id, touches := range h.owns {
		for _, touch := range touches {
			want[touch] = id
		}
	}
	require.Equal(h.t, want, owners)
	require.ElementsMatch(h.t, h.erased, erased)
	m.owners = owners
	h.moments = append(h.moments, m)
}

// check requires that nothing changed in the past but what is erased, and that no mark of an erased arrival is left.
func (h *history) check(sparse bool) {
	h.verify(h.t, sparse)
	for n, m := range h.moments {
		for id, was := range m.leads {
			is := h.shown(h.t, id, m.at)
			if h.gone[id] || is == "" && h.lostAt(id, m.at) {
				require.Empty(h.t, is, "lead %s after step %d", id, n)
				continue
			}
			require.Equal(h.t, was, is, "lead %s after step %d", id, n)
		}
		owners, _ := h.touchOwners(h.t, m.position)
		for _, touch := range h.erased {
			delete(m.owners, touch)
		}
		require.Equal(h.t, m.owners, owners, "after step %d", n)
	}
	dump := h.dump()
	for _, touch := range h.erased {
		requireNo(h.t, dump, h.marks[touch])
	}
	for touch, id := range h.posts {
		for recorded, err := range h.Store.Read(h.t.Context(), event.ArrivalStream(id), 0) {
			require.NoError(h.t, err)
			if recorded.Type == (event.ArrivalReceived{}).EventType() {
				erased := slices.Contains(h.erased, touch)
				require.Equal(h.t, erased, recorded.Erased, "the body of a post is erased with its lead alone")
			}
		}
	}
	for id, touches := range h.owns {
		if len(touches) > 0 {
			require.Equal(h.t, lead.Live, h.state(h.t, id).Phase)
		}
	}
}

// lostAt reports whether the events that a lead had at a time were erased with another lead, which left it later.
func (h *history) lostAt(id string, at time.Time) (lost bool) {
	for recorded, err := range h.Store.Read(h.t.Context(), event.LeadStream(id), 0) {
		require.NoError(h.t, err)
		if !recorded.At.After(at) {
			lost = recorded.Erased
		}
	}
	return lost
}

func TestSplitLead_History(t *testing.T) {
	t.Parallel()
	for engine, histories := range map[string]int{"memory": 18, "PostgreSQL": 6, "EventStoreDB": 6} {
		if testing.Short() {
			histories /= 3
		}
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			p := newFixture(t, engine)
			for seed := range histories {
				h := &history{
					customer: p.customer(), t: t, random: rand.New(rand.NewPCG(uint64(seed), 54)),
					owns: map[string][]string{}, gone: map[string]bool{},
					marks: map[string]string{}, posts: map[string]string{},
				}
				if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
					h.t = t
					for range 6 + h.random.IntN(20) {
						h.step()
						h.look()
					}
					h.check(engine == "EventStoreDB")
				}) {
					return
				}
			}
			p.sameAfresh(t)
		})
	}
}

// stranger is a person with traces that must not be left after an erasure.
type stranger struct{ name, phone string }

func (s stranger) traces() []string {
	return []string{s.name, s.phone[3:], s.name + "-city", s.name + "-browser", s.name + "-visitor", s.name + "-utm"}
}

func (s stranger) body(source string) string {
	return fmt.Sprintf(`{"phone":%[1]q,"email":"test@test.com","name":%[2]q,"visitorId":"%[2]s-visitor",
		"customFields":{"city":"%[2]s-city"},
		"metadata":{"source":%[3]q,"userAgent":"%[2]s-browser","utm_content":"%[2]s-utm"}}`, s.phone, s.name, source)
}

// Two strangers were one lead, by a contact or by a join, and are split. The erasure of either leaves nothing of
// the person in any table of the database, and everything of the other.
func TestEraseLead_AfterSplit(t *testing.T) {
	t.Parallel()
	asha, bala := stranger{"Asharao", "+919876512341"}, stranger{"Balakumar", "+919876512352"}
	for name, c := range map[string]struct{ joined, leaver bool }{
		"lead that left": {false, true}, "lead that stayed": {false, false},
		"undone join, source lead": {true, true}, "undone join, surviving lead": {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newFixture(t, "PostgreSQL")
			c, joined, leaver := p.customer(), c.joined, c.leaver
			stays, _, _ := c.capture(t, asha.body("website"), "")
			admission, err := c.directory.Admit(t.Context(), c.caller)
			require.NoError(t, err)
			_, err = c.handlers.RecordActivity(t.Context(), command.RecordActivity{
				Admission: admission, VisitorID: asha.name + "-visitor", Body: members(`{"type":"page_view"}`),
			})
			require.NoError(t, err)
			of := func(s stranger) string {
				body := s.body("website")
				if joined {
					body = strings.Replace(body, "test@test.com", strings.ToLower(s.name)+"@example.com", 1)
				}
				return body
			}
			second, _, _ := c.capture(t, of(bala), "")
			c.capture(t, of(bala), "whatsapp")
			c.capture(t, asha.body("facebook_ad"), "facebook_ad")
			_, err = c.handlers.UpdateLead(t.Context(), command.UpdateLead{
				Caller: c.caller, LeadID: stays, Body: members(`{"status":"contacted"}`),
			})
			require.NoError(t, err)
			request := fmt.Sprintf(`{"phone":%q}`, bala.phone)
			if require.Equal(t, joined, stays != second); joined {
				c.join(t, stays, second)
				request = fmt.Sprintf(`{"lead":%q}`, second)
			}
			p.await()
			c.echo(stays, strings.Join(append(asha.traces(), bala.traces()...), " "))
			c.echo(second, strings.Join(bala.traces(), " "))
			copied := p.Replay(view.All()...)
			copied.Into = "copied"
			require.NoError(t, copied.Run(t.Context()))
			split, err := c.split(stays, request)
			require.NoError(t, err)
			p.await()
			c.echo(split.Stays.ID, strings.Join(asha.traces(), " "))
			c.echo(split.Leaves.ID, strings.Join(bala.traces(), " "))
			before := p.dump()
			for _, trace := range append(asha.traces(), bala.traces()...) {
				require.Contains(t, before, trace)
			}

			id, gone, kept := split.Stays.ID, asha, bala
			if leaver {
				id, gone, kept = split.Leaves.ID, bala, asha
			}
			streams := []string{event.LeadStream(stays), event.LeadStream(second), event.LeadStream(split.Leaves.ID)}
			keys := func() (all []string) {
				found, err := p.sealed.Commitments(t.Context(), streams...)
				require.NoError(t, err)
				return slices.Concat(slices.Collect(maps.Values(found))...)
			}
			destroyed := keys()
			c.erase(t, id)
			left := keys()
			destroyed = slices.DeleteFunc(destroyed, func(hash string) bool { return slices.Contains(left, hash) })
			last, err := p.Store.Last(t.Context(), event.LeadStream(id))
			require.NoError(t, err)
			fact, err := last.Fact()
			require.NoError(t, err)
			var committed []string
			for _, k := range fact.Data.(event.LeadErased).KeyCommitments {
				committed = append(committed, k.Commitment)
			}
			require.ElementsMatch(t, destroyed, committed, "a certificate has the hash of each destroyed key")
			p.await()
			after := p.dump()
			for _, trace := range gone.traces() {
				requireNo(t, after, trace)
			}
			for _, trace := range kept.traces() {
				require.Contains(t, after, trace)
			}
			p.verify(t, false)
			p.sameAfresh(t)
		})
	}
}

// An arrival came by two joins to the lead that it leaves: the lead between restates it.
func TestEraseLead_AfterJoinsAndSplit(t *testing.T) {
	t.Parallel()
	p := newFixture(t, "memory")
	c := p.customer()
	asha := stranger{"Asharao", "+919876512341"}
	first, touch, _ := c.capture(t, asha.body("website"), "")
	between, _, _ := c.capture(t, `{"phone":"+919876512352"}`, "")
	last, _, _ := c.capture(t, `{"phone":"+919876512363"}`, "")
	c.join(t, between, first)
	c.join(t, last, between)
	split, err := c.split(last, fmt.Sprintf(`{"touches":[%q]}`, touch))
	require.NoError(t, err)
	c.erase(t, split.Leaves.ID)
	p.await()
	dump := p.dump()
	for _, trace := range asha.traces() {
		requireNo(t, dump, trace)
	}
	require.Equal(t, []string{"+919876512363", "+919876512352"}, c.state(t, last).Phones)
	p.verify(t, false)
	p.sameAfresh(t)
}

// A split moves kept posts to the lead that leaves. An erasure that is killed before it erases these is unfinished, and
// its repeat erases them and no other.
func TestEraseLead_KilledBeforeMovedArrivals(t *testing.T) {
	t.Parallel()
	p := newFixture(t, "memory")
	c := p.customer()
	asha, bala := stranger{"Asharao", "+919876512341"}, stranger{"Balakumar", "+919876512352"}
	id, _, staying := c.capture(t, asha.body("website"), "website")
	_, _, moved := c.capture(t, bala.body("whatsapp"), "whatsapp")
	split, err := c.split(id, fmt.Sprintf(`{"phone":%q}`, bala.phone))
	require.NoError(t, err)

	p.await()
	for arrival, owner := range map[string]string{staying: id, moved: split.Leaves.ID} {
		shown, err := p.reader.Arrival(t.Context(), c.caller.Account, arrival)
		require.NoError(t, err)
		require.Equal(t, owner, *shown.LeadID)
	}
	killed := forget.Eraser{Keys: killedKeys{p.sealed, event.ArrivalPrefix}, Views: p.eraser.Views}
	done, err := killed.EraseLead(t.Context(), c.handlers.Erasure(c.caller), split.Leaves.ID)
	require.ErrorIs(t, err, errKilled)
	unfinished := func() bool {
		is, err := p.eraser.Unfinished(t.Context(), c.caller.Account, done.Leads,
			split.Leaves.Origins, nil, done.Position)
		require.NoError(t, err)
		return is
	}
	require.True(t, unfinished())
	require.True(t, c.erase(t, split.Leaves.ID).Again)
	require.False(t, unfinished())
	for arrival, readable := range map[string]bool{staying: true, moved: false} {
		held, err := p.sealed.HasKeys(t.Context(), event.ArrivalStream(arrival))
		require.NoError(t, err)
		require.Equal(t, readable, held)
	}
	p.await()
	p.verify(t, false)
}
