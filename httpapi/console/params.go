package console

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/query"
)

// params reads the parameters of a page's address one by one and collects those that are wrong.
type params struct {
	values url.Values
	wrong  field.Errors
}

func (v *visit) params() *params { return &params{values: QueryParams(v.r)} }

// undecodable replaces a value with invalid percent-encoding. It is not UTF-8, so every parameter rejects it.
const undecodable = "\xff"

// QueryParams splits a query string as browsers write it. The standard library drops parts that it cannot parse:
// without a filter or dryRun, the request would do more than the caller wants.
func QueryParams(r *http.Request) url.Values {
	if r.URL.RawQuery == "" {
		return nil
	}
	values := make(url.Values)
	for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
		name, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		if err != nil {
			continue
		}
		if value, err = url.QueryUnescape(value); err != nil {
			value = undecodable
		}
		values.Add(name, value)
	}
	return values
}

const maxParam = 1000 // characters

// text reads a parameter that may be given only once.
func (p *params) text(name string) string {
	if len(p.values[name]) > 1 {
		p.wrong.Add(name, "must be given once")
		return ""
	}
	value := strings.TrimSpace(p.values.Get(name))
	if !isText(value) || utf8.RuneCountInString(value) > maxParam {
		p.wrong.Add(name, "must be text of at most 1000 characters")
		return ""
	}
	return value
}

// oneOf reads one of a few values, in any letter case. Any other is wrong, as it is for the API: an empty list would
// look like a result.
func (p *params) oneOf(name string, values ...string) string {
	return p.wrong.OneOf(name, p.text(name), values...)
}

func (p *params) source() string { return p.oneOf("source", lead.Sources()...) }

// day reads the first moment of a day, UTC; a time is good too. The zero time when none is given.
func (p *params) day(name string) time.Time {
	return p.read(name, "must be a day such as 2006-01-02", time.DateOnly, time.RFC3339)
}

// moment reads a time, UTC unless it says otherwise. The zero time when none is given.
func (p *params) moment(name string) time.Time {
	return p.read(name, "must be a time such as 2006-01-02T15:04", "2006-01-02T15:04", "2006-01-02T15:04:05",
		time.RFC3339, time.DateOnly)
}

func (p *params) read(name, message string, layouts ...string) time.Time {
	value := p.text(name)
	if value == "" {
		return time.Time{}
	}
	for _, layout := range layouts {
		if at, err := time.Parse(layout, value); err == nil && at.After(time.Time{}) {
			return at.UTC()
		}
	}
	p.wrong.Add(name, message)
	return time.Time{}
}

// until reads the last day that counts, and returns the first moment that does not.
func (p *params) until(name string) time.Time {
	at := p.day(name)
	if at.IsZero() || len(p.text(name)) != len(time.DateOnly) {
		return at
	}
	return at.AddDate(0, 0, 1)
}

// rows is how many rows a page shows.
const rows = 50

func (p *params) page() query.Page { return query.Page{Limit: rows, Cursor: p.text("cursor")} }

// parts are the query strings of other parts of a list; empty when there are none.
type parts struct{ First, Next string }

// parts are those beside the page that is shown.
func (p *params) parts(shown query.Page, next string) (other parts) {
	if shown.Cursor != "" {
		other.First = cmp.Or(p.with("cursor", ""), "?")
	}
	if next != "" {
		other.Next = p.with("cursor", next)
	}
	return other
}

// filtered are the filters of a list.
type filtered struct {
	Filter map[string]string // by parameter, as given
	Wrong  field.Errors
	Query  string // that of all of the list, for exports
	Active bool   // something is filtered
	Chips  []chip
}

// chip is a filter that is set, with the query strings of the list without it, and without any filter.
type chip struct{ Name, Label, Value, Without, Bare string }

// labels are the display names of filters on their chips, besides those by a lead's field.
var labels = map[string]string{
	"q": "Search", "source": "Source", "createdSince": "Created from", "createdUntil": "Created to", "since": "From",
	"until": "To", "interval": "By", "asOf": "As of", "state": "Status", "intakeId": "Intake",
	"reason": "Field to correct", "type": "Event", "tokenId": "Token", "shared": "Persons", "actor": "User",
	"subject": "Object",
}

// chips are those of the filters that are set.
func (p *params) chips(names ...string) (set []chip) {
	first, bare := &params{values: maps.Clone(p.values)}, &params{values: maps.Clone(p.values)}
	delete(first.values, "cursor")
	for _, name := range append(names, "cursor") {
		delete(bare.values, name)
	}
	for _, name := range names {
		if value := strings.TrimSpace(p.values.Get(name)); value != "" {
			set = append(set, chip{
				name, cmp.Or(labels[name], fieldName(name)), value,
				cmp.Or(first.with(name, ""), "?"), cmp.Or(bare.with("", ""), "?"),
			})
		}
	}
	return set
}

// show sets the text that a chip shows instead of its value.
func (f *filtered) show(name string, of func(string) string) {
	for i := range f.Chips {
		if f.Chips[i].Name == name {
			f.Chips[i].Value = of(f.Chips[i].Value)
		}
	}
}

func (p *params) filtered(names ...string) filtered {
	f := filtered{Filter: map[string]string{}, Query: p.with("cursor", ""), Chips: p.chips(names...)}
	for _, name := range names {
		f.Filter[name] = strings.TrimSpace(p.values.Get(name)) // also when it is wrong
		f.Active = f.Active || f.Filter[name] != ""
	}
	return f
}

// with returns the query string of this page with another value of a parameter, or without it; empty if it has no
// parameter.
func (p *params) with(name, value string) string {
	values := url.Values{}
	for key, all := range p.values {
		if key != name && len(all) > 0 && all[0] != "" {
			values.Set(key, all[0])
		}
	}
	if value != "" {
		values.Set(name, value)
	}
	if len(values) == 0 {
		return ""
	}
	return "?" + values.Encode()
}

// without returns the parameters of this page without some of them.
func (p *params) without(names ...string) url.Values {
	values := maps.Clone(p.values)
	for _, name := range names {
		values.Del(name)
	}
	return values
}
