package spendfile

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/leadlog/leadlog/command/attribution"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/leadfile"
	"github.com/leadlog/leadlog/command/spend"
	"github.com/leadlog/leadlog/eventstore/event"
)

// LineError is why a line is wrong. Column is the name of one, or empty.
type LineError struct {
	Line            int
	Column, Message string
}

func (e LineError) Error() string {
	return fmt.Sprintf("line %d: %s", e.Line, strings.TrimSpace(e.Column+" "+e.Message))
}

// Errors are the lines of a file that are wrong: the first ones, and how many there are.
type Errors struct {
	First []LineError
	Count int
}

// maxErrors is how many wrong lines are named.
const maxErrors = 20

func (e *Errors) Error() string {
	texts := make([]string, len(e.First), len(e.First)+1)
	for i, wrong := range e.First {
		texts[i] = wrong.Error()
	}
	if more := e.Count - len(e.First); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "\n")
}

// reader reads the rows of a table.
type reader struct {
	Options
	columns columns
	file    File
	wrong   Errors

	dates leadfile.DateOrder
	money money
	index map[event.SpendRow]int // rows of the file, without their amounts
	units []uint64               // of the rows
}

func (r *reader) refuse(line int, column, format string, args ...any) {
	if r.wrong.Count++; len(r.wrong.First) < maxErrors {
		r.wrong.First = append(r.wrong.First, LineError{line, column, fmt.Sprintf(format, args...)})
	}
}

// read reads all rows, because some cells show how others are written.
func (r *reader) read(table *leadfile.Table) error {
	var lines []leadfile.Row
	for row, err := range table.Rows() {
		switch {
		case err != nil:
			return err
		case row.Err != nil:
			r.refuse(row.Line, "", "%v", row.Err)
		default:
			for i, cell := range row.Cells {
				row.Cells[i] = r.unguarded(cell)
			}
			lines = append(lines, row)
		}
	}
	if err := r.findDates(lines); err != nil {
		return err
	}
	lines = slices.DeleteFunc(lines, func(row leadfile.Row) bool {
		total := r.isTotal(row.Cells)
		if total {
			r.file.LeftOut = append(r.file.LeftOut, row.Line)
		}
		return total
	})
	if r.columns.currency != "" {
		r.file.HasCurrency = true
		if r.columns.currency != r.Currency {
			return fmt.Errorf("column %q is in %s, and the account's currency is %s", r.columns.name(amount),
				r.columns.currency, r.Currency)
		}
	}
	for _, row := range lines {
		r.money.sample(r.columns.cell(row.Cells, amount))
	}
	r.index = make(map[event.SpendRow]int, len(lines))
	for _, row := range lines {
		r.add(row)
	}
	switch {
	case r.wrong.Count > 0:
		return &r.wrong
	case len(r.file.Rows) == 0:
		return fmt.Errorf("the file has no row with an amount")
	}
	return r.end()
}

// unguarded is a cell without what a spreadsheet or an export of leadlog puts around it. Platforms add nothing.
func (r *reader) unguarded(cell string) string {
	if r.columns.platform != "" && !strings.HasPrefix(cell, `="`) {
		return cell
	}
	return leadfile.WithoutGuard(cell)
}

// findDates finds the order of numbers in dates.
func (r *reader) findDates(lines []leadfile.Row) error {
	switch {
	case r.Dates != "":
		r.dates = leadfile.DateOrder{MonthFirst: r.Dates == MonthFirst}
		return nil
	case r.columns.platform == LinkedIn: // in every language
		r.dates = leadfile.DateOrder{MonthFirst: true}
		return nil
	}
	var dates []string
	for _, row := range lines {
		for _, field := range []string{day, start, end} {
			dates = append(dates, r.columns.cell(row.Cells, field))
		}
	}
	known := false
	if r.dates, known = leadfile.KnownOrder(dates); !known {
		return fmt.Errorf("the dates of column %q may begin with the day or the month: say which, %s or %s",
			r.columns.dayName(), DayFirst, MonthFirst)
	}
	return nil
}

func (c *columns) dayName() string {
	if c.has(day) {
		return c.name(day)
	}
	return c.name(start)
}

// isTotal reports whether a row is a total or a footer: it has no day, and a cell that says so; or it is of a platform,
// and has no day or no campaign.
func (r *reader) isTotal(cells []string) bool {
	date := r.columns.cell(cells, r.columns.dayField())
	if r.columns.platform != "" &&
		(none(date) || r.columns.has(utmCampaign) && none(r.columns.cell(cells, utmCampaign))) {
		return true
	}
	if _, dated := r.dates.Date(date); dated {
		return false
	}
	return slices.ContainsFunc(cells, func(cell string) bool {
		word := strings.ToLower(strings.TrimSpace(cell))
		if strings.HasPrefix(word, "©") {
			return true
		}
		word, _, _ = strings.Cut(word, ":")
		return slices.Contains(totalWords, strings.TrimSpace(word))
	})
}

