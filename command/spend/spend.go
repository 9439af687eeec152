// Package spend decides what a request changes of an account's advertising costs. It is pure.
package spend

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
)

const (
	// MaxRows is the maximum number of rows of a request.
	MaxRows = 10_000
	// maxKey is the maximum length of a part of a key, in characters.
	maxKey = 200
)

// State has the amounts of an account.
type State map[cell]string

// cell is a day and a key.
type cell struct {
	day string
	event.SpendKey
}

func cellOf(row event.SpendRow) cell { return cell{row.Day, row.SpendKey} }

// Evolve folds a fact into the amounts, which it may change.
func Evolve(s State, fact event.Fact) State {
	set, is := fact.Data.(event.SpendSet)
	if !is {
		return s
	}
	if s == nil {
		s = State{}
	}
	for _, row := range set.Rows {
		s[cellOf(row)] = row.Amount
	}
	return s
}

// Set returns the rows that change an amount.
func (s State) Set(rows []event.SpendRow) (changed []event.SpendRow) {
	for _, row := range rows {
		if amount, known := s[cellOf(row)]; !known || amount != row.Amount {
			changed = append(changed, row)
		}
	}
	return changed
}

// Others returns the rows that set to 0 what the days of rows cost by other keys of their channels: of the same source,
// or of no source and the same utmSource. They are in the order of days and keys.
func (s State) Others(rows []event.SpendRow) (others []event.SpendRow) {
	type channel struct{ day, source, utmSource string }
	of := func(row event.SpendRow) channel {
		if row.Source != "" {
			return channel{row.Day, row.Source, ""}
		}
		return channel{row.Day, "", row.UTMSource}
	}
	given, channels := make(map[cell]bool, len(rows)), map[channel]bool{}
	for _, row := range rows {
		given[cellOf(row)], channels[of(row)] = true, true
	}
	for known, amount := range s {
		row := event.SpendRow{Day: known.day, SpendKey: known.SpendKey, Amount: "0"}
		if amount != row.Amount && !given[known] && channels[of(row)] {
			others = append(others, row)
		}
	}
	slices.SortFunc(others, func(a, b event.SpendRow) int {
		return cmp.Or(strings.Compare(a.Day, b.Day), strings.Compare(a.Source, b.Source),
			strings.Compare(a.UTMSource, b.UTMSource), strings.Compare(a.UTMMedium, b.UTMMedium),
			strings.Compare(a.UTMCampaign, b.UTMCampaign))
	})
	return others
}

// Parse reads the member rows of a body, of an account with a currency. The error is field.Errors.
func Parse(raw jsontext.Value, currency string) ([]event.SpendRow, error) {
	var elements []jsontext.Value
	if raw.Kind() != jsontext.KindBeginArray || json.Unmarshal(raw, &elements) != nil {
		return nil, field.Errors{{Field: "rows", Message: "must be a list of objects"}}
	}
	if len(elements) == 0 || len(elements) > MaxRows {
		return nil, field.Errors{{Field: "rows", Message: "must have 1 to 10,000 rows"}}
	}
	p := parser{currency: currency, first: make(map[cell]int, len(elements))}
	rows := make([]event.SpendRow, len(elements))
	for i, element := range elements {
		rows[i] = p.row(i, element)
	}
	return rows, p.wrong.Err()
}

type parser struct {
	currency string
	wrong    field.Errors
	first    map[cell]int // rows by their day and key
}

func (p *parser) row(i int, raw jsontext.Value) (row event.SpendRow) {
	at := "rows[" + strconv.Itoa(i) + "]"
	members, ok := p.object(at, raw, "day", "key", "amount")
	if !ok {
		return row
	}
	before := len(p.wrong)
	var err error
	if row.Day, err = ParseDay(text(members["day"])); err != nil {
		p.wrong.Add(at+".day", err.Error())
	}
	row.SpendKey = p.key(at+".key", members["key"])
	if row.Amount, err = parseAmount(members["amount"], p.currency); err != nil {
		p.wrong.Add(at+".amount", err.Error())
	}
	if len(p.wrong) > before {
		return row
	}
	if first, twice := p.first[cellOf(row)]; twice {
		p.wrong.Add(at, "has the day and key of rows["+strconv.Itoa(first)+"]")
	}
	p.first[cellOf(row)] = i
	return row
}

func (p *parser) key(at string, raw jsontext.Value) (key event.SpendKey) {
	members, ok := p.object(at, raw, "source", "utmSource", "utmMedium", "utmCampaign")
	if !ok {
		return key
	}
	for _, part := range parts(&key) {
		if raw := members[part.name]; raw != nil && raw.Kind() != jsontext.KindNull {
			if raw.Kind() != jsontext.KindString {
				p.wrong.Add(at+"."+part.name, "must be a text")
			}
			*part.of = strings.TrimSpace(text(raw))
		}
	}
	CheckKey(&p.wrong, at, key)
	return key
}

// CheckKey adds the errors of a key. At is the name of its field.
func CheckKey(wrong *field.Errors, at string, key event.SpendKey) {
	if key == (event.SpendKey{}) {
		wrong.Add(at, "must have one to four of source, utmSource, utmMedium and utmCampaign")
	}
	if key.Source != "" && !slices.Contains(lead.Sources(), key.Source) {
		wrong.Add(at+".source", "must be one of "+strings.Join(lead.Sources(), ", "))
	}
	for _, part := range parts(&key) {
		if utf8.RuneCountInString(*part.of) > maxKey {
			wrong.Add(at+"."+part.name, "must have at most 200 characters")
		}
	}
}

// part is a member of a key.
type part struct {
	name string
	of   *string
}

func parts(key *event.SpendKey) [4]part {
	return [...]part{
		{"source", &key.Source}, {"utmSource", &key.UTMSource}, {"utmMedium", &key.UTMMedium},
		{"utmCampaign", &key.UTMCampaign},
	}
}

// object reads an object that has no other members.
func (p *parser) object(at string, raw jsontext.Value, names ...string) (map[string]jsontext.Value, bool) {
	var members map[string]jsontext.Value
	if raw.Kind() != jsontext.KindBeginObject || json.Unmarshal(raw, &members) != nil {
		p.wrong.Add(at, "must be an object")
		return nil, false
	}
	field.Only(&p.wrong, at+".", members, names...)
	return members, true
}

// text returns a text without its quotes, empty for any other value.
func text(raw jsontext.Value) (value string) {
	if raw.Kind() == jsontext.KindString {
		_ = json.Unmarshal(raw, &value) // which was parsed before
	}
	return value
}

// ParseDay reads a day, such as 2026-01-31. The error's text suits the caller.
func ParseDay(written string) (string, error) {
	day, err := time.Parse(time.DateOnly, written)
	if err != nil || day.Year() < 1970 {
		return "", errDay
	}
	return day.Format(time.DateOnly), nil
}

var errDay = errors.New("must be a day such as 2026-01-31")

func parseAmount(raw jsontext.Value, currency string) (string, error) {
	var amount lead.Amount
	var err error
	switch raw.Kind() {
	case jsontext.KindNumber:
		amount, err = lead.AmountFromNumber(string(raw))
	case jsontext.KindString:
		amount, err = ParseAmount(text(raw), currency)
	default:
		return "", errAmount
	}
	return amount.String(), err
}

var errAmount = errors.New("must be a decimal such as 12.50")
