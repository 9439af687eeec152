package httpapi

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/query"
)

const (
	defaultLimit = 50
	maxLimit     = 200
	maxParam     = 1000 // characters
)

// params reads the parameters of a query string one by one and collects those that are wrong. Unknown ones are ignored.
type params struct {
	values url.Values
	wrong  field.Errors
}

// undecodable replaces a value with invalid percent-encoding. No parameter accepts it, because it is not UTF-8.
const undecodable = "\xff"

// params splits the query string as browsers write it. The standard library drops what it cannot parse, and without a filter or a
// dryRun the request would do more than the caller asked for.
func (x *exchange) params() *params {
	if x.r.URL.RawQuery == "" {
		return &params{}
	}
	p := &params{values: make(url.Values)}
	for pair := range strings.SplitSeq(x.r.URL.RawQuery, "&") {
		name, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		if err != nil {
			continue
		}
		if value, err = url.QueryUnescape(value); err != nil {
			value = undecodable
		}
		p.values.Add(name, value)
	}
	return p
}

// get reads a parameter that may be given only once.
func (p *params) get(name string) string {
	if len(p.values[name]) > 1 {
		p.wrong.Add(name, "must be given once")
	}
	return p.values.Get(name)
}

func (p *params) text(name string) string {
	value := p.get(name)
	if !utf8.ValidString(value) || strings.ContainsRune(value, 0) || utf8.RuneCountInString(value) > maxParam {
		p.wrong.Add(name, "must be text of at most 1000 characters")
		return ""
	}
	return value
}

// oneOf reads one of a few values, in any letter case. Any other is an error, and not an empty list, which would look as if
// nothing of the kind had happened.
func (p *params) oneOf(name string, values ...string) string {
	value := p.text(name)
	if value == "" {
		return ""
	}
	for _, one := range values {
		if strings.EqualFold(value, one) {
			return one
		}
	}
	p.wrong.Add(name, "must be one of "+strings.Join(values, ", "))
	return ""
}

func (p *params) source() string { return p.oneOf("source", lead.Sources()...) }

// flag reads true or false; false when it is not given. Anything else is an error.
func (p *params) flag(name string) (bool, error) {
	values := p.values[name]
	switch {
	case len(values) == 0 || len(values) == 1 && values[0] == "false":
		return false, nil
	case len(values) == 1 && values[0] == "true":
		return true, nil
	}
	return false, bad(name, "must be true or false")
}

// phone reads a number. Its plus sign, when nobody escaped it, arrives as a space.
func (p *params) phone(name string) string {
	value := p.text(name)
	if national, ok := strings.CutPrefix(value, " "); ok {
		return "+" + national
	}
	return value
}

// time reads a moment; the zero time when it is not given. Like a phone's, the plus sign of its offset may be a space.
func (p *params) time(name string) time.Time {
	value := p.get(name)
	if value == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, strings.Replace(value, " ", "+", 1))
	if err != nil || !at.After(time.Time{}) {
		p.wrong.Add(name, "must be a time such as 2006-01-02T15:04:05Z")
	}
	return at
}

func (p *params) page() query.Page {
	page := query.Page{Limit: defaultLimit, Cursor: p.text("cursor")}
	if value := p.get("limit"); value != "" {
		limit, err := strconv.Atoi(value)
		if err != nil || limit < 1 || limit > maxLimit {
			p.wrong.Add("limit", "must be a whole number from 1 to 200")
		}
		page.Limit = limit
	}
	return page
}

// surely asks views for what a path names. What they do not have may have been written a moment ago, so it is only missing if it is
// still not there after the views have caught up with the log. This wait has the same bound as waitFor's.
func surely[T any](x *exchange, ask func() (T, error), views ...string) (T, error) {
	found, err := ask()
	if !errors.Is(err, query.ErrNotFound) || len(views) == 0 {
		return found, err
	}
	place := x.load.waiting.of(x.caller.Account)
	if !place.take(1) {
		return found, errOverloaded
	}
	defer place.giveBack(1)
	if err := x.Query.CatchUp(x.ctx, views...); err != nil {
		return found, err
	}
	return ask()
}

// waitFor waits until the views that answer a GET have reached its minPosition or, without one, the caller's last write. All
// parameters must have been read before, because their errors are returned here. The requests of an account that wait are at most
// half of all that may run.
func (x *exchange) waitFor(p *params, views ...string) error {
	var position eventstore.Position
	if value := p.get("minPosition"); value != "" {
		parsed, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			p.wrong.Add("minPosition", "must be a position, as "+positionHeader+" gives it")
		}
		position = eventstore.Position(parsed)
	}
	if err := p.wrong.Err(); err != nil {
		return err
	}
	place := x.load.waiting.of(x.caller.Account)
	if position == 0 {
		x.waitForOwn(place, views...)
		return nil
	}
	if !place.take(1) {
		return errOverloaded
	}
	defer place.giveBack(1)
	err := x.Query.WaitFor(x.ctx, position, views...)
	if errors.Is(err, eventstore.ErrUnknownPosition) {
		p.wrong.Add("minPosition", "must not be beyond the end of the log")
		return p.wrong.Err()
	}
	return err
}
