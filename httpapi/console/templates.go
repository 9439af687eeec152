package console

import (
	"bytes"
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

// templates are the pages, each with the layout around it.
type templates struct{ byName map[string]*template.Template }

func newTemplates(base string, a assets) *templates {
	common := template.Must(template.New("").Funcs(functions(base, a)).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html"))
	t := &templates{byName: make(map[string]*template.Template)}
	entries, err := templateFiles.ReadDir("templates")
	if err != nil {
		panic(err) // they are part of the program
	}
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), ".html")
		if name != "layout" && name != "parts" {
			t.byName[name] = template.Must(template.Must(common.Clone()).ParseFS(templateFiles, "templates/"+entry.Name()))
		}
	}
	return t
}

// layout is what the layout shows around a page.
type layout struct {
	Title    string
	Identity Identity
	SignedIn bool
	Tabs     []tab
	Live     bool
	Data     any
}

type tab struct {
	Name, Path string
	Here       bool
}

// tabs returns links to the pages that the user may see.
func (v *visit) tabs() []tab {
	if !v.signedIn {
		return nil
	}
	var shown []tab
	for _, t := range []struct{ name, path, scope string }{
		{"Overview", "/", ""}, {"Leads", "/leads", "leads:read"}, {"Sources", "/sources", "leads:read"},
		{"API Tokens", "/tokens", "tokens:read"}, {"Audit", "/audit/trail", "audit:read"}, {"Token audit", "/audit", "audit:read"},
		{"Intakes", "/intakes", "intakes:read"}, {"Arrivals", "/arrivals", "leads:read"},
		{"Webhooks", "/webhooks", "webhooks:read"}, {"Projections", "/projections", ""}, {"Usage", "/usage", "leads:read"},
	} {
		if v.identity.May(t.scope) {
			pattern := v.page.pattern
			here := pattern == t.path || t.path != "/" && strings.HasPrefix(pattern, t.path+"/{")
			shown = append(shown, tab{t.name, v.path(t.path), here})
		}
	}
	return shown
}

// write sends a whole page.
func (v *visit) write(s screen) {
	var text bytes.Buffer
	err := v.pages.byName[s.name].ExecuteTemplate(&text, "layout", layout{
		Title: s.title, Identity: v.identity, SignedIn: v.signedIn, Tabs: v.tabs(), Live: s.live, Data: s.data,
	})
	if err != nil {
		v.Gate.Note(v.r, v.Base+v.page.pattern, v.identity.Account, err)
		http.Error(v.w, "The page could not be rendered.", http.StatusInternalServerError)
		return
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.Header().Set("Content-Length", strconv.Itoa(text.Len()))
	if s.status != 0 {
		v.w.WriteHeader(s.status)
	}
	_, _ = v.w.Write(text.Bytes()) // net/http handles a browser that has disconnected
}

// functions are what templates can call.
func functions(base string, a assets) template.FuncMap {
	return template.FuncMap{
		"path":     func(to string) string { return pathAt(base, to) },
		"asset":    a.path,
		"moment":   moment,
		"iso":      iso,
		"number":   number,
		"plural":   plural,
		"plural64": func(n int64, one string) string { return plural(int(n), one) },
		"day":      func(t query.Timestamp) string { return time.Time(t).UTC().Format(time.DateOnly) },
		"words":    words,
		"list":     func(items ...any) []any { return items },
		"isZero":   func(t query.Timestamp) bool { return time.Time(t).IsZero() },
		"latest":   latest,
		"lower":    strings.ToLower,
		"members":  func(data jsontext.Value) []member { return masker{revealed: true}.object(data) },
		"percent":  func(part float64) string { return strconv.FormatFloat(100*part, 'f', 1, 64) + " %" },
		"joined":   func(parts []string) string { return strings.Join(parts, ", ") },
		"fault":    fault,
	}
}

// words returns an identifier as words.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// latest returns the last of a delivery's attempts, if there is one.
func latest(attempts []query.Attempt) *query.Attempt {
	if len(attempts) == 0 {
		return nil
	}
	return &attempts[len(attempts)-1]
}

// moment is a time as people read it: UTC, to the millisecond.
func moment(t any) string {
	at, ok := asTime(t)
	if !ok {
		return "–"
	}
	return at.UTC().Format("2006-01-02 15:04:05.000")
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

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

// plural counts things: 1 lead, 2 leads.
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + one + "s"
}
