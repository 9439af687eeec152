// Package report makes reports that can be verified. It folds the log itself, not a view, and a report's file has the
// parameters and the hash of the log beside the rows. A report that is made again has the same bytes, unless the log
// was changed.
package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/attribution"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/query"
)

// Kind is the value of the member "report" of a file, which comes first.
const Kind = "attribution"

// File is a report with its parameters, and the head of the log that it was made of.
type File struct {
	Report   string              `json:"report"` // Kind
	Account  string              `json:"account"`
	Model    string              `json:"model"`
	By       string              `json:"by"`
	Since    *Time               `json:"since"`
	Until    *Time               `json:"until"`
	Window   Duration            `json:"window"`
	HalfLife Duration            `json:"halfLife"`
	Visits   bool                `json:"visits"`
	Cost     bool                `json:"cost,omitzero"`
	AsOf     eventstore.Position `json:"asOf"`
	Log      Log                 `json:"log"`
	Rows     []Row               `json:"rows"`
	Total    Total               `json:"total"`
}

// Row and Total are those of the answer of the API.
type (
	Row   = query.AttributionRow
	Total = query.AttributionTotal
)

// Log is the head of the tree over the whole log up to the position that a report is as of.
type Log struct {
	// id of the log that has the position: a copy in another store has other positions, but the same tree
	Epoch string `json:"epoch"`
	Size  int64  `json:"size"` // events
	Root  string `json:"root"` // hash in base64
}

// Time is a time as answers write it, to the millisecond.
type Time struct{ time.Time }

// MarshalJSON writes the time.
func (t Time) MarshalJSON() ([]byte, error) { return query.Timestamp(t.Time).MarshalJSON() }

// UnmarshalJSON reads a time.
func (t *Time) UnmarshalJSON(text []byte) (err error) { return t.Time.UnmarshalJSON(text) }

// Duration is a time span as parameters have it, such as 90d.
type Duration time.Duration

// MarshalJSON writes the span.
func (d Duration) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, attribution.FormatDuration(time.Duration(d))), nil
}

// UnmarshalJSON reads a span.
func (d *Duration) UnmarshalJSON(text []byte) error {
	var written string
	if err := json.Unmarshal(text, &written); err != nil {
		return err
	}
	span, err := attribution.ParseDuration(written)
	*d = Duration(span)
	return err
}

// Parameters select a report.
type Parameters struct {
	Account string
	query.AttributionFilter
}

// New returns an empty report with parameters.
func New(p Parameters) File {
	f := File{
		Report: Kind, Account: p.Account, Model: string(p.Model), By: string(p.By),
		Window: Duration(p.Window), HalfLife: Duration(p.HalfLife), Visits: p.Visits, Cost: p.Cost,
		AsOf: p.AsOf,
	}
	if !p.Since.IsZero() {
		f.Since = &Time{p.Since}
	}
	if !p.Until.IsZero() {
		f.Until = &Time{p.Until}
	}
	return f
}

// Encode writes a report's file. Equal reports give equal bytes.
func (f File) Encode() ([]byte, error) {
	text, err := json.Marshal(f, json.Deterministic(true), jsontext.WithIndent("  "))
	return append(text, '\n'), err
}

// Is reports whether a file is a report, by its first member.
func Is(file io.Reader) (bool, error) {
	decoder := jsontext.NewDecoder(io.LimitReader(file, 1<<10))
	if decoder.PeekKind() != jsontext.KindBeginObject {
		return false, nil
	}
	if _, err := decoder.ReadToken(); err != nil {
		return false, err
	}
	first, err := decoder.ReadToken()
	return err == nil && first.Kind() == jsontext.KindString && first.String() == "report", nil
}

// Parse reads a report's file. The error's text follows the name of the file: "has no account".
func Parse(text []byte) (f File, err error) {
	if err := json.Unmarshal(text, &f, json.RejectUnknownMembers(true)); err != nil {
		return f, fmt.Errorf("is not a report: %w", err)
	}
	switch {
	case f.Report != Kind:
		return f, fmt.Errorf("is not a report of %s", Kind)
	case f.Account == "":
		return f, errors.New("has no account")
	case !slices.Contains(attribution.Models(), f.Model):
		return f, errors.New("has an unknown model")
	case !slices.Contains(attribution.Keys(), f.By):
		return f, errors.New("has an unknown key")
	case f.Rows == nil:
		return f, errors.New("has no rows")
	case f.Window <= 0 || f.HalfLife <= 0:
		return f, errors.New("has no window or half-life")
	}
	return f, nil
}

// rules are those that the report was made by.
func (f File) rules() attribution.Rules {
	rules := attribution.Rules{
		Model: attribution.Model(f.Model), Window: time.Duration(f.Window), HalfLife: time.Duration(f.HalfLife),
	}
	if f.Since != nil {
		rules.Since = f.Since.Time
	}
	if f.Until != nil {
		rules.Until = f.Until.Time
	}
	return rules
}

// Reading reads the log for reports.
type Reading struct {
	Store    eventstore.Store // an eventstore.Examiner, if events are sealed
	Progress func(done, end eventstore.Position)
}

