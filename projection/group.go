package projection

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
)

// Why a session changes its group, other than failures.
var (
	errKeepsUp = errors.New("the view keeps up with the log")
	errBehind  = errors.New("the views are behind")
)

// group is views that follow the log together: they read it once, and for each page there is one transaction, with the
// rows and the checkpoints of all of them. A view that fails leaves the group, and the page is written without it.
//
// A view that is behind, or failed lately, is in a group of its own. Once it keeps up, it joins the shared group, which
// all leave when that is behind, because they catch up faster in parallel.
type group struct {
	ctx    context.Context
	tail   *eventstore.Tail
	pool   *pgxpool.Pool
	pace   *pace
	shared bool

	// used by its goroutine only
	members []*session
	events  []Event // of the latest page; the next one uses the same memory

	mu        sync.Mutex
	joining   []*session
	running   bool
	interrupt context.CancelFunc // ends the wait for events; nil: there is none
}

func newGroup(ctx context.Context, tail *eventstore.Tail, pool *pgxpool.Pool, pace *pace) *group {
	return &group{ctx: ctx, tail: tail, pool: pool, pace: pace}
}

// follow applies events to the view of a session until it leaves the group, and returns why.
func (g *group) follow(s *session) error {
	s.left = make(chan error, 1)
	defer context.AfterFunc(s.ctx, g.wake)()
	g.mu.Lock()
	g.joining = append(g.joining, s)
	if !g.running {
		g.running = true
		go g.run()
	}
	g.mu.Unlock()
	g.wake()
	return <-s.left
}

// wake ends the wait for events.
func (g *group) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.interrupt != nil {
		g.interrupt()
	}
}

// leave removes a session from the group.
func (g *group) leave(s *session, err error) {
	g.members = slices.DeleteFunc(g.members, func(other *session) bool { return other == s })
	s.left <- err
}

// leaveAll removes all sessions.
func (g *group) leaveAll(err error) {
	for _, s := range slices.Clone(g.members) {
		g.leave(s, err)
	}
}

