package console

import (
	"bytes"
	"cmp"
	"embed"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/query"
)

//go:embed templates/*.html
var templateFiles embed.FS

// templates are those of the pages, each in a file of its name, the layout around them, and parts that several use.
type templates struct{ all *template.Template }

func newTemplates(base string, a assets) templates {
	return templates{
		template.Must(template.New("").Funcs(functions(base, a)).ParseFS(templateFiles, "templates/*.html")),
	}
}

// renderMain renders a page without the layout.
func (t templates) renderMain(page string, data layout) ([]byte, error) {
	var text bytes.Buffer
	err := t.all.ExecuteTemplate(&text, page+".html", data)
	return text.Bytes(), err
}

// render renders a page in the layout.
func (t templates) render(page string, data layout) ([]byte, error) {
	main, err := t.renderMain(page, data)
	if err != nil {
		return nil, err
	}
	data.Main = template.HTML(main)
	return t.renderMain("layout", data)
}

// layout is the data around a page.
type layout struct {
	Title    string
	Identity Identity
	SignedIn bool
	Tabs     []tab
	Live     bool
	Data     any
	Calls    []call
	Main     template.HTML // the page, rendered
	visit    *visit
}

func (v *visit) layout(s screen) layout {
	return layout{
		Title: s.title, Identity: v.identity, SignedIn: v.signedIn, Tabs: v.tabs(), Live: s.live, Data: s.data,
		Calls: s.calls, visit: v,
	}
}

// Currency is the ISO 4217 code of the account's currency, or empty when it cannot be read.
func (l layout) Currency() string {
	settings, err := l.visit.Directory.Account(l.visit.ctx, l.visit.identity.Account)
	if err != nil {
		return ""
	}
	return settings.State.Currency
}

type tab struct {
	Name, Path string
	Key        string // that follows g
	Begins     bool   // a group of pages
	Here       bool
}

// tabs returns links to the pages that the user may see.
func (v *visit) tabs() []tab {
	if !v.signedIn {
		return nil
	}
	var shown []tab
	group := 0
	for _, t := range []struct {
		group                  int
		name, path, key, scope string
	}{
		{0, "Overview", "/", "o", ""}, {0, "Leads", "/leads", "l", "leads:read"},
		{0, "Arrivals", "/arrivals", "r", "leads:read"},
		{0, "Pipeline", "/pipeline", "f", "leads:read"},
		{0, "Sources", "/sources", "s", "leads:read"},
		{0, "Imports", "/imports", "m", "leads:write"},
		{0, "Attribution", "/sources/attribution", "c", "leads:read"},
		{1, "Intakes", "/intakes", "i", "intakes:read"}, {1, "Webhooks", "/webhooks", "w", "webhooks:read"},
		{1, "API tokens", "/tokens", "t", "tokens:read"},
		{1, "Settings", "/settings", "e", adminScope},
		{2, "Audit log", "/audit/trail", "a", "audit:read"}, {2, "Token history", "/audit", "k", "audit:read"},
		{3, "Usage", "/usage", "u", "leads:read"}, {3, "Data status", "/projections", "p", ""},
	} {
		if v.identity.May(t.scope) {
			pattern := v.page.pattern
			here := pattern == t.path || t.path != "/" && strings.HasPrefix(pattern, t.path+"/{")
			shown = append(shown, tab{
				Name: t.name, Path: v.path(t.path), Key: t.key, Begins: t.group != group, Here: here,
			})
			group = t.group
		}
	}
	return shown
}

