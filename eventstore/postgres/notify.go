package postgres

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// notifyRest is the least time between two notifications of a process. Each wakes every session of the database that listens
	// to anything, including this process's own.
	notifyRest = 5 * time.Millisecond
	// notifyRetry is how long to wait after a notification failed. By then the subscriptions have polled.
	notifyRetry = 250 * time.Millisecond
	// notifyTime is how long a notification may take.
	notifyTime = 5 * time.Second
)

// notifier notifies other processes that this one has appended. It has a connection of its own, so that no append depends on it: every
// role of the database can delay a transaction that notifies, by notifying much at once, and make it fail, by filling the queue of
// notifications. A notification that fails makes other processes later by a poll, and no more.
type notifier struct {
	config  *pgx.ConnConfig
	conn    *pgx.Conn     // nil while disconnected
	owed    chan struct{} // holds one when something was appended since the last notification
	backend atomic.Uint32 // process id at the server of the latest connection
}

func newNotifier(config *pgx.ConnConfig) *notifier {
	config = named(config, "notifier")
	config.RuntimeParams["synchronous_commit"] = "off" // nothing of it is to be kept
	return &notifier{config: config, owed: make(chan struct{}, 1)}
}

// appended asks for a notification, and does not wait for it.
func (n *notifier) appended() {
	select {
	case n.owed <- struct{}{}:
	default:
	}
}

// run notifies until nothing more is appended.
func (n *notifier) run(ended <-chan struct{}) {
	defer n.disconnect()
	for {
		select {
		case <-n.owed:
		case <-ended:
			select {
			case <-n.owed:
				if n.conn != nil {
					_ = n.notify(time.Second)
				}
			default:
			}
			return
		}
		pause := notifyRest
		if err := n.notify(notifyTime); err != nil {
			n.appended()
			pause = notifyRetry
		}
		select {
		case <-time.After(pause):
		case <-ended:
		}
	}
}

func (n *notifier) notify(most time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	err := n.connect(ctx)
	if err == nil {
		_, err = n.conn.PgConn().Exec(ctx, `NOTIFY leadlog_log`).ReadAll()
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
	if n.conn, err = pgx.ConnectConfig(ctx, n.config); err == nil {
		n.backend.Store(n.conn.PgConn().PID())
	}
	return err
}

func (n *notifier) disconnect() {
	if n.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = n.conn.Close(ctx) // broken already, or no longer needed
	n.conn = nil
}
