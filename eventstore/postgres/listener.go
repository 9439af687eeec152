package postgres

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leadlog/leadlog/eventstore"
)

// listen starts the listener with the first subscription.
func (s *Store) listen() {
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.closing.Err() == nil {
		s.listener.once.Do(func() { s.running.Go(func() { s.listener.run(s.closing, &s.notifier.backend) }) })
	}
}

// listener wakes the subscriptions of a store when any process has appended. A connection that listens can die unnoticed, so it
// only makes them faster; what guarantees that they see everything is that they also poll.
type listener struct {
	config *pgx.ConnConfig
	log    *slog.Logger
	once   sync.Once

	mu     sync.Mutex
	woken  chan struct{} // closed by the next wake
	others uint64        // wakes for what others may have appended
}

func newListener(config *pgx.ConnConfig, log *slog.Logger) *listener {
	return &listener{config: named(config, "listener"), log: log, woken: make(chan struct{}), others: 1}
}

// next returns what is closed by the next wake, and how many wakes for others there were.
func (l *listener) next() (woken <-chan struct{}, others uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.woken, l.others
}

// wake wakes the subscriptions. ForOthers says that they must read the log, because not everything that is new is in memory.
func (l *listener) wake(forOthers bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if forOthers {
		l.others++
	}
	close(l.woken)
	l.woken = make(chan struct{})
}

// run listens until the context ends. Own is the session of this process that notifies.
func (l *listener) run(ctx context.Context, own *atomic.Uint32) {
	Listening{
		Config: l.config, Channel: "leadlog_log",
		Ignore: func(session uint32) bool { return session == own.Load() },
		Began:  func() { l.wake(true) }, // for what was appended before
		Heard:  func() { l.wake(true) },
		Lost: func(err error) {
			l.log.Warn("LISTEN connection lost, polling and reconnecting", "error", err)
		},
	}.Run(ctx)
}

// Listening listens to a channel, and reconnects when the connection fails.
//
// Every role of the database may notify any channel, and cannot be kept from it. So a notification says nothing but "look": its
// payload is discarded, and many together count as one.
type Listening struct {
	Config  *pgx.ConnConfig
	Channel string
	Poll    time.Duration             // Heard is called this often without a notification too; 0: never
	Ignore  func(session uint32) bool // whether notifications of a session are ignored; nil: none are
	Began   func()                    // is called whenever listening begins: what was notified before was not heard
	Heard   func()                    // is called after notifications, at most once in notifyRest
	Lost    func(error)               // is called with why the connection was lost, once until it is back
}

// Run listens until the context ends.
func (l Listening) Run(ctx context.Context) {
	const shortest, longest = 50 * time.Millisecond, 2 * time.Second
	for pause := shortest; ; pause = min(2*pause, longest) {
		began, err := l.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if began {
			pause = shortest
		}
		if pause == shortest {
			l.Lost(err)
		}
		if eventstore.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// listen listens until the connection fails. It tells whether there was one at all.
func (l Listening) listen(ctx context.Context) (began bool, err error) {
	heard := false
	config := l.Config.Copy()
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) {
		heard = heard || l.Ignore == nil || !l.Ignore(n.PID)
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return false, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // broken already, or no longer needed
	}()
	if _, err := conn.Exec(ctx, `LISTEN `+l.Channel); err != nil {
		return false, err
	}
	l.Began()
	for rest := time.Now(); ; rest = time.Now().Add(notifyRest) {
		due := never
		if l.Poll > 0 {
			due = time.Now().Add(l.Poll)
		}
		for !heard && time.Now().Before(due) {
			if err := receive(ctx, conn, due); err != nil {
				return true, err
			}
		}
		for time.Now().Before(rest) {
			if err := receive(ctx, conn, rest); err != nil {
				return true, err
			}
		}
		heard = false
		l.Heard()
	}
}

// never is a time that does not come.
var never = time.Unix(1<<40, 0)

// receive waits for a notification, which the connection's configuration handles, or until a time.
func receive(ctx context.Context, conn *pgx.Conn, until time.Time) error {
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	err := conn.PgConn().WaitForNotification(waiting)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil && !conn.IsClosed() {
		return nil
	}
	return err
}
