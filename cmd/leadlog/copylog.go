package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/logcopy"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/projection/move"
	"github.com/leadlog/leadlog/projection/schema"
)

type copyLogCommand struct {
	service.Database `embed:""`

	From string `placeholder:"URL" help:"Address of the present log: postgres://…, esdb://… or kurrentdb://…. Default: that of the settings."`
	To   string `placeholder:"URL" help:"Address of the new log, which must be empty or an earlier copy of the log. Default: the database of the views."`
}

// Run is leadlog copy-log.
func (m *copyLogCommand) Run(ctx context.Context, c cli.Output) error {
	var check cli.Checker
	m.Database.Check(&check)
	for name, address := range map[string]string{"--from": m.From, "--to": m.To} {
		if address != "" {
			service.CheckLogURL(&check, name, address)
		}
	}
	if check.Err() != nil {
		return check.Err()
	}
	if m.DatabaseURL == "" && m.From != "" { // by default the views are in the database of the log
		m.DatabaseURL = firstPostgres(m.From, m.To)
	}
	log := cli.Logger(c)
	views, events, private, err := m.Database.Open(ctx, log)
	if err != nil {
		return err
	}
	defer service.StopPrivate(private, log)
	pool, err := service.OpenViews(ctx, views)
	if err != nil {
		return err
	}
	pool.Close()
	m.From, m.To = cmp.Or(service.LogAddress(m.From), events), cmp.Or(service.LogAddress(m.To), views)
	return m.move(ctx, c, views, log)
}

func (m *copyLogCommand) move(ctx context.Context, c cli.Output, views string, log *slog.Logger) error {
	from, err := service.OpenLog(ctx, m.From, log)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	defer from.Close()
	if !esdb.Understands(m.To) {
		if err := postgres.Migrate(ctx, m.To); err != nil {
			return fmt.Errorf("--to: %w", err)
		}
	}
	to, err := service.OpenLog(ctx, m.To, log)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	defer to.Close()
	var same tlog.Tree
	moved, err := move.Move{
		URL: views, From: from, To: to,
		Copy: logcopy.Copy{From: from, To: to, Progress: shownAs(c, "copy")}.Run,
		Compare: func(ctx context.Context, each func(from, to eventstore.Position) error) (err error) {
			if same, err = logcopy.Compare(ctx, from, to, shownAs(c, "compare"), each); err != nil {
				return err
			}
			return m.copyKeys(ctx, views)
		},
	}.Run(ctx)
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted; run it again to resume")
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "both logs: %d events, tree root %s\n", same.N, same.Hash)
	if !esdb.Understands(m.To) {
		service.Analyze(ctx, m.To, "log", same.N, log)
	}
	if moved == 0 {
		fmt.Fprintln(c.Out, "no view had to be moved")
		return nil
	}
	fmt.Fprintf(c.Out, "moved the checkpoints of %d views; serve from the target now\n", moved)
	service.Analyze(ctx, views, schema.Views, math.MaxInt64, log) // all rows have new positions
	return nil
}

// copyKeys copies the keys of persons to the database of the new log or, when that is not PostgreSQL, to that of the
// views. No service is running then, and the views have not moved yet.
func (m *copyLogCommand) copyKeys(ctx context.Context, views string) error {
	var pools []*pgxpool.Pool
	for _, log := range []string{m.From, m.To} {
		address := views
		if !esdb.Understands(log) {
			address = log
		}
		pool, err := service.OpenLong(ctx, address)
		if err != nil {
			return err
		}
		defer pool.Close()
		pools = append(pools, pool)
	}
	return sealed.CopyKeys(ctx, pools[0], pools[1])
}

// shownAs returns a function that shows progress on stderr under a name.
func shownAs(c cli.Output, what string) func(done, end eventstore.Position) {
	shown := cli.NewProgress(c.Err, what)
	return func(done, end eventstore.Position) { shown.Show(uint64(done), uint64(end), "positions") }
}

// firstPostgres returns the first address of PostgreSQL, or "".
func firstPostgres(addresses ...string) string {
	for _, address := range addresses {
		if address != "" && !esdb.Understands(address) {
			return address
		}
	}
	return ""
}
