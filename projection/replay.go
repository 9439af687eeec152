package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/forget"
	"github.com/leadlog/leadlog/projection/schema"
)

var (
	// ErrReplayRuns says that another process is building this view.
	ErrReplayRuns = errors.New("another replay of this view is running")

	// ErrSchemaTaken says that a schema contains something other than the copy that is to be built there.
	ErrSchemaTaken = errors.New("the schema is there already, and holds something else")

	// ErrBuiltUpon says that the table which a copy is to replace cannot be dropped.
	ErrBuiltUpon = errors.New("something else in the database is built upon the live table")

	// ErrMigrated says that the live table was migrated after the copy was begun, and the copy would undo this.
	ErrMigrated = errors.New("the tables of views were migrated meanwhile; run leadlog replay again, of the version that migrated them")

	// ErrBeyondLog says that a view is to be built as of a position that the log does not have.
	ErrBeyondLog = errors.New("the log ends before this position")
)

// Until is a moment of the log. The zero value is its present end.
type Until struct {
	Position eventstore.Position // the last that counts; 0 for any
	Time     time.Time           // what happened later does not count; the zero time for any
}

func (u Until) String() string {
	switch {
	case u.Position > 0:
		return fmt.Sprintf("position %d", u.Position)
	case !u.Time.IsZero():
		return u.Time.UTC().Format(time.RFC3339Nano)
	}
	return "the end of the log"
}

// Replay builds views anew from the log, each in a schema of its own beside the live one, which is served and kept up to date
// meanwhile. The log is read once for all of them.
//
// It can be interrupted at any time: each copy has a checkpoint, and the next Replay continues from there. A copy that was begun
// under other migrations or by another version of the projector is dropped.
type Replay struct {
	URL        string // of the read models' database
	Store      eventstore.Store
	Projectors []Projector
	Live       string // schema of the views that are served; empty means schema.Views
	Into       string // schema of copies that stay there; empty: each copy replaces the live view
	Until      Until  // only with Into

	// Progress is called with how far all of the copies are, first with how far an earlier attempt had come.
	Progress func(done, end eventstore.Position)
	// Built is called with each view that is done, and the position that it is as of.
	Built func(p Projector, position eventstore.Position)

	indexing chan struct{} // holds one for each index that is being built
	polite   int           // attempts to replace a view before sessions that read it are ended; 0: swapPolite
}

