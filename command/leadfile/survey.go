package leadfile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/lead"
)

// sampled is how many rows are examined for phones and emails, and for the order of dates.
const sampled = 2000

// Survey is what the columns of a table have, and whether its rows can be imported without a question.
type Survey struct {
	Columns []SurveyedColumn
	Rows    int // that were read without an error
	Sampled int // of these, those whose values were examined
	Old     int // rows of persons who came before the time of CountOld
	columns *Columns
	rules   lead.Rules
	dates   []string

	before, now time.Time
	old         map[DateOrder]int // by each order of dates, which is known at the end
}

// SurveyedColumn is what a column becomes, and what it has.
type SurveyedColumn struct {
	Name     string
	Becomes  string   // as --map has it; empty: it is left out
	Examples []string // up to three different ones
	Filled   int      // cells that are not blank
	Emails   int      // of the sampled rows, like the next two
	Phones   int
	sampled  int // cells that are neither blank nor placeholders
}

// NewSurvey returns a survey of no rows.
func (c *Columns) NewSurvey(rules lead.Rules) *Survey {
	s := &Survey{columns: c, rules: rules, Columns: make([]SurveyedColumn, len(c.columns))}
	for i, col := range c.columns {
		s.Columns[i] = SurveyedColumn{Name: col.name, Becomes: becomes(col.field)}
	}
	return s
}

// CountOld has rows counted of persons who came before a time.
func (s *Survey) CountOld(before, now time.Time) {
	s.before, s.now, s.old = before, now, map[DateOrder]int{}
}

// addOld counts a row for each order in which its person came before.
func (s *Survey) addOld(cells []string) {
	for _, order := range []DateOrder{{}, {MonthFirst: true}} {
		for _, i := range s.columns.of[contact.FieldReceivedAt] {
			if at, ok := order.parse(strings.TrimSpace(WithoutGuard(cells[i])), s.now); ok {
				if at.Before(s.before) {
					s.old[order]++
				}
				break
			}
		}
	}
}

// becomes returns the field of a column as --map has it.
func becomes(field string) string {
	if kind := contact.Field(field).Kind(); kind != "" {
		return string(kind)
	}
	if field == string(contact.FieldPhoneCountry) {
		return string(contact.FieldCountry)
	}
	return field
}

// Add adds a row.
func (s *Survey) Add(cells []string) {
	const examples, maxExample = 3, 24
	s.Rows++
	if s.old != nil {
		s.addOld(cells)
	}
	sample := s.Rows <= sampled
	if sample {
		s.Sampled++
	}
	for i, cell := range cells {
		if strings.TrimSpace(cell) == "" {
			continue
		}
		col := &s.Columns[i]
		if col.Filled++; !sample {
			continue
		}
		cell = WithoutGuard(cell)
		if short := cutText(cell, maxExample); len(col.Examples) < examples && !slices.Contains(col.Examples, short) {
			col.Examples = append(col.Examples, short)
		}
		if !contact.Placeholder(cell) {
			col.sampled++
		}
		switch one := firstOf(cell); {
		case strings.Contains(one, "@") && contact.LooksLikeEmail(one):
			col.Emails++
		case contact.LooksLikePhone(one, s.rules.Region):
			col.Phones++
		}
		if col.Becomes == string(contact.FieldReceivedAt) {
			s.dates = append(s.dates, cell)
		}
	}
}

// firstOf returns the first contact of a cell that may have several.
func firstOf(cell string) string {
	if !strings.ContainsAny(cell, ":;,/|\n") {
		return cell
	}
	first, _, _ := strings.Cut(separators.Replace(cell), "\n")
	return strings.TrimSpace(first)
}

// Settle decides what depends on all rows: the order of dates, and which columns are left out because there are too
// many.
func (s *Survey) Settle(now time.Time) {
	c := s.columns
	c.now, c.dates = now, orderOf(s.dates, s.rules.Region)
	s.Old = s.old[c.dates]
	left := lead.MaxCustomFields - max(0, len(c.phones)+len(c.emails)-2)
	for _, i := range c.custom {
		if s.Columns[i].Filled == 0 {
			continue
		}
		if left--; left < 0 {
			c.columns[i].dropped, s.Columns[i].Becomes = true, leftOut
		}
	}
}

// Notes returns what a person should look at before the rows are imported: columns of contacts with values that are
// none.
func (s *Survey) Notes() (notes []string) {
	for _, col := range s.Columns {
		of := map[string]int{string(contact.FieldPhone): col.Phones, string(contact.FieldEmail): col.Emails}
		found, isContact := of[col.Becomes]
		if !isContact || 2*found >= col.sampled {
			continue
		}
		note := fmt.Sprintf("only %d of %d cells of %q are %ss", found, col.sampled, col.Name, col.Becomes)
		if col.Becomes == string(contact.FieldPhone) {
			note += "; a number without + is read by a column of countries, else in the " +
				"account's region, " + s.rules.Region
		}
		notes = append(notes, note)
	}
	return notes
}

// HeaderIsRow reports whether the names of columns look like the values of a row: the file has no header.
func (c *Columns) HeaderIsRow(region string) bool {
	return slices.ContainsFunc(c.Header, func(name string) bool {
		return contact.LooksLikeEmail(name) || contact.LooksLikePhone(name, region)
	})
}

// Questions returns why the rows should not be imported before a person has decided: no column is a contact, or one
// that becomes a custom field has contacts. The first cannot be overruled.
func (s *Survey) Questions() (none bool, contacts []string) {
	c := s.columns
	for i, col := range s.Columns {
		mapped := c.columns[i]
		if mapped.given || mapped.asIs || !strings.HasPrefix(mapped.field, customFields+".") {
			continue
		}
		kind, most := "emails", col.Emails
		if col.Phones > most {
			kind, most = "phones", col.Phones
		}
		if most > 0 && 2*most > col.sampled {
			contacts = append(contacts,
				fmt.Sprintf("column %q has %s in %d of %d cells", col.Name, kind, most, col.sampled))
		}
	}
	return len(c.phones)+len(c.emails) == 0, contacts
}
