package leadfile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/lead"
)

// Parents of fields, which a column can be as a JSON object, or by a key.
const (
	metadata     = "metadata"
	customFields = "customFields"
	leftOut      = "" // set by the service itself only, so not imported
	deliveryID   = "deliveryId"
)

// Providers whose exports name a lead like their webhooks, by the kind of the intake.
const (
	Meta   = "meta_lead_ads"
	Google = "google_lead_form"
)

// Options are how a person wants columns to be read, by their names.
type Options struct {
	Map  map[string]string // fields of columns; empty: left out
	Keep []string          // custom fields, whatever their names and values
	At   string            // when the person came
}

// Columns are the columns of a table and what they become.
type Columns struct {
	Header   []string // each name once
	Provider string   // Meta, Google or empty

	columns          []column
	of               map[contact.Field][]int // columns of a field, those first that count first
	phones, emails   []int                   // likewise, of a kind
	country          []int                   // of the phone, then of the person
	custom, metadata []int
	consents         []int
	dates            DateOrder
	now              time.Time
}

type column struct {
	name    string
	field   string // of a capture, metadata.KEY, customFields.KEY or one of package contact; empty: left out
	key     string // of the custom field that it becomes, if its value is not used
	given   bool   // by Options
	asIs    bool   // a contact of something else, or an id: its values are no reason to ask
	consent consentColumn
	dropped bool // one of too many
}

// MapColumns finds the field of each column: as the options say, else by its name. A column with an unknown name is a
// custom field.
func MapColumns(header []string, options Options) (*Columns, error) {
	c := &Columns{Header: unique(header), columns: make([]column, len(header))}
	keys := map[string]bool{}
	fields := contact.FieldsOf(header)
	c.findProvider(header, fields)
	own := slices.Contains(header, "leadTemperature") && slices.Contains(header, "leadId")
	for i, name := range c.Header {
		col := column{name: name, field: string(fields[i]), key: uniqueKey(name, keys)}
		switch field := fields[i]; {
		case own && slices.Contains([]string{"leadId", "contactUID", "opportunityId", "updatedAt", "accountId"}, name):
			col.field = leftOut
		case c.isDeliveryID(header[i]):
			col.field = deliveryID
		case c.Provider == Meta && field == contact.FieldStatus: // of Meta's own list
			col.field, col.asIs = customFields+"."+col.key, true
		case field == contact.FieldNotPerson, field == contact.FieldNotLead, strings.HasSuffix(plain(name), "id") && field == "":
			col.field, col.asIs = customFields+"."+col.key, true
		case consentPart(name) != "" && lead.Length(purposeIn(name)) <= lead.MaxPurpose:
			col.field = consentPart(name) + "." + purposeIn(name)
		case field == contact.FieldConsent:
			col.field = "consent." + cutText(name, lead.MaxPurpose)
		case field == "":
			if col.field = customFields + "." + col.key; isParent(name) {
				col.field = parentOf(name)
			}
		}
		c.columns[i] = col
	}
	if err := c.apply(options); err != nil {
		return nil, err
	}
	c.index()
	return c, nil
}

// unique makes the names of columns differ, and gives one to columns without.
func unique(header []string) []string {
	used, next := map[string]bool{}, map[string]int{}
	names := make([]string, len(header))
	for i, name := range header {
		if name == "" {
			name = "column " + strconv.Itoa(i+1)
		}
		names[i] = name
		for n := max(next[name], 2); used[names[i]]; n++ {
			names[i], next[name] = fmt.Sprintf("%s (%d)", name, n), n+1
		}
		used[names[i]] = true
	}
	return names
}

// uniqueKey returns the key of a custom field for the name of a column: without control characters, at most as long as
// keys may be, and not taken.
func uniqueKey(name string, used map[string]bool) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, name)
	if strings.TrimSpace(name) == "" {
		name = "column"
	}
	key := cutText(name, lead.MaxCustomKey)
	for n := 2; used[key]; n++ {
		suffix := fmt.Sprintf(" (%d)", n)
		key = cutText(name, lead.MaxCustomKey-len(suffix)) + suffix
	}
	used[key] = true
	return key
}

// cutText returns at most so many characters of a text.
func cutText(text string, most int) string {
	if lead.Length(text) <= most {
		return text
	}
	runes := []rune(text)
	return strings.TrimRight(string(runes[:min(most, len(runes))]), " ")
}

// plain returns a name without case, spaces and punctuation.
func plain(name string) string {
	return strings.NewReplacer(" ", "", "_", "", "-", "", ".", "").Replace(strings.ToLower(name))
}

func isParent(name string) bool { return parentOf(name) != "" }