// Run builds the views. When the context has ended, its error is in the one returned, whichever statement it cut off.
func (r Replay) Run(ctx context.Context) error {
	err := r.withDefaults().run(ctx)
	if ended := ctx.Err(); err != nil && ended != nil {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return schema.Unavailable(err)
}

func (r Replay) run(ctx context.Context) error {
	end, err := r.end(ctx) // before there is a schema, which would stay when the log does not reach that far
	if err != nil {
		return err
	}
	builders, err := r.open(ctx, replaying)
	defer closeAll(ctx, builders)
	if err != nil {
		return err
	}
	for _, b := range builders {
		b.end = end
	}
	if err := r.build(ctx, builders); err != nil {
		return err
	}
	var telling sync.Mutex
	err = atOnce(ctx, builders, func(ctx context.Context, b *builder) error {
		position, err := b.settle(ctx)
		if err != nil {
			return err
		}
		telling.Lock()
		defer telling.Unlock()
		r.Built(b.projector, position)
		return nil
	})
	if err != nil || r.Into == "" || len(builders) == 0 {
		return err
	}
	if err := forget.SweepErased(ctx, r.Store, builders[0].conn); err != nil {
		return err
	}
	return openAlike(ctx, builders[0].conn, r.Live, r.Into)
}

func (r Replay) withDefaults() Replay {
	if r.Live == "" {
		r.Live = schema.Views
	}
	if r.Progress == nil {
		r.Progress = func(_, _ eventstore.Position) {}
	}
	if r.Built == nil {
		r.Built = func(Projector, eventstore.Position) {}
	}
	r.polite = cmp.Or(r.polite, swapPolite)
	r.indexing = make(chan struct{}, indexesAtOnce)
	return r
}

// What copies are for. Their schemas are named after it, and their sessions.
const (
	replaying = "replay"
	verifying = "verify"
)

// ReplayLease is the lease that a replay of a projector's live view has.
func ReplayLease(projector string) string {
	return schema.ReplayLease(replaying+"_"+projector, projector)
}

// open makes the copies, or finds them as an earlier attempt left them. Those that are open are returned with an error too.
func (r Replay) open(ctx context.Context, task string) (builders []*builder, err error) {
	for _, p := range r.Projectors {
		into := r.Into
		if into == "" {
			into = task + "_" + p.Name()
		}
		b, err := r.newBuilder(ctx, p, task, into)
		if err != nil {
			return builders, err
		}
		builders = append(builders, b)
		if err := b.openCopy(ctx); err != nil {
			return builders, err
		}
	}
	return builders, nil
}

func closeAll(ctx context.Context, builders []*builder) {
	for _, b := range builders {
		closeConn(ctx, b.conn)
	}
}

// end returns the position up to which the log is folded.
func (r Replay) end(ctx context.Context) (eventstore.Position, error) {
	head, err := r.Store.Head(ctx)
	if err != nil || r.Until.Position == 0 {
		return head, err
	}
	if r.Until.Position > head {
		return 0, fmt.Errorf("%w (it ends at %d)", ErrBeyondLog, head)
	}
	return r.Until.Position, nil
}

// build folds what the copies do not have yet, each up to its end. They work side by side, and none runs further ahead
// of another than two batches.
func (r Replay) build(ctx context.Context, builders []*builder) error {
	whole := r.missing(builders)
	if whole.after >= whole.end {
		return nil
	}
	r.Progress(whole.after, whole.end)
	group, ctx := errgroup.WithContext(ctx)
	lanes := make([]chan batch, len(builders))
	for i, b := range builders {
		lanes[i] = make(chan batch)
		b.from = b.checkpoint.position
		group.Go(func() error { return b.follow(ctx, lanes[i]) })
	}
	group.Go(func() error {
		defer func() {
			for _, lane := range lanes {
				close(lane)
			}
		}()
		var done, next eventstore.Position // by all: who takes a batch has prepared the one before, and written those before that
		return readLog(ctx, r.Store, whole, 0, func(ctx context.Context, b batch) error {
			for _, lane := range lanes {
				if err := send(ctx, b, lane); err != nil {
					return err
				}
			}
			if done > 0 {
				r.Progress(done, whole.end)
			}
			done, next = next, b.position
			return nil
		})
	})
	if err := group.Wait(); err != nil {
		return err
	}
	r.Progress(whole.end, whole.end)
	return nil
}

// missing returns the part of the log that at least one copy does not have yet.
func (r Replay) missing(builders []*builder) logRange {
	s := logRange{filter: union(r.Projectors)}
	for _, b := range builders {
		s.end = max(s.end, b.end)
	}
	s.after = s.end
	for _, b := range builders {
		if b.checkpoint.position < b.end {
			s.after = min(s.after, b.checkpoint.position)
		}
	}
	return s
}

// settle finishes a copy, and either puts it in the place of the live view or, if it stays beside it, grants the same roles access.
func (b *builder) settle(ctx context.Context) (eventstore.Position, error) {
	if err := b.finishCopy(ctx); err != nil {
		return 0, err
	}
	if b.Into == "" {
		return b.replace(ctx)
	}
	for _, table := range b.projector.Tables() {
		if err := grantAlike(ctx, b.conn, b.Live, b.schema, table); err != nil {
			return 0, err
		}
	}
	return b.checkpoint.position, nil
}

func atOnce(ctx context.Context, builders []*builder, do func(context.Context, *builder) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, b := range builders {
		group.Go(func() error {
			if err := do(ctx, b); err != nil {
				return fmt.Errorf("view %s: %w", b.projector.Name(), err)
			}
			return nil
		})
	}
	return group.Wait()
}
