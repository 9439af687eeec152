package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/spendfile"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/draft"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
)

type spendCommand struct {
	Import spendImportCommand `cmd:"" help:"Set the costs of a file: an export of Meta Ads Manager, Google Ads or another platform, or a table of days, keys and amounts."`
}

type spendImportCommand struct {
	service.SealedDatabase `embed:""`

	Path    string            `arg:"" name:"file" placeholder:"FILE" help:"CSV with a header, also in UTF-16 or compressed with gzip."`
	Account string            `required:"" placeholder:"ID" help:"Account that paid."`
	DryRun  bool              `help:"Print what the file has and what would change, and write nothing."`
	Replace bool              `help:"Set what the days of the file cost by other keys of the same source to 0, such as by the old name of a campaign. Without a source, of the same utmSource."`
	Map     map[string]string `mapsep:"none" placeholder:"COLUMN=FIELD" help:"Field of a column: day, start, end, source, utmSource, utmMedium, utmCampaign, amount or currency, or nothing to leave it out. May be repeated."`
	Set     map[string]string `mapsep:"none" placeholder:"FIELD=VALUE" help:"Value of source, utmSource, utmMedium or utmCampaign in all rows, such as utmMedium=cpc. An empty one removes it. May be repeated."`
	Dates   string            `enum:",day-first,month-first" default:"" placeholder:"ORDER" help:"day-first or month-first: how to read dates such as 03/04/2026. Default: detected from all dates of the file."`
}

// maxSpendFile is the maximum size of a file of costs, unpacked: it is read at once.
const maxSpendFile = 256 << 20 // bytes

// Run is leadlog spend import. The file is set as a whole: if a row is wrong, nothing is.
func (s *spendImportCommand) Run(ctx context.Context, c cli.Output) error {
	file, err := os.Open(s.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	h, err := s.OpenStores(ctx, c)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := projection.CheckLog(ctx, h.Pool, h.Store); err != nil {
		return err
	}
	settings, _, err := eventstore.Load(ctx, h.Store, event.AccountStream(s.Account), account.Evolve)
	if err != nil {
		return err
	}
	if !settings.Provisioned {
		return noAccount(s.Account)
	}
	service.CollectLess(0)
	found, err := spendfile.Read(file, spendfile.Options{
		Currency: settings.Currency, Map: s.Map, Set: s.Set, Dates: s.Dates, MaxBytes: maxSpendFile,
	})
	if err != nil {
		return s.refused(c, err)
	}
	describeSpend(c.Err, found, settings.Currency)
	var target eventstore.Store = h.Store
	if s.DryRun {
		target = draft.On(h.Store)
	}
	handlers := command.NewHandlers(command.Options{Store: target, Log: h.Log})
	set, err := handlers.SetSpend(ctx, command.SetSpend{
		Caller: command.Caller{Account: s.Account, Actor: command.ImportActor}, Rows: found.Rows, Replace: s.Replace,
	})
	if err != nil {
		return fmt.Errorf("%w; run it again to set what is not set", err)
	}
	s.end(c, found, set, settings.Currency)
	return nil
}

// errSpendRows ends an import of a file with wrong rows.
var errSpendRows = errors.New("nothing was set")

func (s *spendImportCommand) refused(c cli.Output, err error) error {
	var lines *spendfile.Errors
	if errors.As(err, &lines) {
		for _, line := range lines.First {
			fmt.Fprintln(c.Err, cli.Printable(line.Error()))
		}
		return fmt.Errorf("%s: %d wrong lines: %w", s.Path, lines.Count, errSpendRows)
	}
	if option, is := errors.AsType[*spendfile.OptionError](err); is {
		return cli.Usagef("%s: %w (--map, --set and --dates say how to read it)", s.Path, option)
	}
	return fmt.Errorf("%s: %w", s.Path, err)
}

// describeSpend prints how a file was read.
func describeSpend(w io.Writer, f spendfile.File, currency string) {
	if f.Platform != "" {
		fmt.Fprintf(w, "export of %s, ", f.Platform)
	}
	fmt.Fprintf(w, "CSV in %s, delimiter %q, header in line %d\n", f.Encoding, f.Delimiter, f.HeaderLine)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  column\tbecomes")
	others := 0
	for _, column := range f.Columns {
		if column.Becomes == "" {
			others++
			continue
		}
		fmt.Fprintf(table, "  %s\t%s\n", cli.Printable(column.Name), column.Becomes)
	}
	_ = table.Flush() // like other prints, which may fail
	if others > 0 {
		fmt.Fprintf(w, "  (columns left out: %d)\n", others)
	}
	if n := len(f.LeftOut); n > 0 {
		fmt.Fprintf(w, "left out as totals: %s\n", spendfile.LineList(f.LeftOut, n))
	}
	if added := f.Lines - len(f.Rows); added > 0 {
		fmt.Fprintf(w, "lines added to others of their day and key: %d\n", added)
	}
	if !f.HasCurrency {
		fmt.Fprintf(w, "the file names no currency: its amounts are taken as %s\n", currency)
	}
}

// end prints the result, on stdout.
func (s *spendImportCommand) end(c cli.Output, f spendfile.File, set command.SpendOutcome, currency string) {
	if set.Others > 0 && !s.Replace {
		fmt.Fprintf(c.Err, "note: these days have %d other amounts of the same source, by keys that the file does not "+
			"have. They stay; --replace sets them to 0.\n", set.Others)
	}
	result := []string{
		fmt.Sprintf("%d days and keys", len(f.Rows)), f.Since + " to " + f.Until,
		strings.TrimSuffix(strings.TrimRight(f.Total, "0"), ".") + " " + currency,
	}
	if s.DryRun {
		result = append(result, fmt.Sprintf("%d would change; nothing was written", set.Changed))
	} else {
		result = append(result, fmt.Sprintf("%d changed", set.Changed))
	}
	fmt.Fprintln(c.Out, strings.Join(result, ", "))
}