func parentOf(name string) string {
	switch plain(name) {
	case "metadata":
		return metadata
	case "customfields", "industrydata", "fields":
		return customFields
	}
	return ""
}

// findProvider recognises the exports of lead ads: of Meta by the id beside a form's, of Google by the id beside its
// click's.
func (c *Columns) findProvider(header []string, fields []contact.Field) {
	has := func(field contact.Field) bool { return slices.Contains(fields, field) }
	named := func(name string) bool {
		return slices.ContainsFunc(header, func(h string) bool { return plain(h) == name })
	}
	switch {
	case named("id") && has("metadata.form_id"):
		c.Provider = Meta
	case named("leadid") && has("metadata.gclid"):
		c.Provider = Google
	}
}

func (c *Columns) isDeliveryID(name string) bool {
	return c.Provider == Meta && plain(name) == "id" || c.Provider == Google && plain(name) == "leadid"
}

func (c *Columns) apply(options Options) error {
	set := func(name, field string) error {
		i := c.find(name)
		if i < 0 {
			return fmt.Errorf("there is no column %q; the file has %q", name, c.Header)
		}
		if field == customFields+"." {
			field += c.columns[i].key
		}
		c.columns[i].field, c.columns[i].given = field, true
		return nil
	}
	for name, field := range options.Map {
		if !valid(field) {
			return fmt.Errorf("there is no field %q: a column may be %s", field, strings.Join(choices(), ", "))
		}
		if err := set(name, field); err != nil {
			return err
		}
	}
	for _, name := range options.Keep {
		if err := set(name, customFields+"."); err != nil {
			return err
		}
	}
	if options.At == "" {
		return nil
	}
	return set(options.At, string(contact.FieldReceivedAt))
}

func (c *Columns) find(name string) int {
	if i := slices.Index(c.Header, name); i >= 0 {
		return i
	}
	return slices.IndexFunc(c.Header, func(h string) bool { return plain(h) == plain(name) })
}

// FieldNames returns the fields that a column may be, besides metadata.KEY and customFields.KEY. First and last name
// are joined to a name when there is no name. A country is that of the phone, and a custom field.
func FieldNames() []string {
	names := slices.Insert(lead.FieldNames(), 1, string(contact.FieldFirstName), string(contact.FieldLastName))
	for _, field := range []contact.Field{contact.FieldVisitorID, contact.FieldReceivedAt, contact.FieldCountry} {
		names = append(names, string(field))
	}
	return append(names, metadata, customFields)
}

func choices() []string {
	return append(FieldNames(), metadata+".KEY", customFields+".KEY", "consent.PURPOSE", "optOut.PURPOSE",
		"or nothing, to be left out")
}

func valid(field string) bool {
	if parent, key, nested := strings.Cut(field, "."); nested {
		switch parent {
		case metadata, customFields:
			return key != ""
		case "consent", "optOut":
			return key != "" && lead.Length(key) <= lead.MaxPurpose
		}
		return false
	}
	return field == leftOut || slices.Contains(FieldNames(), field)
}

// index sorts the columns by what they become.
func (c *Columns) index() {
	c.of = map[contact.Field][]int{}
	for i, col := range c.columns {
		field := contact.Field(col.field)
		c.of[field] = append(c.of[field], i)
		switch {
		case field.Kind() == contact.FieldPhone:
			c.phones = append(c.phones, i)
		case field.Kind() == contact.FieldEmail:
			c.emails = append(c.emails, i)
		case field == contact.FieldPhoneCountry, field == contact.FieldCountry:
			c.country = append(c.country, i)
		case c.setConsent(i):
			c.consents = append(c.consents, i)
		case strings.HasPrefix(c.columns[i].field, customFields+"."):
			c.custom = append(c.custom, i)
		case strings.HasPrefix(col.field, metadata+"."):
			c.metadata = append(c.metadata, i)
		}
	}
	rank := func(i int) int {
		if c.columns[i].given {
			return -1
		}
		return contact.Field(c.columns[i].field).Rank()
	}
	for _, list := range [][]int{c.phones, c.emails, c.country} {
		slices.SortStableFunc(list, func(a, b int) int { return rank(a) - rank(b) })
	}
	for _, list := range c.of {
		slices.SortStableFunc(list, func(a, b int) int { return min(rank(a), 0) - min(rank(b), 0) })
	}
}

// Fields returns what each column becomes.
func (c *Columns) Fields() []string {
	fields := make([]string, len(c.columns))
	for i, col := range c.columns {
		fields[i] = col.field
	}
	return fields
}

// Contacts reports of each column whether it has phones or emails.
func (c *Columns) Contacts() []bool {
	has := make([]bool, len(c.columns))
	for _, i := range slices.Concat(c.phones, c.emails) {
		has[i] = true
	}
	return has
}