// admit removes the sessions whose lease has ended and adds those that join. It returns the context of the next wait
// for events, nil if there are no members: the goroutine must end.
func (g *group) admit() (wait context.Context, joined bool) {
	for _, s := range slices.Clone(g.members) {
		if s.ctx.Err() != nil {
			g.leave(s, context.Cause(s.ctx))
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.interrupt != nil {
		g.interrupt()
		g.interrupt = nil
	}
	joined = len(g.joining) > 0
	g.members, g.joining = append(g.members, g.joining...), nil
	if len(g.members) == 0 {
		g.running = false
		return nil, false
	}
	wait, g.interrupt = context.WithCancel(g.ctx)
	return wait, joined
}

// run applies the recorded events, then new ones as they are appended, until no session is left.
func (g *group) run() {
	var f *eventstore.Follower
	defer func() {
		if f != nil {
			f.Close()
		}
	}()
	for behind := false; ; {
		wait, joined := g.admit()
		if wait == nil {
			return
		}
		if joined {
			if f != nil {
				f.Close()
			}
			f = g.tail.Follow(g.start())
		}
		for _, s := range g.members {
			s.analyze(f)
		}
		if !behind {
			g.maintain(f)
		}
		if len(g.members) > 0 {
			behind = g.page(wait, f)
		}
	}
}

// start is where the follower of the group starts: after the least position of its views, with the events that any of
// them selects. Errors of events are those of the views that need the event.
func (g *group) start() eventstore.Start {
	projectors := make([]Projector, len(g.members))
	first := g.members[0]
	for i, s := range g.members {
		if projectors[i] = s.projector; s.processed < first.processed {
			first = s
		}
	}
	since := first.checkpoint.written
	if g.shared { // the views have read events in other groups
		since = time.Now()
	}
	return eventstore.Start{After: first.processed, Since: since, Filter: Union(projectors), Stored: true}
}

// whileHeld returns a context that ends with the session of any member, whose lease is lost when its connections hang:
// a statement on one of these would not return.
func (g *group) whileHeld() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(g.ctx)
	for _, s := range g.members {
		context.AfterFunc(s.ctx, cancel)
	}
	return ctx, cancel
}

// page waits for events and applies them. It reports whether the views are behind.
func (g *group) page(wait context.Context, f *eventstore.Follower) (behind bool) {
	limit := g.pace.batch
	if !g.shared {
		limit = g.members[0].limit
	}
	events, position, err := f.Next(wait, g.events[:0], limit, g.due())
	switch {
	case err != nil && wait.Err() != nil && g.ctx.Err() == nil:
		return false // a session joins or leaves
	case err != nil:
		g.leaveAll(err)
		return false
	}
	g.events = events
	defer clear(events) // an idle group keeps no events in memory
	began := time.Now()
	steps, ends := g.steps(events, position, began)
	g.apply(steps, f.Live(), began)
	for s, err := range ends {
		if slices.Contains(g.members, s) {
			g.leave(s, err)
		}
	}
	full := len(events) >= limit
	switch behind = full || !f.Live(); {
	case g.shared && full && !f.Live():
		g.leaveAll(errBehind)
	case !behind && len(events) > 0:
		_ = eventstore.Sleep(wait, time.Until(began.Add(eventstore.PauseAfter(g.pace.minInterval, len(events)))))
	}
	if !g.shared && !behind && len(g.members) > 0 && position > 0 {
		if s := g.members[0]; s.together != nil && s.limit == g.pace.batch {
			g.leave(s, errKeepsUp)
		}
	}
	return behind
}

// due returns a channel that fires when there is something to do without an event: a checkpoint to move over events
// that no view needs, maintenance, or tables to analyze.
func (g *group) due() <-chan time.Time {
	var first time.Time
	at := func(t time.Time) {
		if first.IsZero() || t.Before(first) {
			first = t
		}
	}
	for _, s := range g.members {
		if s.processed > s.checkpoint.position {
			at(s.moved.Add(g.pace.checkpoints))
		}
		if s.written >= g.pace.bulk || s.derived > 0 {
			at(time.Now().Add(MaintenancePause)) // the tables are to be analyzed
		}
		if s.maintenance != nil && s.maintenance.Pending() {
			pause := time.Now().Add(MaintenancePause)
			if s.maintainAt.After(pause) {
				pause = s.maintainAt
			}
			at(pause)
		}
	}
	if first.IsZero() {
		return nil
	}
	return time.After(time.Until(first))
}

// steps returns what to write after a page: the events of each view, and the checkpoints of views that need none of the
// recent ones when that is due. A session ends after its step if a later event cannot be read. Without a page, position
// is 0.
func (g *group) steps(
	events []Event, position eventstore.Position, now time.Time,
) (steps []memberStep, ends map[*session]error) {
	ends = map[*session]error{}
	for _, s := range g.members {
		own := batch{position: max(s.processed, position)}
		for i := range events {
			e := &events[i]
			if e.Position <= s.processed || !s.filter.Matches(e.Stream, e.Type) {
				continue
			}
			if e.Err != nil {
				if ends[s], own.position = e.Err, s.processed; len(own.events) > 0 {
					own.position = last(own.events)
				}
				break
			}
			if s.chosen == nil || s.chosen(*e) {
				own.events = append(own.events, *e)
			}
		}
		s.processed = own.position
		due := s.processed > s.checkpoint.position && !now.Before(s.moved.Add(g.pace.checkpoints))
		if due || len(own.events) > 0 {
			steps = append(steps, memberStep{s, step{&s.checkpoint, own, nil}})
		}
	}
	return steps, ends
}

// memberStep is a step of a view of the group.
type memberStep struct {
	*session
	step
}

// apply writes the steps in one transaction. The sessions of those that fail leave.
func (g *group) apply(of []memberStep, live bool, began time.Time) {
	ctx, cancel := g.whileHeld()
	defer cancel()
	steps := make([]step, len(of))
	for i, m := range of {
		m.session.applying(m.batch, live)
		if steps[i] = m.step; len(m.events) > 0 {
			steps[i].write = prepare(m.projector, m.events)
		}
	}
	for len(steps) > 0 {
		failed, err := commit(ctx, g.pool, steps)
		if err == nil {
			break
		}
		if failed == unknown {
			g.leaveAll(err)
			return
		}
		g.leave(of[failed].session, err)
		of, steps = slices.Delete(of, failed, failed+1), slices.Delete(steps, failed, failed+1)
	}
	written := time.Now()
	for _, m := range of {
		if m.moved = written; m.watch != nil && len(m.events) > 0 {
			m.watch(Applied{m.projector.Name(), m.events, began, written})
		}
		m.applied(m.batch.position)
		if m.written += len(m.events); m.maintenance != nil {
			m.maintenance.Note(m.events)
		}
	}
}

// maintain runs steps of maintenance of each view in turn, until an event is appended.
func (g *group) maintain(f *eventstore.Follower) {
	ctx, cancel := g.whileHeld()
	defer cancel()
	for again := true; again; again = again && f.Idle() {
		again = false
		for _, s := range slices.Clone(g.members) {
			done, err := s.maintain(ctx)
			if again = again || done; err != nil {
				g.leave(s, err)
			}
		}
	}
}