// prefixes are of streams that a report is a fold of.
var prefixes = []string{event.LeadPrefix, event.VisitorPrefix, event.AccountPrefix, event.SpendPrefix}

// fold folds the log up to a position. Each is called with every event of the account that the ledger needs.
func (r Reading) fold(ctx context.Context, account string, by attribution.Key, end eventstore.Position,
	each func(e *eventstore.Recorded, leads []string)) (*attribution.Ledger, Log, error) {
	ledger := attribution.NewLedger(by)
	var tree merkle.Tiles
	head, err := r.Store.Head(ctx)
	if err != nil {
		return nil, Log{}, err
	}
	epoch, err := r.Store.Epoch(ctx)
	if err != nil {
		return nil, Log{}, err
	}
	if end > head {
		return nil, Log{}, fmt.Errorf("%w: it ends at %d", eventstore.ErrUnknownPosition, head)
	}
	for page, err := range eventstore.Examine(ctx, r.Store, end) {
		if err != nil {
			return nil, Log{}, err
		}
		for i := range page.Events {
			if err := r.add(ledger, &tree, account, &page.Events[i], each); err != nil {
				return nil, Log{}, err
			}
		}
		if r.Progress != nil {
			r.Progress(page.Position, end)
		}
	}
	of, err := tree.Head()
	return ledger, Log{Epoch: epoch, Size: of.N, Root: of.Hash.String()}, err
}

// locate returns a report with its position on this log. If the report was made of another log, which this one may be a
// copy of, it is the position of the event that was the last one there; the end of a log that has fewer events.
func (r Reading) locate(ctx context.Context, f File) (File, error) {
	epoch, err := r.Store.Epoch(ctx)
	if err != nil || f.Log.Epoch == epoch {
		return f, err
	}
	head, err := r.Store.Head(ctx)
	if err != nil {
		return f, err
	}
	f.AsOf, f.Log.Epoch = 0, epoch
	left := f.Log.Size
	for page, err := range eventstore.ReadTo(ctx, r.Store, 0, head, eventstore.Filter{}) {
		if err != nil {
			return f, err
		}
		n := min(left, int64(len(page.Events)))
		if n > 0 {
			f.AsOf = page.Events[n-1].Position
		}
		if left -= n; left <= 0 {
			break
		}
	}
	return f, nil
}

func (r Reading) add(
	ledger *attribution.Ledger, tree *merkle.Tiles, account string, e *eventstore.Examined,
	each func(*eventstore.Recorded, []string),
) error {
	leaf, err := audit.LogLeaf(e.Stored)
	if err != nil {
		return err
	}
	tree.Add(leaf)
	if e.Metadata.Account != account || !(eventstore.Filter{StreamPrefixes: prefixes}).Matches(e.Stream, e.Type) {
		return nil
	}
	fact, err := e.Fact()
	if err != nil {
		return fmt.Errorf("event at position %d of stream %s: %w", e.Position, e.Stream, err)
	}
	leads := ledger.Add(&fact, int64(e.Position))
	if each != nil {
		each(&e.Recorded, leads)
	}
	return nil
}

// Make computes the rows of a report from the log.
func (r Reading) Make(ctx context.Context, f File) (File, error) {
	ledger, log, err := r.fold(ctx, f.Account, attribution.Key(f.By), f.AsOf, nil)
	if err != nil {
		return f, err
	}
	f.Log = log
	rules := f.rules()
	report := attribution.NewReport(rules)
	won := ledger.Won().AsOf(int64(f.AsOf))
	for id, history := range ledger.Leads() {
		if c, converted := history.Conversion(id, int64(f.AsOf), won, f.Visits); converted {
			report.Add(c)
		}
	}
	if f.Cost {
		report.AddCosts(attribution.Key(f.By), ledger.Costs())
	}
	made := query.NewAttribution(report, f.Cost, f.AsOf)
	f.Rows, f.Total = made.Rows, made.Total
	return f, nil
}

// Verify makes a report again and returns the first difference; empty when there is none.
func (r Reading) Verify(ctx context.Context, f File) (difference string, err error) {
	if f, err = r.locate(ctx, f); err != nil {
		return "", err
	}
	again, err := r.Make(ctx, f)
	if err != nil {
		return "", err
	}
	if f.Log != again.Log {
		return fmt.Sprintf("log up to position %d: the report has %d events with hash %s, the log %d with hash %s",
			f.AsOf, f.Log.Size, f.Log.Root, again.Log.Size, again.Log.Root), nil
	}
	return firstDifference(f, again), nil
}

func firstDifference(f, again File) string {
	for _, d := range Changes(f, again) {
		return d.String()
	}
	if f.Total != again.Total {
		return fmt.Sprintf("total: %s conversions, value %s: the log gives %s and %s",
			f.Total.Conversions, f.Total.Value, again.Total.Conversions, again.Total.Value)
	}
	for i := range f.Rows {
		if f.Rows[i] != again.Rows[i] {
			return fmt.Sprintf("row %q: is out of order", f.Rows[i].Key)
		}
	}
	return ""
}
