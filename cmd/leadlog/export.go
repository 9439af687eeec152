package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/export"
)

type exportCommand struct {
	service.SealedDatabase `embed:""`

	What    string  `arg:"" enum:"sources,touches,leads,tokens,events" help:"List: sources (the source history), touches (arrivals, and visits with campaign parameters), leads (their present state), tokens (the events of API tokens) or events (the change feed)."`
	Account string  `required:"" placeholder:"ID" help:"Account to export."`
	Since   string  `placeholder:"TIME" help:"Inclusive start time, such as 2026-01-31T00:00:00Z: of the first arrival, creation or event."`
	Until   string  `placeholder:"TIME" help:"Exclusive end time."`
	Types   string  `placeholder:"TYPES" help:"With events: only these types, separated by commas, such as lead.*,token.created."`
	Include string  `enum:",visits" default:"" placeholder:"visits" help:"With touches: also visits."`
	AsOf    string  `placeholder:"TIME|DAY|POSITION" help:"With touches: as of a time, the end of a day (UTC) or a log position."`
	Format  string  `enum:"csv,ndjson,parquet" default:"csv" help:"Format: csv, ndjson or parquet."`
	Plain   bool    `help:"With csv: no apostrophe before a cell that a spreadsheet could read as a formula, such as +91 98765 43210. For programs."`
	Head    *string `placeholder:"FILE" help:"With tokens and --format ndjson: also write the signed checkpoint of the account's tree, with which the export can be verified."`

	signingFlags `embed:""`
}

// requireAccount refuses the id of an account that does not exist, most likely mistyped.
func requireAccount(ctx context.Context, store eventstore.Store, id string) error {
	known, _, err := eventstore.Load(ctx, store, event.AccountStream(id), account.Evolve)
	if err != nil || known.Provisioned {
		return err
	}
	return noAccount(id)
}

func noAccount(id string) error {
	var check cli.Checker
	check.Refuse("--account", id, "an account that exists")
	return check.Err()
}

// exportedViews are the views that the exports read.
var exportedViews = map[string]string{
	"sources": query.TouchView, "touches": query.TouchView, "leads": query.LeadView, "tokens": query.TokenEventView,
}

// Run is leadlog export.
func (e *exportCommand) Run(ctx context.Context, c cli.Output) error {
	var check cli.Checker
	since, until := moment(&check, "--since", e.Since), moment(&check, "--until", e.Until)
	if e.Head != nil && (e.What != "tokens" || e.Format != "ndjson" || e.Since != "" || e.Until != "") {
		check.Refuse("--head", *e.Head,
			"given with a whole export of tokens as ndjson: a checkpoint does not cover less")
	} else if e.Head != nil {
		check.File("--head", *e.Head)
	}
	format := export.Format(e.Format)
	if e.Plain && format != export.CSV {
		check.Refuse("--plain", "true", "given with --format csv")
	} else if e.Plain {
		format = export.PlainCSV
	}
	types, understood := query.FeedTypes(event.FeedKinds(), e.types())
	if !understood || e.Types != "" && e.What != "events" {
		check.Refuse("--types", e.Types, "given with events: types such as lead.created or lead.*, separated by commas")
	}
	for name, value := range map[string]string{"--include": e.Include, "--as-of": e.AsOf} {
		if value != "" && e.What != "touches" {
			check.Refuse(name, value, "given with touches")
		}
	}
	if check.Err() != nil {
		return check.Err()
	}
	service.CollectLess(0)
	h, err := e.OpenStores(ctx, c)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := requireAccount(ctx, h.Store, e.Account); err != nil {
		return err
	}
	reader := query.New(h.Pool, h.Store, query.WithErasedForm(sealed.AsErased))
	if view, reads := exportedViews[e.What]; reads { // other lists are read from the log
		if err := upToDate(ctx, h, reader, view); err != nil {
			return err
		}
	}
	position, err := asOf(ctx, reader, e.AsOf)
	if err != nil {
		return err
	}
	record := func(int, bool) error { return nil }
	if e.What != "tokens" { // which has no personal data
		if record, err = recordExport(ctx, h, e); err != nil {
			return err
		}
	}
	var written int
	switch e.What {
	case "sources":
		filter := query.SourceFilter{Since: since, Until: until}
		written, err = exported(c, format, export.Sources(), reader.SourcesAll(ctx, e.Account, filter))
	case "touches":
		filter := query.TouchFilter{Since: since, Until: until, Visits: e.Include == "visits", AsOf: position}
		written, err = exported(c, format, export.Touches(), reader.TouchesAll(ctx, e.Account, filter))
	case "leads":
		filter := query.LeadFilter{CreatedSince: since, CreatedUntil: until}
		written, err = exported(c, format, export.Leads(), reader.LeadsAll(ctx, e.Account, filter))
	case "tokens":
		filter := query.AuditFilter{Since: since, Until: until}
		written, err = exported(c, format, export.TokenEvents(), reader.AuditTokensAll(ctx, e.Account, filter))
	case "events":
		written, err = exported(c, format, export.Events(),
			within(reader.FeedAll(ctx, e.Account, types, 0), since, until))
	}
	if err = errors.Join(err, record(written, err == nil)); err != nil || e.Head == nil {
		return err
	}
	return e.signExport(ctx, c, h, reader, int64(written))
}

