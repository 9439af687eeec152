package postgres

import (
	"context"
	"time"
)

const (
	// notifyRest is the least time between two notifications of a process. Each wakes every session of the database that
	// listens to anything, including this process's own: with one caller at a time, a quarter of the cost of a capture.
	notifyRest = 5 * time.Millisecond
	// notifyRetry is how long to wait after a notification failed. By then the subscriptions have polled.
	notifyRetry = 250 * time.Millisecond
)

// notification tells other processes that something was appended. It is sent with the batch, unless the previous one was sent only
// just before: then the next batch sends it, or the writer does when no batch comes.
type notification struct {
	owed bool
	next time.Time // not before
}

// due reports whether a batch of so many events must send the notification. It stays due until sent is called, because a batch
// whose answer was lost may be on the log without anybody having been notified.
func (n *notification) due(events int) bool {
	n.owed = n.owed || events > 0
	return n.owed && !time.Now().Before(n.next)
}

func (n *notification) sent() { n.owed, n.next = false, time.Now().Add(notifyRest) }

// notify sends the notification without a batch.
func (w *writer) notify() {
	err := w.ready()
	if err == nil {
		err = w.conn.PgConn().Exec(context.Background(), `NOTIFY leadlog_log`).Close()
	}
	if err != nil {
		w.disconnect()
		w.notification.next = time.Now().Add(notifyRetry)
		return
	}
	w.notification.sent()
}
