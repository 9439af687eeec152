package leadfile

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/lead"
)

// Fields that a column may be, besides metadata.KEY and customFields.KEY. First and last name are joined to a name when there is
// no name.
const (
	name, firstName, lastName = "name", "firstName", "lastName"
	metadata, customFields    = "metadata", "customFields"
	leftOut                   = "" // set by the service itself only, so not imported
)

// columnNames are further names, simplified, that the columns of a field have in exports of CRMs. Of several columns of a field, the
// first that has a value in a row counts.
var columnNames = map[string][]string{
	name:      {"contactname", "fullname", "leadname", "customername", "displayname"},
	firstName: {"givenname", "forename", "fname"},
	lastName:  {"surname", "familyname", "lname"},
	"phone": {
		"phonenumber", "phoneno", "mobile", "mobilephone", "mobilenumber", "mobileno", "cell", "cellphone",
		"contactnumber", "contactno", "telephone", "tel", "whatsapp", "whatsappnumber",
	},
	"email":            {"emailaddress", "emailid", "primaryemail", "mail"},
	"status":           {"leadstatus", "stage", "leadstage", "pipelinestage"},
	"leadTemperature":  {"temperature", "rating", "leadrating"},
	"opportunityValue": {"dealvalue", "dealamount", "opportunityamount", "amount", "value"},
	customFields:       {"industrydata", "fields"},
}

// columns are the fields of a table in the order in which messages list them, each with the simplified names of its columns.
var columns = func() (list []column) {
	fields := slices.Insert(lead.FieldNames(), 1, firstName, lastName) // after the name
	for _, field := range append(fields, "visitorId", metadata, customFields) {
		list = append(list, column{field, append([]string{strings.ToLower(field)}, columnNames[field]...)})
	}
	return append(list,
		column{metadata + ".source", []string{"source", "leadsource", "originalsource"}},
		column{metadata + ".ip", []string{"ip", "ipaddress"}},
		column{metadata + ".userAgent", []string{"useragent"}},
		column{leftOut, []string{"leadid", "contactuid", "opportunityid", "createdat", "updatedat", "accountid"}},
	)
}()

type column struct {
	field string
	names []string
}

// Columns maps the columns of a table to fields.
type Columns struct {
	Header []string
	Fields []string // of each column; empty: left out
	order  []int    // columns, those first that count first
}

// MapColumns finds the field of each column by the column's name. Given, from the name of a column to a field, takes precedence.
// A column with an unknown name is a custom field; a column without a name is left out.
func MapColumns(header []string, given map[string]string) (Columns, error) {
	c := Columns{Header: header, Fields: make([]string, len(header))}
	rank := make([]int, len(header)) // among the names of a field; columns of given come first
	for i, column := range header {
		if column != "" && slices.Contains(header[:i], column) {
			return Columns{}, fmt.Errorf("two columns are called %q: rename one", column)
		}
		c.Fields[i], rank[i] = fieldOfColumn(column)
		c.order = append(c.order, i)
	}
	for column, field := range given {
		i := find(header, column)
		if i < 0 {
			return Columns{}, fmt.Errorf("there is no column %q; the file has %q", column, header)
		}
		if !valid(field) {
			return Columns{}, fmt.Errorf("there is no field %q: a column may be %s", field, strings.Join(fieldNames(), ", "))
		}
		c.Fields[i], rank[i] = field, -1
	}
	slices.SortStableFunc(c.order, func(a, b int) int { return rank[a] - rank[b] })
	return c, nil
}

func find(header []string, column string) int {
	if i := slices.Index(header, column); i >= 0 {
		return i
	}
	return slices.IndexFunc(header, func(h string) bool { return simple(h) == simple(column) })
}

func fieldNames() []string {
	var names []string
	for _, c := range columns {
		if c.field != leftOut && !strings.Contains(c.field, ".") {
			names = append(names, c.field)
		}
	}
	return append(names, metadata+".KEY", customFields+".KEY", "or nothing, to be left out")
}

func valid(field string) bool {
	if parent, key, nested := strings.Cut(field, "."); nested {
		return key != "" && (parent == metadata || parent == customFields)
	}
	return slices.ContainsFunc(columns, func(c column) bool { return c.field == field })
}

// simple returns a column's name without case, spaces and punctuation.
func simple(column string) string {
	return strings.NewReplacer(" ", "", "_", "", "-", "", ".", "").Replace(strings.ToLower(column))
}

