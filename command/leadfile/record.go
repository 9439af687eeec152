package leadfile

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
)

// Record is a row as the members of a capture's body.
type Record struct {
	Body       map[string]jsontext.Value
	ReceivedAt time.Time // when the person came; zero: the row does not say
	DeliveryID string    // that the provider of the columns gives the lead; empty for none
	Warnings   field.Warnings
}

// CellError is why a row is invalid because of one cell.
type CellError struct {
	Column string
	Err    error
}

func (e *CellError) Error() string { return e.Column + " " + e.Err.Error() }

// Unwrap returns the reason.
func (e *CellError) Unwrap() error { return e.Err }

var errNotObject = errors.New("must be a JSON object")

// Record turns a row into the body of a capture. Nothing but a missing contact costs the person: a value that cannot
// be used becomes a custom field of its column, with a warning. Of several contacts of a kind the first that can be
// used counts, and the others become custom fields. The error is a *CellError.
func (c *Columns) Record(cells []string, rules lead.Rules) (Record, error) {
	b := builder{
		Columns: c, rules: rules, cells: make([]string, len(cells)),
		plain: map[string]string{}, metadata: map[string]jsontext.Value{}, custom: map[string]jsontext.Value{},
	}
	for i, cell := range cells {
		b.cells[i] = WithoutGuard(cell)
	}
	if err := b.objects(); err != nil {
		return Record{}, err
	}
	b.contacts()
	b.names()
	b.first(contact.FieldStatus, field.StatusUnknown, func(cell string) (string, bool) {
		return account.Stage(rules.Stages, cell)
	})
	b.first(contact.FieldTemperature, field.TemperatureUnknown, temperature)
	b.first(contact.FieldValue, field.ValueUnreadable, func(cell string) (string, bool) {
		_, err := lead.ParseAmount(cell)
		return cell, err == nil
	})
	b.first(contact.FieldVisitorID, field.ValueUnreadable, func(cell string) (string, bool) {
		return cell, lead.Length(cell) <= lead.MaxVisitorID
	})
	b.first(contact.FieldReceivedAt, field.ValueUnreadable, func(cell string) (string, bool) {
		at, ok := c.dates.parse(cell, c.now)
		return at.Format(time.RFC3339Nano), ok
	})
	b.first(deliveryID, field.ValueUnreadable, func(cell string) (string, bool) {
		id := withoutMetaPrefix(strings.TrimSpace(cell))
		return id, lead.Length(id) <= 200 && !roundedID.MatchString(id)
	})
	b.readConsents()
	b.campaign()
	for _, i := range c.custom {
		b.addCustom(i, b.cells[i])
	}
	return b.record(), nil
}

// builder builds the body of a row.
type builder struct {
	*Columns
	rules    lead.Rules
	cells    []string // without guards
	plain    map[string]string
	metadata map[string]jsontext.Value
	custom   map[string]jsontext.Value
	warnings field.Warnings

	consentedAt time.Time // zero: no column of a consent has a time
}

func (b *builder) warn(column int, code, message string) {
	b.warnings.Add(b.columns[column].name, code, message)
}

// objects reads the columns with JSON objects of metadata and custom fields.
func (b *builder) objects() error {
	for _, parent := range []string{metadata, customFields} {
		for _, i := range b.of[contact.Field(parent)] {
			if strings.TrimSpace(b.cells[i]) == "" {
				continue
			}
			members, err := lead.ParseObject([]byte(b.cells[i]))
			if err != nil {
				return &CellError{b.columns[i].name, errNotObject}
			}
			for key, value := range members {
				if parent == metadata {
					b.metadata[key] = value
				} else {
					b.custom[key] = value
				}
			}
		}
	}
	return nil
}

// contacts takes the first email and phone that can be used. If there is none, the first that cannot is left in its
// place, so that the row is refused for it.
func (b *builder) contacts() {
	country := ""
	for _, i := range b.country {
		if b.addCustom(i, b.cells[i]); country == "" && contact.RegionOf(b.cells[i]) != "" {
			country = b.cells[i]
		}
	}
	hint := contact.Hint{From: contact.File, Country: country}
	ignored := b.rules.Ignored
	phone := b.contact(b.phones, func(text string) (string, reading) {
		if contact.PlaceholderPhone(text) && !ignored.HasDigits(text) {
			return "", placeholder
		}
		phone, err := contact.ParsePhone(wholeNumber.ReplaceAllString(text, "$1"), b.rules.Region, hint)
		switch {
		case ignored.HasPhone(phone), err != nil && ignored.HasDigits(text):
			return phone, ignoredContact
		case err != nil:
			return phone, wrong
		case contact.PlaceholderPhone(phone):
			return phone, placeholder
		}
		return phone, usable
	})
	email := b.contact(b.emails, func(text string) (string, reading) {
		email, err := contact.ParseEmail(text)
		switch {
		case err != nil:
			return email, wrong
		case ignored.HasEmail(email):
			return email, ignoredContact
		case contact.PlaceholderEmail(email):
			return email, placeholder
		}
		return email, usable
	})
	none := phone.value == "" && email.value == ""
	b.set(contact.FieldPhone, phone, none)
	b.set(contact.FieldEmail, email, none)
}

