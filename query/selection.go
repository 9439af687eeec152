package query

import (
	"strconv"
	"strings"
	"time"
)

// selection is a SELECT statement while it is built.
type selection struct {
	from  string // SELECT … FROM …
	where []string
	order string
	args  []any
	none  bool // nothing can match
}

// and adds a condition. Each ? in it stands for the next of the values.
func (s *selection) and(condition string, values ...any) {
	for _, value := range values {
		if text, ok := value.(string); ok && !storable(text) {
			s.none = true
			value = ""
		}
		s.args = append(s.args, value)
		condition = strings.Replace(condition, "?", "$"+strconv.Itoa(len(s.args)), 1)
	}
	s.where = append(s.where, condition)
}

// equal adds the condition that a column has a value, unless the value is empty.
func (s *selection) equal(column, value string) {
	if value != "" {
		s.and(column+" = ?", value)
	}
}

// within adds the condition that a column is not before one time and is before another; a zero time sets no bound.
func (s *selection) within(column string, since, until time.Time) {
	if !since.IsZero() {
		s.and(column+" >= ?", since)
	}
	if !until.IsZero() {
		s.and(column+" < ?", until)
	}
}

func (s *selection) sql(limit int) string {
	if s.none {
		limit = 0
	}
	return s.from + " WHERE " + strings.Join(s.where, " AND ") +
		" ORDER BY " + s.order + " LIMIT " + strconv.Itoa(limit)
}

var patternEscapes = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// contains returns a LIKE pattern for texts that contain a part, whatever characters the part has.
func contains(part string) string { return "%" + patternEscapes.Replace(part) + "%" }