// write sends a whole page.
func (v *visit) write(s screen) {
	text, err := v.pages.render(s.name, v.layout(s))
	if err != nil {
		v.Gate.Note(v.r, v.Base+v.page.pattern, v.identity.Account, err)
		http.Error(v.w, "The page could not be rendered.", http.StatusInternalServerError)
		return
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	if s.status != 0 {
		v.w.WriteHeader(s.status)
	}
	_, _ = v.w.Write(text) // net/http handles a browser that has disconnected
}

// functions are the functions of templates.
func functions(base string, a assets) template.FuncMap {
	return template.FuncMap{
		"path":        func(to string) string { return pathAt(base, to) },
		"asset":       a.path,
		"service":     func() string { return strings.TrimSuffix(base, "/console") },
		"moment":      moment,
		"utc":         func(t any) string { return strings.TrimSuffix(moment(t), " UTC") },
		"iso":         iso,
		"number":      number,
		"money":       money,
		"decimal":     decimal,
		"figure":      figure,
		"plural":      plural,
		"plural64":    func(n int64, one string) string { return plural(int(n), one) },
		"day":         func(t query.Timestamp) string { return time.Time(t).UTC().Format(time.DateOnly) },
		"words":       words,
		"stage":       stage,
		"short":       short,
		"actor":       actor,
		"label":       fieldName,
		"setting":     func(name string) string { return cmp.Or(settingNames[name], name) },
		"reason":      func(why string) string { return cmp.Or(reasonNames[why], why) },
		"view":        func(name string) string { return cmp.Or(viewNames[name], words(name)) },
		"list":        func(items ...any) []any { return items },
		"isZero":      func(t query.Timestamp) bool { return time.Time(t).IsZero() },
		"latest":      latest,
		"lower":       strings.ToLower,
		"members":     func(data jsontext.Value) []member { return masker{revealed: true}.object(data) },
		"percent":     func(part float64) string { return strconv.FormatFloat(100*part, 'f', 1, 64) + " %" },
		"joined":      func(parts []string) string { return strings.Join(parts, ", ") },
		"fault":       fault,
		"faulty":      faulty,
		"importfield": importField, "importwarning": importWarning,
	}
}

// faulty returns the attributes of a field with an error, which the template fault shows beside it: they link the two
// and move the focus there. Hints are ids of other elements that describe the field. Without an error there are only
// they.
func faulty(id, message string, hints ...string) template.HTMLAttr {
	attributes := ""
	if message != "" {
		attributes = ` aria-invalid="true" autofocus`
		hints = append(hints, id+"-fault")
	}
	if len(hints) > 0 {
		attributes += ` aria-describedby="` + template.HTMLEscapeString(strings.Join(hints, " ")) + `"`
	}
	return template.HTMLAttr(attributes)
}

// latest returns the last of a delivery's attempts, if there is one.
func latest(attempts []query.Attempt) *query.Attempt {
	if len(attempts) == 0 {
		return nil
	}
	return &attempts[len(attempts)-1]
}

// moment is a time to the millisecond. The script shows it in the zone of the reader, and this on hover.
func moment(t any) string {
	at, ok := asTime(t)
	if !ok {
		return "–"
	}
	return at.UTC().Format("2006-01-02 15:04:05.000 UTC")
}

// iso is a time as programs read it.
func iso(t any) string {
	at, ok := asTime(t)
	if !ok {
		return ""
	}
	return at.UTC().Format("2006-01-02T15:04:05.000Z")
}

func asTime(t any) (time.Time, bool) {
	switch t := t.(type) {
	case query.Timestamp:
		return time.Time(t), !time.Time(t).IsZero()
	case time.Time:
		return t, !t.IsZero()
	case string: // as an audit entry has it
		at, err := time.Parse(time.RFC3339, t)
		return at, err == nil
	}
	return time.Time{}, false
}

// number groups the digits of a whole number, or of a decimal before its point: 1,234,567.5.
func number(n any) string {
	var text string
	switch n := n.(type) {
	case int:
		text = strconv.Itoa(n)
	case int64:
		text = formatInt(n)
	case uint64:
		text = strconv.FormatUint(n, 10)
	case eventstore.Position:
		text = strconv.FormatUint(uint64(n), 10)
	case string:
		text = n
	default:
		return ""
	}
	whole, fraction, point := strings.Cut(text, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for at := len(whole) - 3; at > 0; at -= 3 {
		whole = whole[:at] + "," + whole[at:]
	}
	if point {
		fraction = "." + fraction
	}
	return sign + whole + fraction
}

// money is an amount in a currency: INR 120,000.5. The script writes it as is usual where the reader is.
func money(currency, amount string) template.HTML {
	amount = decimal(amount)
	return template.HTML(`<data class="money" value="` + template.HTMLEscapeString(amount) + `" data-currency="` +
		template.HTMLEscapeString(currency) + `">` +
		template.HTMLEscapeString(strings.TrimSpace(currency+" "+number(amount))) + `</data>`)
}

// figure shows an amount of a currency, or a number if that is empty, or a dash if it is not known.
func figure(currency string, of query.Figure) template.HTML {
	switch {
	case of == "", of == query.Unknown:
		return `<span class="none">–</span>`
	case currency == "":
		return template.HTML(template.HTMLEscapeString(decimal(string(of))))
	}
	return money(currency, string(of))
}

// decimal removes the zeros at the end of a number's decimals.
func decimal(number string) string {
	whole, fraction, _ := strings.Cut(number, ".")
	if fraction = strings.TrimRight(fraction, "0"); fraction != "" {
		fraction = "." + fraction
	}
	return whole + fraction
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

// plural counts things: 1 lead, 2 leads.
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + one + "s"
}
