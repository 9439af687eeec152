package postgres

import (
	"context"
	"time"
)

const (
	// notifyRest is the least time between two notifications of a process. Each wakes every session of the database that
	// listens to anything, this process's own too: with one caller at a time, a quarter of what a capture costs.
	notifyRest = 5 * time.Millisecond
	// notifyRetry is how long to wait after a notification failed. By then whoever listens has looked by himself.
	notifyRetry = 250 * time.Millisecond
)

// notification tells other processes that something was appended. It goes with the batch, unless the one before went just
// now: then the next batch takes it along, or the writer sends it when no batch comes.
type notification struct {
	owed bool
	next time.Time // not before
}

// due says whether a batch of so many events takes the notification along. Until sent is called it stays owed: a batch whose
// answer was lost may be on the log, and nobody notified.
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
