package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leadlog/leadlog/eventstore"
)

// commit writes a batch and answers its callers. After an error that may pass it tries again, as long as one of them waits; if the
// earlier attempt was written after all, it is recognised.
func (w *writer) commit(batch []*request) {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		began := time.Now()
		outcomes, err := w.send(batch)
		switch cause := causeOf(err); {
		case err == nil:
			w.succeeded()
			if w.watch != nil {
				w.watch(Batch{Appends: len(batch), Events: w.columns.arrays[eventID].n, Took: time.Since(began)})
			}
			for i, r := range batch {
				r.done <- outcomes[i]
			}
			return
		case cause == theData && len(batch) == 1:
			batch[0].done <- outcome{err: fmt.Errorf("the database refuses the append: %w", err)}
			return
		case cause == theData:
			w.commit(batch[:len(batch)/2])
			w.commit(batch[len(batch)/2:])
			return
		case cause == theSetup:
			w.log.Error("the log cannot be written", "error", err)
			for _, r := range batch {
				r.done <- outcome{err: unavailable(context.Background(), err)}
			}
			return
		}
		w.failed(err)
		w.wrote(written{}, false) // for all that is known
		time.Sleep(pause)
		if abandoned(batch) {
			return
		}
	}
}

// failed and succeeded log the first failure and the first success after it, and not each attempt.
func (w *writer) failed(err error) {
	if w.failure.Swap(&err) == nil {
		w.log.Warn("the log cannot be written for now; trying on", "error", err)
	}
}

func (w *writer) succeeded() {
	if w.failure.Swap(nil) != nil {
		w.log.Info("the log is written again")
	}
}

func abandoned(batch []*request) bool {
	for _, r := range batch {
		if !r.abandoned() {
			return false
		}
	}
	return true
}

// send makes one attempt. It keeps the connection only when the database has answered with a result or refused
// the data.
func (w *writer) send(batch []*request) ([]outcome, error) {
	if err := w.ready(); err != nil {
		return nil, err
	}
	w.columns.fill(batch)
	a, err := w.write(w.replicas.position())
	if !waited(w.conn.PgConn()) && err == nil {
		err = errCancelledWait // sent again, it is waited for
	}
	if err != nil {
		if causeOf(err) != theData {
			w.disconnect()
		}
		return nil, err
	}
	if w.columns.arrays[eventID].n > 0 {
		w.appended()
	}
	stored, whole := w.columns.written(batch, a)
	w.replicas.committed(stored.end)
	w.wrote(stored, whole)
	return w.columns.outcomes(batch, a), nil
}

// ready has a connection, whose deadline bounds what is done next. A context would take a goroutine each time, which costs as
// much as an empty query.
func (w *writer) ready() error {
	if w.conn == nil {
		ctx, cancel := context.WithTimeout(context.Background(), w.patience)
		defer cancel()
		if err := w.connect(ctx); err != nil {
			return err
		}
	}
	return w.conn.PgConn().Conn().SetDeadline(time.Now().Add(w.patience))
}

func (w *writer) connect(ctx context.Context) (err error) {
	if w.conn, err = connectWithoutCancel(ctx, w.config); err != nil {
		return err
	}
	w.buffer = new(sendBuffer)
	if err = w.connected(ctx, w.conn); err == nil {
		w.prepared, err = w.conn.PgConn().Prepare(ctx, "append", callAppend, nil)
	}
	if err == nil {
		w.whole, err = w.conn.PgConn().Prepare(ctx, "append whole", callAppendWhole, nil)
	}
	if err != nil {
		w.disconnect()
	}
	return err
}

// connectWithoutCancel makes a connection that sends no cancel request when it is closed during a call. Such a request would end
// the wait for a synchronous standby, and show events that no standby has. The server ends other calls by its statement timeout.
func connectWithoutCancel(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	config = config.Copy()
	dial := config.DialFunc
	var connected atomic.Bool
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if connected.Load() {
			return nil, errors.New("no cancel requests")
		}
		return dial(ctx, network, address)
	}
	defer connected.Store(true)
	return pgx.ConnectConfig(ctx, config)
}

func (w *writer) disconnect() {
	if w.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = w.conn.PgConn().Conn().SetDeadline(time.Time{}) // that of the last call
	_ = w.conn.Close(ctx)                               // broken already, or no longer needed
	w.conn = nil
}

// cause classifies the errors of the database.
type cause int

const (
	theMoment cause = iota // the connection, the server or other sessions: it may pass, and the outcome is not known
	theData                // what one append carries
	theSetup               // the schema, permissions or what the log has lost: trying again does not help
)

func causeOf(err error) cause {
	if errors.Is(err, eventstore.ErrDiverged) {
		return theSetup
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || len(pg.Code) < 2 {
		return theMoment
	}
	switch pg.Code[:2] {
	case "22", "23", "54":
		return theData
	case "42", "3F":
		return theSetup
	}
	return theMoment
}