// recordExport records on the log that an export begins. The function that it returns records how the export ended.
func recordExport(
	ctx context.Context, h *service.Stores, e *exportCommand,
) (end func(rows int, complete bool) error, err error) {
	if err := projection.CheckLog(ctx, h.Pool, h.Store); err != nil {
		return nil, err
	}
	handlers := command.NewHandlers(command.Options{Store: h.Store, Log: h.Log})
	caller := command.Caller{
		Account: e.Account, Actor: "system:export", Credential: "system:export", RequestID: ulid.Make().String(),
	}
	begun, err := handlers.BeginExport(ctx, caller, e.What, e.Format, map[string]string{
		"since": e.Since, "until": e.Until, "types": e.Types, "include": e.Include, "asOf": e.AsOf,
	})
	return func(rows int, complete bool) error {
		const timeout = 5 * time.Second
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		return handlers.EndExport(ctx, begun, rows, complete)
	}, err
}

// types are the patterns that select events; none select all.
func (e *exportCommand) types() []string {
	if e.Types == "" {
		return nil
	}
	return strings.Split(e.Types, ",")
}

// within yields the events of a span of time. Their times are those of several processes, so that an event may be
// earlier than the one before it.
func within(events iter.Seq2[query.FeedEvent, error], since, until time.Time) iter.Seq2[query.FeedEvent, error] {
	return func(yield func(query.FeedEvent, error) bool) {
		for e, err := range events {
			at := time.Time(e.At)
			if err == nil && (at.Before(since) || !until.IsZero() && !at.Before(until)) {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// asOf returns the position of a time or position that a flag gives; the present when it is not given.
func asOf(ctx context.Context, reader *query.Reader, value string) (eventstore.Position, error) {
	var check cli.Checker
	given, err := query.ParseAsOf(value)
	position := eventstore.Position(0)
	if err == nil {
		position, err = reader.PositionAsOf(ctx, given)
	}
	if errors.Is(err, query.ErrAsOf) {
		check.Refuse("--as-of", value,
			"a time such as 2006-01-02T15:04:05Z, a day or a position, and not beyond the end of the log")
		return 0, check.Err()
	}
	return position, err
}

// upToDate returns when a view has everything that is on the log: an export of a view that is behind would silently
// lack the latest rows. When no service is running, this program updates the view. It returns query.ErrBehind when the
// view no longer moves.
func upToDate(ctx context.Context, h *service.Stores, reader *query.Reader, view string) error {
	head, err := h.Store.Head(ctx)
	if err != nil {
		return err
	}
	if at, err := reader.Position(ctx, view); err != nil || at >= head {
		return err
	}
	// A role that only reads may not see leases, and waits for a service too. That the database is away, the wait
	// reports as well.
	if running, unseen := reader.Running(ctx, view); running || unseen != nil {
		if err := reader.WaitFor(ctx, head, view); !errors.Is(err, query.ErrBehind) {
			return err
		}
	}
	stop, err := h.RunView(ctx, view)
	if err != nil {
		return err
	}
	defer stop()
	for reached := eventstore.Position(0); ; {
		if err := reader.WaitFor(ctx, head, view); !errors.Is(err, query.ErrBehind) {
			return err
		}
		at, err := reader.Position(ctx, view)
		if err != nil {
			return err
		}
		if at == reached {
			return query.ErrBehind
		}
		reached = at
	}
}

// exported writes items to stdout and its progress to stderr. It returns how many it wrote.
func exported[T any](
	c cli.Output, format export.Format, sheet export.Sheet[T], items iter.Seq2[T, error],
) (written int, err error) {
	out := bufio.NewWriter(c.Out)
	shown := cli.NewProgress(c.Err, "export")
	counted := func(yield func(T, error) bool) {
		var n uint64
		for item, err := range items {
			if !yield(item, err) {
				return
			}
			n++
			shown.Show(n, 0, "rows")
		}
	}
	written, err = sheet.Write(out, format, counted, func() {})
	if err != nil {
		return written, fmt.Errorf("after %d rows: %w", written, err)
	}
	if err := out.Flush(); err != nil {
		return written, fmt.Errorf("after %d rows: %w", written, err)
	}
	shown.End("%d rows", written)
	return written, nil
}

// moment parses the time that a flag gives; the zero time when the flag is not given.
func moment(c *cli.Checker, name, value string) time.Time {
	if value == "" {
		return time.Time{}
	}
	return c.Time(name, value, "a time such as 2006-01-02T15:04:05Z")
}

// signExport writes the signed checkpoint of the account's tree at the size of the export.
func (e *exportCommand) signExport(
	ctx context.Context, c cli.Output, h *service.Stores, reader *query.Reader, events int64,
) error {
	seed, err := e.TreeSeed(e.TreeKey)
	if err != nil {
		return err
	}
	signer, err := e.signer(ctx, seed, h.Store)
	if err != nil {
		return err
	}
	tree, err := reader.TreeHead(ctx, e.Account, events)
	if err != nil {
		return err
	}
	return writeCheckpoint(c, *e.Head, signer, e.Account, tree)
}
