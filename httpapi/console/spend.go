package console

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/spend"
	"github.com/leadlog/leadlog/command/spendfile"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/export"
)

// spendPage shows what days of advertising cost, and lets some users set it.
type spendPage struct {
	filtered
	Rows    []query.Spend
	Parts   parts
	Sources []string
	Sets    bool // the user may set amounts
	Limit   int  // of a file, in MiB

	Given  url.Values   // of a row that was refused
	Faults field.Errors // of that row
	Lines  []string     // why a file was refused
	Set    *spendSet    // what a file or a row has set
}

// spendSet is what became of the rows of a file.
type spendSet struct {
	Rows, Changed, Others int
	Added                 int    // lines, to others of their day and key
	LeftOut               string // lines of totals
	Assumed               bool   // the currency, which the file does not name
}

// spendSetParams are the parameters of a spendSet.
var spendSetParams = []string{"rows", "changed", "others", "added", "totals", "line", "currency"}

// maxSpendUpload is the maximum size of a file of costs, unpacked: it is read at once.
const maxSpendUpload = 8 << 20 // bytes

func (v *visit) spend() (screen, error) {
	p := v.params()
	shown := spendPage{Given: url.Values{"day": {v.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly)}}}
	if rows, err := strconv.Atoi(p.text("rows")); err == nil {
		set := &spendSet{Rows: rows, Assumed: p.text("currency") == "assumed"}
		set.Changed, _ = strconv.Atoi(p.text("changed"))
		set.Others, _ = strconv.Atoi(p.text("others"))
		set.Added, _ = strconv.Atoi(p.text("added"))
		if totals, _ := strconv.Atoi(p.text("totals")); totals > 0 {
			var lines []int
			for _, text := range p.values["line"] {
				if line, err := strconv.Atoi(text); err == nil {
					lines = append(lines, line)
				}
			}
			set.LeftOut = spendfile.LineList(lines, totals)
		}
		shown.Set = set
	}
	return v.spendScreen(shown)
}

func (v *visit) spendFilter(p *params) (filter query.SpendFilter, err error) {
	filter = query.SpendFilter{Since: p.day("since"), Until: p.until("until")}
	filter.AsOf, err = v.positionAsOf(p)
	return filter, err
}

// spendScreen shows the list below what a form has led to.
func (v *visit) spendScreen(shown spendPage) (screen, error) {
	p := v.params()
	if !v.reads() { // the address is that of a form
		p.values = url.Values{}
	}
	for _, name := range spendSetParams {
		delete(p.values, name)
	}
	page := p.page()
	shown.filtered = p.filtered("since", "until", "asOf")
	shown.Sources, shown.Sets, shown.Limit = lead.Sources(), v.identity.May("leads:write"), maxSpendUpload>>20
	filter, err := v.spendFilter(p)
	if err != nil {
		return screen{}, err
	}
	result := screen{name: "spend", title: "Advertising costs"}
	if shown.Wrong = p.wrong; shown.Wrong != nil {
		result.status, result.data = http.StatusBadRequest, shown
		return result, nil
	}
	list, err := v.Query.Spend(v.ctx, v.identity.Account, filter, page)
	if err != nil {
		return screen{}, err
	}
	shown.Rows, shown.Parts = list.Items, p.parts(page, list.NextCursor)
	if shown.Lines != nil || shown.Faults != nil {
		result.status = http.StatusBadRequest
	}
	result.data = shown
	result.calls = v.calls(
		v.get("leads:read", "These costs", "/api/v1/crm/spend", "since", stamp(filter.Since), "until", stamp(filter.Until),
			"asOf", p.text("asOf"), "limit", strconv.Itoa(rows)),
		v.put("leads:write", "Set what a day cost", "/api/v1/crm/spend", map[string]any{"rows": []any{map[string]any{
			"day": "2026-01-31", "key": map[string]any{"source": "google_ad", "utmCampaign": "diwali"}, "amount": "1250.50",
		}}}),
		v.program("leads:write", "A file by the command line, of at most 256 MiB", "spend import FILE"))
	return result, nil
}

