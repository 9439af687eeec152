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
	"github.com/leadlog/leadlog/eventstore/migration"
)

// channel is the channel of notifications about appends.
const channel = "leadlog_log"

const (
	// notifyInterval is the least time between two notifications of a process. A notification wakes each listening
	// session of the database, also for other channels: at 5 ms this took a twentieth of PostgreSQL's time under load.
	notifyInterval = 20 * time.Millisecond
	// notifyRetry is the pause after a failed notification. Subscriptions poll at the same interval by default.
	notifyRetry = 250 * time.Millisecond
	// notifyTimeout is the timeout of a notification.
	notifyTimeout = 5 * time.Second
)

// notifier notifies other processes of this process's appends. It has its own connection, so that no append depends on
// it: any role of the database can delay a transaction that notifies, by sending many notifications, and make it fail,
// by filling the notification queue. After a failed notification, other processes find the events when they poll.
type notifier struct {
	config  *pgx.ConnConfig
	conn    *pgx.Conn     // nil while disconnected
	pending chan struct{} // holds one if there were appends since the last notification
	last    time.Duration // timeout of a notification after the last append
	backend atomic.Uint32 // server process id of the latest connection
}

func newNotifier(config *pgx.ConnConfig) *notifier {
	config = named(config, "notifier")
	config.RuntimeParams["synchronous_commit"] = "off" // notifications write no data
	return &notifier{config: config, pending: make(chan struct{}, 1), last: time.Second}
}

// notify requests a notification without waiting for it.
func (n *notifier) notify() {
	select {
	case n.pending <- struct{}{}:
	default:
	}
}

// run sends notifications until the writer has ended.
func (n *notifier) run(ended <-chan struct{}) {
	defer n.disconnect()
	for {
		select {
		case <-n.pending:
		case <-ended:
			select {
			case <-n.pending:
				if n.conn != nil {
					_ = n.send(n.last)
				}
			default:
			}
			return
		}
		pause := notifyInterval
		if err := n.send(notifyTimeout); err != nil {
			n.notify()
			pause = notifyRetry
		}
		select {
		case <-time.After(pause):
		case <-ended:
		}
	}
}

func (n *notifier) send(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := n.connect(ctx)
	if err == nil {
		_, err = n.conn.PgConn().Exec(ctx, `NOTIFY `+channel).ReadAll()
	}
	if err != nil {
		n.disconnect()
	}
	return err
}

func (n *notifier) connect(ctx context.Context) (err error) {
	if n.conn != nil {
		return nil
	}
	if n.conn, err = migration.Connect(ctx, n.config); err != nil {
		return err
	}
	var backend uint32 // the connection may know another one, of a pooler
	if err := n.conn.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&backend); err != nil {
		return err
	}
	n.backend.Store(backend)
	return nil
}

func (n *notifier) disconnect() {
	closeConn(n.conn)
	n.conn = nil
}

// waker wakes the subscriptions of a store after an append by any process. The failure of a listening connection can go
// undetected, so subscriptions also poll.
type waker struct {
	config *pgx.ConnConfig
	log    *slog.Logger
	once   sync.Once

	mu     sync.Mutex
	woken  chan struct{}       // closed by the next wake
	end    eventstore.Position // of this process's appends
	others uint64              // number of wakes for appends of which the end is not known
}

func newWaker(config *pgx.ConnConfig, log *slog.Logger) *waker {
	return &waker{config: named(config, "listener"), log: log, woken: make(chan struct{}), others: 1}
}

// next returns a channel that the next wake closes, the end of this process's appends and the number of wakes for
// others.
func (w *waker) next() (woken <-chan struct{}, end eventstore.Position, others uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.woken, w.end, w.others
}

// wake wakes the subscriptions after an append of this process that ended at a position, or, if that is 0, after
// others.
func (w *waker) wake(end eventstore.Position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if end == 0 {
		w.others++
	}
	w.end = max(w.end, end)
	close(w.woken)
	w.woken = make(chan struct{})
}

// listen wakes the subscriptions until the context is done, except for notifications of this process's own session.
func (w *waker) listen(ctx context.Context, own *atomic.Uint32) {
	Listener{
		Config: w.config, Channel: channel,
		Ignore:     func(session uint32) bool { return session == own.Load() },
		OnListen:   func() { w.wake(0) }, // for earlier appends
		OnNotified: func() { w.wake(0) },
		OnLost: func(err error) {
			w.log.Warn("LISTEN connection lost, polling and reconnecting", "error", err)
		},
	}.Run(ctx)
}

// Listener listens to a channel, and reconnects when the connection fails.
//
// Any role of the database can notify any channel, which cannot be prevented. So the payload of a notification is
// discarded, and several of them count as one.
type Listener struct {
	Config     *pgx.ConnConfig
	Channel    string
	Poll       time.Duration             // interval at which OnNotified is called without notifications; 0: never
	Ignore     func(session uint32) bool // whether the notifications of a session are ignored; nil: none are
	OnListen   func()                    // called when listening starts; earlier notifications were missed
	OnNotified func()                    // called after notifications, at most once in 20 ms
	OnLost     func(error)               // called with the error when the connection is lost, once per outage
}

// Run listens until the context is done.
func (l Listener) Run(ctx context.Context) {
	backoff := eventstore.Backoff{Shortest: 50 * time.Millisecond, Longest: 2 * time.Second}
	for {
		connected, err := l.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if connected {
			backoff.Reset()
		}
		if !backoff.Failing() {
			l.OnLost(err)
		}
		if backoff.Wait(ctx) != nil {
			return
		}
	}
}

// listen listens until the connection fails. Connected reports whether it was established.
func (l Listener) listen(ctx context.Context) (connected bool, err error) {
	notified := false
	config := l.Config.Copy()
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) {
		notified = notified || l.Ignore == nil || !l.Ignore(n.PID)
	}
	conn, err := migration.Connect(ctx, config)
	if err != nil {
		return false, err
	}
	defer closeConn(conn)
	if _, err := conn.Exec(ctx, `LISTEN `+l.Channel); err != nil {
		return false, err
	}
	l.OnListen()
	for resume := time.Now(); ; resume = time.Now().Add(notifyInterval) {
		poll := never
		if l.Poll > 0 {
			poll = time.Now().Add(l.Poll)
		}
		for !notified && time.Now().Before(poll) {
			if err := receive(ctx, conn, poll); err != nil {
				return true, err
			}
		}
		for time.Now().Before(resume) {
			if err := receive(ctx, conn, resume); err != nil {
				return true, err
			}
		}
		notified = false
		l.OnNotified()
	}
}

var never = time.Unix(1<<40, 0)

// receive waits for a notification, which the connection's OnNotification handles, or until a time.
func receive(ctx context.Context, conn *pgx.Conn, until time.Time) error {
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	err := conn.PgConn().WaitForNotification(waiting)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil && !conn.IsClosed() {
		return nil
	}
	return err
}
