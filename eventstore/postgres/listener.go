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
		s.listener.once.Do(func() { s.running.Go(func() { s.listener.run(s.closing, &s.writer.backend) }) })
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

// run listens until the context ends. Own is the session of this process that appends.
func (l *listener) run(ctx context.Context, own *atomic.Uint32) {
	Listening{
		Config: l.config, Channel: "leadlog_log",
		Began: func() { l.wake(true) }, // for what was appended while nobody listened
		Heard: func(n *pgconn.Notification) {
			if n.PID != own.Load() {
				l.wake(true)
			}
		},
		Lost: func(err error) {
			l.log.Warn("nobody tells of appends for now; looking for them, and trying on", "error", err)
		},
	}.Run(ctx)
}

// Listening hears the notifications of a channel, and connects again for as long as it takes.
type Listening struct {
	Config  *pgx.ConnConfig
	Channel string
	Began   func()                     // is called whenever listening begins: what was told before was not heard
	Heard   func(*pgconn.Notification) // is called with each notification
	Lost    func(error)                // is told why nobody listens, once until somebody does again
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
	conn, err := pgx.ConnectConfig(ctx, l.Config)
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
	for {
		heard, err := conn.WaitForNotification(ctx)
		if err != nil {
			return true, err
		}
		l.Heard(heard)
	}
}