// reading is what a contact is good for.
type reading int

const (
	usable reading = iota
	wrong
	placeholder    // of no person
	ignoredContact // on the account's list
)

// set sets the contact of a kind. None says that the row has no usable one of either.
func (b *builder) set(kind contact.Field, found chosen, none bool) {
	switch {
	case found.value != "":
		b.plain[string(kind)] = found.value
	case none && len(found.wrong) > 0:
		b.plain[string(kind)] = b.cells[found.wrong[0]]
		found.wrong = found.wrong[1:]
	case none && found.ignored != "":
		b.plain[string(kind)] = found.ignored
	}
	for _, i := range found.wrong {
		b.warn(i, field.ValueUnreadable, "cannot be used as "+string(kind)+", and is kept as a custom field")
		b.addCustom(i, b.cells[i])
	}
}

// wholeNumber is a number that a program has written with decimals.
var wholeNumber = regexp.MustCompile(`^(\d+)\.0+$`)

// chosen is the contact of a kind, and the columns with values that cannot be used.
type chosen struct {
	value   string
	wrong   []int
	ignored string // the first that is on the account's list
}

// separators separate several contacts in one cell.
var separators = strings.NewReplacer(":::", "\n", ";", "\n", ",", "\n", " / ", "\n", "|", "\n")

// contact returns the first usable value of columns. Read returns one in canonical form, and what it is good for. The
// others become custom fields.
func (b *builder) contact(columns []int, read func(text string) (string, reading)) (found chosen) {
	for _, i := range columns {
		cell := b.cells[i]
		if contact.Placeholder(cell) {
			continue
		}
		if value, as := read(cell); as == usable { // as most are
			switch {
			case found.value == "":
				found.value = value
			case value != found.value:
				b.addCustom(i, cell)
			}
			continue
		}
		parts := []string{cell}
		if strings.ContainsAny(cell, ":;,/|\n") {
			parts = strings.Split(separators.Replace(cell), "\n")
		}
		var further []string
		anyWrong := false
		for _, part := range parts {
			if part = strings.TrimSpace(part); contact.Placeholder(part) {
				continue
			}
			value, as := read(part)
			switch {
			case as == placeholder:
				b.warn(i, field.PlaceholderContact, "is the contact of no person, and was taken as absent")
			case as == ignoredContact:
				found.ignored = cmp.Or(found.ignored, part)
				b.warn(i, field.IgnoredContact, "is on the account's list of ignored contacts, and was taken as absent")
			case as == usable && found.value == "":
				found.value = value
			case as == usable && value == found.value:
			default:
				anyWrong = anyWrong || as == wrong
				further = append(further, part)
			}
		}
		switch {
		case anyWrong && len(further) == len(parts):
			found.wrong = append(found.wrong, i)
		case anyWrong:
			b.warn(i, field.ValueUnreadable, "has a part that cannot be used, and that is kept as a custom field")
			b.addCustom(i, strings.Join(further, "; "))
		case len(further) > 0:
			b.addCustom(i, strings.Join(further, "; "))
		}
	}
	return found
}

// names takes the name, or joins the first and the last one.
func (b *builder) names() {
	for _, i := range b.of[contact.FieldName] {
		b.name(i, b.cells[i])
	}
	var parts []string
	for _, part := range []contact.Field{contact.FieldFirstName, contact.FieldLastName} {
		for n, i := range b.of[part] {
			name := contact.ParseName(b.cells[i])
			if name != "" && n == 0 && b.plain["name"] == "" {
				parts = append(parts, name)
			} else if name != "" {
				b.addCustom(i, b.cells[i])
			}
		}
	}
	if len(parts) > 0 {
		b.setName("name", strings.Join(parts, " "))
	}
}

func (b *builder) name(i int, cell string) {
	name := contact.ParseName(cell)
	switch {
	case name == "" && !contact.Placeholder(cell):
		b.warn(i, field.NotAName, "is not a name, and was taken as absent")
	case name == "":
	case b.plain["name"] == "":
		b.setName(b.columns[i].name, name)
	default:
		b.addCustom(i, cell)
	}
}

func (b *builder) setName(column, name string) {
	b.plain["name"] = b.shortened(column, name, lead.MaxName)
}