func fieldOfColumn(column string) (field string, rank int) {
	plain := simple(column)
	if plain == "" {
		return leftOut, 0
	}
	for _, c := range columns {
		if rank := slices.Index(c.names, plain); rank >= 0 {
			return c.field, rank
		}
	}
	if campaign, ok := strings.CutPrefix(plain, "utm"); ok && campaign != "" {
		return metadata + ".utm_" + campaign, 0
	}
	if plain == "gclid" || plain == "fbclid" {
		return metadata + "." + plain, 0
	}
	return customFields + "." + column, 0
}

// CellError is why a cell is invalid.
type CellError struct {
	Column string
	Err    error
}

func (e *CellError) Error() string { return e.Column + " " + e.Err.Error() }

// Unwrap returns the reason.
func (e *CellError) Unwrap() error { return e.Err }

var errNotObject = errors.New("must be a JSON object")

// Body turns a row into the body of a capture. Blank cells are left out. When a field already has a value from another column, the
// cell becomes a custom field. The error is a *CellError.
func (c Columns) Body(cells []string) (jsontext.Value, error) {
	b := body{plain: map[string]string{}, nested: map[string]map[string]jsontext.Value{metadata: {}, customFields: {}}}
	for _, i := range c.order {
		cell := withoutGuard(cells[i])
		if c.Fields[i] == leftOut || strings.TrimSpace(cell) == "" {
			continue
		}
		if err := b.put(c.Fields[i], c.Header[i], cell); err != nil {
			return nil, &CellError{c.Header[i], err}
		}
	}
	return b.encode()
}

// body is the body of a capture while it is built.
type body struct {
	plain  map[string]string
	nested map[string]map[string]jsontext.Value
}

func (b body) put(field, column, cell string) error {
	parent, key, nested := strings.Cut(field, ".")
	switch {
	case field == metadata || field == customFields:
		var members map[string]jsontext.Value
		if json.Unmarshal([]byte(cell), &members) != nil {
			return errNotObject
		}
		for key, value := range members {
			if _, exists := b.nested[field][key]; !exists {
				b.nested[field][key] = value
			}
		}
	case nested:
		if _, exists := b.nested[parent][key]; exists {
			parent, key = customFields, column
		}
		b.nested[parent][key] = quoted(cell)
	case b.plain[field] != "":
		b.nested[customFields][column] = quoted(cell)
	default:
		b.plain[field] = cell
	}
	return nil
}

func (b body) encode() (jsontext.Value, error) {
	b.joinNames()
	members := map[string]any{}
	for field, value := range b.plain {
		members[field] = value
	}
	for field, nested := range b.nested {
		if len(nested) > 0 {
			members[field] = nested
		}
	}
	return json.Marshal(members, json.Deterministic(true))
}

// joinNames joins first and last name to the name. If there already is a name, they become custom fields.
func (b body) joinNames() {
	var parts []string
	for _, field := range []string{firstName, lastName} {
		if part := strings.TrimSpace(b.plain[field]); part != "" {
			parts = append(parts, part)
			if b.plain[name] != "" {
				b.nested[customFields][field] = quoted(part)
			}
		}
		delete(b.plain, field)
	}
	if b.plain[name] == "" && len(parts) > 0 {
		b.plain[name] = strings.Join(parts, " ")
	}
}

func quoted(text string) jsontext.Value {
	value, _ := jsontext.AppendQuote(nil, text) // the only error is about invalid UTF-8, which it replaces
	return value
}

// withoutGuard removes what spreadsheets and exports put around a cell so that it is not read as a number or a formula: ="…", and an
// apostrophe before a formula or digits, also in a part of the cell.
func withoutGuard(cell string) string {
	if inside, ok := strings.CutPrefix(cell, `="`); ok && strings.HasSuffix(inside, `"`) && len(inside) > 1 {
		return strings.ReplaceAll(inside[:len(inside)-1], `""`, `"`)
	}
	if !strings.Contains(cell, "'") {
		return cell
	}
	cell = firstDefused.ReplaceAllString(cell, "$1")
	return innerDefused.ReplaceAllString(cell, "$1$2")
}

// notShown are the characters that may precede a formula, as in package export.
const notShown = `['"\p{Cf}\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\x{34f}\x{115f}\x{1160}\x{17b4}\x{17b5}\x{180b}-\x{180f}\x{3164}\x{fe00}-\x{fe0f}\x{ffa0}\x{e0000}-\x{e0fff}]*`

var (
	firstDefused = regexp.MustCompile(`^'(` + notShown + `[=+\-@\t\r\n＝＋－＠0-9])`)
	innerDefused = regexp.MustCompile(`([;\t\r\n])'(` + notShown + `[=+\-@＝＋－＠])`)
)
