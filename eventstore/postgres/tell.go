package postgres

import (
	"context"
	"time"
)

const (
	// tellRest is the least time between two notifications of a process. Each wakes every session of the database that
	// listens to anything, this process's own too: with one caller at a time, a quarter of what a capture costs.
	tellRest = 5 * time.Millisecond
	// tellAgain is how long to wait when the database could not be told. By then whoever listens has looked by himself.
	tellAgain = 250 * time.Millisecond
)

// tidings is what a process has to tell others: that there is something new. A batch tells of itself, unless others were told
// just before. Then the next batch tells of both, or the writer does when none comes.
type tidings struct {
	owed bool
	next time.Time // not before
}

// with says whether a batch of so many events is to tell too. Until told is called, that stays owed: a batch whose answer was
// lost may be on the log without anybody having been told.
func (t *tidings) with(events int) (tell bool) {
	t.owed = t.owed || events > 0
	return t.owed && !time.Now().Before(t.next)
}

func (t *tidings) told() { t.owed, t.next = false, time.Now().Add(tellRest) }

// tell notifies, with no batch.
func (w *writer) tell() {
	err := w.ready()
	if err == nil {
		err = w.conn.PgConn().Exec(context.Background(), `NOTIFY leadlog_log`).Close()
	}
	if err != nil {
		w.disconnect()
		w.tidings.next = time.Now().Add(tellAgain)
		return
	}
	w.tidings.told()
}