// totalWords name the rows of totals: Total: Account.
var totalWords = []string{
	"total", "totals", "grand total", "gesamt", "gesamtsumme", "insgesamt", "totaux", "totale", "totaal", "total general",
	"total geral",
}

func (c *columns) dayField() string {
	if c.has(day) {
		return day
	}
	return start
}

// none reports whether a cell has no value: platforms write dashes.
func none(cell string) bool { return strings.Trim(cell, " -–—") == "" }

// add adds a row to the amount of its day and key.
func (r *reader) add(row leadfile.Row) {
	before := r.wrong.Count
	spent := event.SpendRow{Day: r.day(row), SpendKey: r.key(row)}
	units := r.amount(row)
	if r.wrong.Count > before {
		return
	}
	r.file.Lines++
	at, known := r.index[spent]
	if !known {
		at = len(r.units)
		r.index[spent] = at
		r.units, r.file.Rows = append(r.units, 0), append(r.file.Rows, spent)
	}
	sum, carry := bits.Add64(r.units[at], units, 0)
	if carry > 0 {
		r.refuse(row.Line, r.columns.name(amount), "is too much, with the earlier rows of its day and key")
	}
	r.units[at] = sum
}

func (r *reader) day(row leadfile.Row) string {
	name, from := r.columns.dayName(), r.columns.cell(row.Cells, r.columns.dayField())
	at, ok := r.dates.Date(from)
	if !ok {
		r.refuse(row.Line, name, "must be a day, such as 2026-01-31")
		return ""
	}
	written, err := spend.ParseDay(at.Format(time.DateOnly))
	if err != nil {
		r.refuse(row.Line, name, "%v", err)
		return ""
	}
	if to := r.columns.cell(row.Cells, end); !r.columns.has(day) && to != "" {
		if last, ok := r.dates.Date(to); !ok || last.Format(time.DateOnly) != written {
			r.refuse(row.Line, name, "to %s is %s to %s, and must be one day: export the report with a breakdown by day",
				r.columns.name(end), from, to)
		}
	}
	return written
}

func (r *reader) key(row leadfile.Row) (key event.SpendKey) {
	value := func(field string) string {
		if set, is := r.Set[field]; is {
			return set
		}
		if cell := r.columns.cell(row.Cells, field); cell != "" || r.columns.has(field) {
			return cell
		}
		if field == source {
			return sourceOf[r.columns.platform]
		}
		return ""
	}
	key = event.SpendKey{
		Source: value(source), UTMSource: value(utmSource), UTMMedium: value(utmMedium), UTMCampaign: value(utmCampaign),
	}
	var wrong field.Errors
	spend.CheckKey(&wrong, "key", key)
	for _, one := range wrong {
		name := strings.TrimPrefix(one.Field, "key.")
		if r.columns.has(name) {
			name = r.columns.name(name)
		}
		r.refuse(row.Line, name, "%s", one.Message)
	}
	return key
}

func (r *reader) amount(row leadfile.Row) (units uint64) {
	name, cell := r.columns.name(amount), r.columns.cell(row.Cells, amount)
	if r.columns.platform != "" && none(cell) { // nothing was spent
		return 0
	}
	if code := r.columns.cell(row.Cells, currency); code != "" && r.columns.has(currency) {
		r.file.HasCurrency = true
		if !strings.EqualFold(code, r.Currency) {
			r.refuse(row.Line, r.columns.name(currency), "is %s, and the account's currency is %s", code, r.Currency)
			return 0
		}
	}
	if err := spend.CheckCurrency(cell, r.Currency); err != nil {
		r.refuse(row.Line, name, "%v", err)
		return 0
	}
	parsed, err := r.money.parse(cell)
	if err != nil {
		r.refuse(row.Line, name, "%v", err)
		return 0
	}
	units, _ = attribution.ParseValue(parsed.String()) // its bounds are those of amounts
	return units
}

// end sets the amounts of the rows, and what they have together.
func (r *reader) end() error {
	for i := range r.file.Rows {
		row := &r.file.Rows[i]
		sum, err := lead.AmountFromNumber(attribution.SumOf(r.units[i]).Decimal(4))
		if err != nil {
			return fmt.Errorf("the amount of %s and %v %w", row.Day, row.SpendKey, err)
		}
		row.Amount = sum.String()
		if r.file.Since == "" || row.Day < r.file.Since {
			r.file.Since = row.Day
		}
		r.file.Until = max(r.file.Until, row.Day)
	}
	r.file.Total = attribution.SumOf(r.units...).Decimal(4)
	return nil
}
