package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/command/attribution"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/report"
)

type reportCommand struct {
	Attribution reportAttributionCommand `cmd:"" help:"Attribute conversions to touches, as of the log, with a proof: leadlog verify FILE computes the report again."`
	Diff        reportDiffCommand        `cmd:"" help:"Compare two reports, and name the events behind each row that changed."`
}

type reportAttributionCommand struct {
	service.SealedDatabase `embed:""`

	Account  string `required:"" placeholder:"ID" help:"Account to report on."`
	Model    string `default:"last" enum:"first,last,linear,position,time_decay" help:"Model that divides a conversion: first, last, linear, position or time_decay."`
	By       string `default:"source" enum:"source,medium,campaign,utmSource,intake,credential" help:"Key of the rows: source, medium, campaign, utmSource, intake or credential."`
	Since    string `placeholder:"TIME" help:"Only conversions at this time or later, such as 2026-01-31T00:00:00Z."`
	Until    string `placeholder:"TIME" help:"Only conversions before this time."`
	Window   string `default:"90d" help:"Maximum time from a touch to a conversion, from 1d to 365d."`
	HalfLife string `default:"7d" help:"Half-life of the model time_decay."`
	Include  string `placeholder:"visits" help:"Also count visits with campaign parameters as touches."`
	Cost     bool   `help:"Add the advertising costs of each row, of the days (UTC) that begin from --since to before --until."`
	AsOf     string `placeholder:"TIME|DAY|POSITION" help:"As of a time, the end of a day (UTC) or a log position: ignore events that were recorded later. Default: the end of the log."`
	Out      string `required:"" placeholder:"FILE" help:"File to write the report to, as JSON."`
}

// parameters checks the flags.
func (r *reportAttributionCommand) parameters() (p report.Parameters, asOf query.AsOf, err error) {
	var check cli.Checker
	p.Account = r.Account
	p.Model, p.By = attribution.Model(r.Model), attribution.Key(r.By)
	p.Since, p.Until = moment(&check, "--since", r.Since), moment(&check, "--until", r.Until)
	p.Window = span(&check, "--window", r.Window, attribution.Day, attribution.MaxWindow)
	p.HalfLife = span(&check, "--half-life", r.HalfLife, attribution.MinHalfLife, attribution.MaxHalfLife)
	p.Cost = r.Cost
	if p.Visits = r.Include == "visits"; r.Include != "" && !p.Visits {
		check.Refuse("--include", r.Include, "visits")
	}
	if asOf, err = query.ParseAsOf(r.AsOf); err != nil {
		check.Refuse("--as-of", r.AsOf, "a time such as 2006-01-02T15:04:05Z, a day or a position")
	}
	check.File("--out", r.Out)
	return p, asOf, check.Err()
}

func span(c *cli.Checker, name, value string, least, most time.Duration) time.Duration {
	d, err := attribution.ParseDuration(value)
	if err != nil || d < least || d > most {
		c.Refuse(name, value,
			"days or hours, from "+attribution.FormatDuration(least)+" to "+attribution.FormatDuration(most))
	}
	return d
}

// Run is leadlog report attribution.
func (r *reportAttributionCommand) Run(ctx context.Context, c cli.Output) error {
	p, asOf, err := r.parameters()
	if err != nil {
		return err
	}
	service.CollectLess(0)
	h, err := r.OpenStores(ctx, c)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := requireAccount(ctx, h.Store, r.Account); err != nil {
		return err
	}
	if p.AsOf, err = r.position(ctx, h, asOf); err != nil {
		return err
	}
	shown := cli.NewProgress(c.Err, "report")
	made, err := reading(h, shown).Make(ctx, report.New(p))
	shown.Clear()
	if err != nil {
		return err
	}
	text, err := made.Encode()
	if err != nil {
		return err
	}
	if err := cli.WriteFile(r.Out, text); err != nil {
		return err
	}
	fmt.Fprintf(c.Err, "%s: %d rows, %s conversions, value %s, as of position %d\n", r.Out, len(made.Rows),
		made.Total.Conversions, made.Total.Value, made.AsOf)
	return nil
}

// position returns the position that the report is as of. The view knows which one a time is.
func (r *reportAttributionCommand) position(
	ctx context.Context, h *service.Stores, asOf query.AsOf,
) (eventstore.Position, error) {
	reader := query.New(h.Pool, h.Store)
	if err := upToDate(ctx, h, reader, query.TouchView); err != nil {
		return 0, err
	}
	position, err := reader.PositionAsOf(ctx, asOf)
	if errors.Is(err, query.ErrAsOf) {
		return 0, cli.Usagef("--as-of=%q: must not be beyond the end of the log", r.AsOf)
	}
	return position, err
}

// reading reads the log with its progress on stderr.
func reading(h *service.Stores, shown *cli.Progress) report.Reading {
	return report.Reading{
		Store:    h.Store.Forensic(),
		Progress: func(done, end eventstore.Position) { shown.Show(uint64(done), uint64(end), "positions") },
	}
}

// readReport reads a report's file. A file that is not a report is a usage error.
func readReport(file string) (report.File, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return report.File{}, err
	}
	f, err := report.Parse(text)
	if err != nil {
		return f, cli.Usagef("%s: %v", file, err)
	}
	return f, nil
}

type reportDiffCommand struct {
	service.SealedDatabase `embed:""`

	Before string `arg:"" type:"existingfile" help:"A report."`
	After  string `arg:"" type:"existingfile" help:"Another report of the same account with the same key of rows."`
}

var errReportsDiffer = errors.New("the reports differ")

// Run is leadlog report diff.
func (r *reportDiffCommand) Run(ctx context.Context, c cli.Output) error {
	before, err := readReport(r.Before)
	if err != nil {
		return err
	}
	after, err := readReport(r.After)
	if err != nil {
		return err
	}
	if err := report.Comparable(before, after); err != nil {
		return cli.Usagef("%v", err)
	}
	if slices.Equal(before.Rows, after.Rows) && before.Total == after.Total {
		fmt.Fprintln(c.Out, "the reports are equal")
		return nil
	}
	service.CollectLess(0)
	h, err := r.OpenStores(ctx, c)
	if err != nil {
		return err
	}
	defer h.Close()
	shown := cli.NewProgress(c.Err, "diff")
	changes, err := reading(h, shown).Explain(ctx, before, after)
	shown.Clear()
	if err != nil {
		return err
	}
	if differ := before.Parameters(after); len(differ) > 0 {
		fmt.Fprintln(c.Out, "parameters: "+strings.Join(differ, ", "))
	}
	for _, change := range changes {
		fmt.Fprintln(c.Out, change)
		for _, cause := range change.Events {
			fmt.Fprintln(c.Out, "  "+cause.String())
		}
	}
	return errReportsDiffer
}
