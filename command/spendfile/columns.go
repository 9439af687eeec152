package spendfile

import (
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/leadlog/leadlog/command/contact"
)

// Fields of columns. Those of a key are named as in a row of spend.
const (
	day         = "day"
	start       = "start" // of the days that a row is about
	end         = "end"   // likewise, the last one
	source      = "source"
	utmSource   = "utmSource"
	utmMedium   = "utmMedium"
	utmCampaign = "utmCampaign"
	amount      = "amount"
	currency    = "currency"
	leftOut     = ""

	campaign = "campaign" // the name of a campaign of a platform, which is utmCampaign unless there is such a column
	period   = "period"   // other than a day
)

// Fields returns what a column may become.
func Fields() []string {
	return []string{day, start, end, source, utmSource, utmMedium, utmCampaign, amount, currency}
}

// keyFields are the fields of a key.
var keyFields = []string{source, utmSource, utmMedium, utmCampaign}

// Platforms whose exports are recognised, by their names.
const (
	Meta     = "Meta Ads Manager"
	Google   = "Google Ads"
	LinkedIn = "LinkedIn Campaign Manager"
)

// sourceOf are the sources of leads that platforms bring. Leads of LinkedIn have no source of their own.
var sourceOf = map[string]string{Meta: "facebook_ad", Google: "google_ad"}

//go:embed dictionary.tsv
var dictionaryTable string

// dictionary has the fields of names of columns, by their keys.
var dictionary = func() map[string]string {
	fields, err := contact.ParseDictionary[string]("dictionary.tsv", dictionaryTable,
		func(string, string) bool { return false })
	if err != nil {
		panic(err)
	}
	return fields
}()

// columns are those of a table.
type columns struct {
	header   []string
	fields   []string       // of each column
	of       map[string]int // columns by their fields
	platform string
	currency string // in the name of the amount: Amount spent (INR)
}

// mapColumns finds what each column of a header is: as given by its name, else by the dictionary.
func mapColumns(header []string, given map[string]string) (columns, error) {
	c := columns{header: header, fields: make([]string, len(header)), of: map[string]int{}}
	named := map[string]bool{} // by the dictionary, with programs
	for i, name := range header {
		found := dictionary[contact.NameKey(contact.WithoutRemarks(name))]
		named[found] = true
		c.fields[i], _, _ = strings.Cut(found, ".")
	}
	c.platform = platformOf(named)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		i := slices.IndexFunc(header, func(h string) bool { return h == name })
		if i < 0 {
			i = slices.IndexFunc(header, func(h string) bool { return contact.NameKey(h) == contact.NameKey(name) })
		}
		if i < 0 {
			return c, &OptionError{fmt.Errorf("there is no column %q; the file has %q", name, header)}
		}
		field := given[name]
		for other := range c.fields {
			if c.fields[other] == field || field == utmCampaign && c.fields[other] == campaign {
				c.fields[other] = leftOut
			}
		}
		c.fields[i] = field
	}
	return c, c.index()
}

func platformOf(named map[string]bool) string {
	switch {
	case named["amount.meta"]:
		return Meta
	case named["amount.linkedin"]:
		return LinkedIn
	case named["amount.google"] && named["currency.google"]:
		return Google
	}
	return ""
}

// index sorts the columns by their fields, of which each has one.
func (c *columns) index() error {
	if !slices.Contains(c.fields, utmCampaign) {
		for i, field := range c.fields {
			if field == campaign {
				c.fields[i] = utmCampaign
			}
		}
	}
	if slices.Contains(c.fields, day) { // the report's first and last day say nothing more
		for i, field := range c.fields {
			if field == start || field == end {
				c.fields[i] = leftOut
			}
		}
	}
	for i, field := range c.fields {
		if !slices.Contains(Fields(), field) {
			continue
		}
		if first, twice := c.of[field]; twice {
			return &OptionError{fmt.Errorf("columns %q and %q both look like the %s: rename one", c.header[first],
				c.header[i], field)}
		}
		c.of[field] = i
	}
	if i, has := c.of[amount]; has {
		if code := codeInName.FindStringSubmatch(c.header[i]); code != nil {
			c.currency = strings.ToUpper(code[1])
		}
	}
	return nil
}

// codeInName is a currency in the name of a column.
var codeInName = regexp.MustCompile(`\(([A-Za-z]{3})\)`)

func (c *columns) has(field string) bool {
	_, has := c.of[field]
	return has
}

// dated reports whether a column has days.
func (c *columns) dated() bool { return c.has(day) || c.has(start) }

// name returns the name of the column of a field.
func (c *columns) name(field string) string { return c.header[c.of[field]] }

// cell returns the cell of a field, without blank space around it; empty if there is no such column.
func (c *columns) cell(cells []string, field string) string {
	i, has := c.of[field]
	if !has {
		return ""
	}
	return strings.TrimSpace(cells[i])
}

// missing is why a table cannot be read whose columns lack a day, a key or an amount; nil if they do not.
func (c *columns) missing(set map[string]string) error {
	if !c.dated() {
		if i := slices.Index(c.fields, period); i >= 0 {
			return fmt.Errorf("column %q is not a day: export the report by day", c.header[i])
		}
		return fmt.Errorf("no column is a day; the file has %q: export the report by day, or name its column day",
			c.header)
	}
	if !c.has(amount) {
		return fmt.Errorf("no column is an amount; the file has %q: name its column amount", c.header)
	}
	keyed := sourceOf[c.platform] != "" || len(set) > 0
	for _, field := range keyFields {
		keyed = keyed || c.has(field)
	}
	if !keyed {
		return fmt.Errorf("no column is a source or a campaign; the file has %q: name a column %s", c.header,
			strings.Join(keyFields, " or "))
	}
	return nil
}