func (b *builder) shortened(column, text string, most int) string {
	if len(text) <= most || lead.Length(text) <= most {
		return text
	}
	b.warnings.Add(column, field.ValueShortened, "is longer than a lead can have, and was cut")
	return cutText(text, most)
}

// first sets a field to the first value that can be used. Others become custom fields, with a warning if they cannot
// be.
func (b *builder) first(name contact.Field, code string, read func(cell string) (string, bool)) {
	for _, i := range b.of[name] {
		cell := strings.TrimSpace(b.cells[i])
		if contact.Placeholder(cell) {
			continue
		}
		value, usable := read(cell)
		switch {
		case !usable:
			b.warn(i, code, "cannot be used as "+string(name)+", and is kept as a custom field")
			b.addCustom(i, b.cells[i])
		case b.plain[string(name)] != "":
			b.addCustom(i, b.cells[i])
		default:
			b.plain[string(name)] = value
		}
	}
}

func temperature(cell string) (string, bool) {
	at := slices.IndexFunc(lead.Temperatures(), func(t string) bool { return strings.EqualFold(t, cell) })
	if at < 0 {
		return "", false
	}
	return lead.Temperatures()[at], true
}

// metaPrefix is what exports of Meta put before ids: l of a lead, ag of an ad, as of an ad set, c of a campaign, f of
// a form.
var metaPrefix = regexp.MustCompile(`^(?:l|ag|as|c|f):(\d+)$`)

// roundedID is an id that a spreadsheet has rounded, so that many leads have it.
var roundedID = regexp.MustCompile(`^\d+(?:[.,]\d+)?[eE]\+?\d+$`)

func withoutMetaPrefix(id string) string { return metaPrefix.ReplaceAllString(id, "$1") }

// campaign puts the columns of campaigns and clicks where an intake puts them.
func (b *builder) campaign() {
	size := len(b.metadata[keyConsent])
	for _, i := range b.Columns.metadata {
		col := b.columns[i]
		cell, key := b.cells[i], strings.TrimPrefix(col.field, metadata+".")
		if strings.TrimSpace(cell) == "" || contact.Placeholder(cell) {
			continue
		}
		if b.Provider == Meta {
			cell = withoutMetaPrefix(cell)
		}
		value := quoted(b.shortened(col.name, cell, lead.MaxCustomValue))
		if _, exists := b.metadata[key]; exists {
			b.addCustom(i, cell)
			continue
		}
		size += len(key) + len(value)
		if size > lead.MaxMetadataBytes*3/4 || len(b.metadata) >= lead.MaxMetadataKeys-1 {
			b.warn(i, field.FieldDropped, "is more than a lead's metadata can have, and was left out")
			continue
		}
		b.metadata[key] = value
	}
}

// addCustom keeps a cell as a custom field.
func (b *builder) addCustom(i int, cell string) {
	if strings.TrimSpace(cell) == "" {
		return
	}
	col := b.columns[i]
	key := col.key
	if own, ok := strings.CutPrefix(col.field, customFields+"."); ok {
		key = own
	}
	for n := 2; b.custom[key] != nil; n++ {
		suffix := fmt.Sprintf(" (%d)", n)
		key = cutText(col.key, lead.MaxCustomKey-len(suffix)) + suffix
	}
	if col.dropped || len(b.custom) >= lead.MaxCustomFields {
		b.warn(i, field.FieldDropped, "is more than the 50 custom fields that a lead can have, and was left out")
		return
	}
	if key == col.key && lead.Length(col.name) > lead.MaxCustomKey {
		b.warn(i, field.ValueShortened, "has a name of more than 50 characters, which was cut")
	}
	b.custom[key] = quoted(b.shortened(col.name, cell, lead.MaxCustomValue))
}

func (b *builder) record() Record {
	r := Record{DeliveryID: b.plain[deliveryID], Warnings: b.warnings, ReceivedAt: b.consentedAt}
	if at := b.plain[string(contact.FieldReceivedAt)]; at != "" {
		r.ReceivedAt, _ = time.Parse(time.RFC3339Nano, at)
	}
	delete(b.plain, deliveryID)
	delete(b.plain, string(contact.FieldReceivedAt))
	r.Body = make(map[string]jsontext.Value, len(b.plain)+2)
	for name, value := range b.plain {
		r.Body[name] = quoted(value)
	}
	for parent, members := range map[string]map[string]jsontext.Value{metadata: b.metadata, customFields: b.custom} {
		if len(members) > 0 {
			r.Body[parent], _ = json.Marshal(members, json.Deterministic(true)) // the members are valid
		}
	}
	return r
}

func quoted(text string) jsontext.Value {
	value, _ := jsontext.AppendQuote(nil, text) // the only error is about invalid UTF-8, which it replaces
	return value
}