// setSpend sets a row that was entered by hand.
func (v *visit) setSpend() (screen, error) {
	form, err := v.form()
	if err != nil {
		return screen{}, err
	}
	row := event.SpendRow{SpendKey: event.SpendKey{
		Source: form.Get("source"), UTMSource: strings.TrimSpace(form.Get("utmSource")),
		UTMMedium: strings.TrimSpace(form.Get("utmMedium")), UTMCampaign: strings.TrimSpace(form.Get("utmCampaign")),
	}}
	var faults, ofKey field.Errors
	if row.Day, err = spend.ParseDay(strings.TrimSpace(form.Get("day"))); err != nil {
		faults.Add("day", err.Error())
	}
	spend.CheckKey(&ofKey, "key", row.SpendKey)
	for _, wrong := range ofKey {
		name := strings.TrimPrefix(wrong.Field, "key.")
		if name == "key" {
			name = "source"
		}
		faults.Add(name, wrong.Message)
	}
	settings, err := v.Directory.ConfirmAccount(v.ctx, v.identity.Account)
	if err != nil {
		return screen{}, err
	}
	amount, err := spend.ParseAmount(form.Get("amount"), settings.State.Currency)
	if err != nil {
		faults.Add("amount", err.Error())
	}
	if faults != nil {
		return v.spendScreen(spendPage{Given: form, Faults: faults})
	}
	row.Amount = amount.String()
	return v.toSpend(spendfile.File{Rows: []event.SpendRow{row}, Lines: 1, HasCurrency: true}, false)
}

// spendTimeout bounds the setting of a file, and spendUpload its upload.
const (
	spendTimeout = 30 * time.Second
	spendUpload  = time.Minute
)

// uploadSpend sets the costs of a file, as leadlog spend import does.
func (v *visit) uploadSpend() (screen, error) {
	_ = http.NewResponseController(v.w).SetReadDeadline(time.Now().Add(spendUpload)) // some connections have none
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.r.Context()), spendUpload+spendTimeout)
	defer cancel()
	v.ctx = ctx
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, maxSpendUpload+uploadForm)
	form, err := v.r.MultipartReader()
	if err != nil {
		return screen{}, errBadForm
	}
	settings, err := v.Directory.ConfirmAccount(v.ctx, v.identity.Account)
	if err != nil {
		return screen{}, err
	}
	options := spendfile.Options{Currency: settings.State.Currency, MaxBytes: maxSpendUpload}
	replace := false
	for {
		part, err := form.NextPart()
		if err != nil {
			return screen{}, errBadForm
		}
		if part.FormName() == "file" { // the last one
			found, err := spendfile.Read(part, options)
			if err != nil {
				return v.refusedSpend(err)
			}
			return v.toSpend(found, replace)
		}
		const longest = 20 // of the values below
		value, err := io.ReadAll(io.LimitReader(part, longest))
		if err != nil {
			return screen{}, errBadForm
		}
		switch part.FormName() {
		case "dates":
			options.Dates = string(value)
		case "replace":
			replace = string(value) == "true"
		}
	}
}

// refusedSpend shows why a file was refused: it names columns and lines.
func (v *visit) refusedSpend(err error) (screen, error) {
	v.w.Header().Set("Connection", "close") // the rest is not read
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		err = spendfile.ErrTooLarge
	}
	return v.spendScreen(spendPage{Lines: strings.Split(err.Error(), "\n"), Given: url.Values{}})
}

// toSpend sets the rows of a file, and leads to the page.
func (v *visit) toSpend(file spendfile.File, replace bool) (screen, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.r.Context()), spendTimeout)
	defer cancel()
	_ = http.NewResponseController(v.w).SetWriteDeadline(time.Now().Add(spendTimeout + writeTimeout))
	set, err := v.Commands.SetSpend(ctx, command.SetSpend{Caller: v.caller, Rows: file.Rows, Replace: replace})
	if err != nil {
		return screen{}, err
	}
	v.ctx = ctx
	v.waitForViews(set.Position, query.TouchView)
	if replace {
		set.Others = 0
	}
	values := url.Values{}
	for name, n := range map[string]int{"rows": len(file.Rows), "changed": set.Changed, "others": set.Others} {
		values.Set(name, strconv.Itoa(n))
	}
	if added := file.Lines - len(file.Rows); added > 0 {
		values.Set("added", strconv.Itoa(added))
	}
	if n := len(file.LeftOut); n > 0 {
		values.Set("totals", strconv.Itoa(n))
		for _, line := range file.LeftOut[:min(n, spendfile.MaxListed)] {
			values.Add("line", strconv.Itoa(line))
		}
	}
	if !file.HasCurrency {
		values.Set("currency", "assumed")
	}
	return screen{redirect: v.path("/sources/spend") + "?" + values.Encode()}, nil
}

func (v *visit) exportSpend() (screen, error) {
	p := v.params()
	filter, err := v.spendFilter(p)
	if err != nil {
		return screen{}, err
	}
	return sent(v, p, export.Spend(), v.Query.SpendAll(v.r.Context(), v.identity.Account, filter))
}
