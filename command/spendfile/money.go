package spendfile

import (
	"errors"
	"regexp"
	"strings"

	"github.com/leadlog/leadlog/command/lead"
)

// money reads the amounts of a column, of which some show how the others are written.
type money struct{ commas, dots bool } // a comma, or a dot, marks decimals

var (
	commaDecimals = regexp.MustCompile(`\d,\d{1,2}\D*$|\.\d{3},\d`)
	dotDecimals   = regexp.MustCompile(`\d\.\d{1,2}\D*$|,\d{3}\.\d`)
	// byDots is a number whose dots may group thousands, and byComma one whose comma may mark three decimals.
	byDots  = regexp.MustCompile(`^\D*[1-9]\d{0,2}(\.\d{3})+\D*$`)
	byComma = regexp.MustCompile(`^\D*[1-9]\d{0,2},\d{3}\D*$`)

	errAmbiguous = errors.New("can be read in two ways: write it with two decimals")
)

// sample looks at how a cell is written.
func (m *money) sample(cell string) {
	m.commas = m.commas || commaDecimals.MatchString(cell)
	m.dots = m.dots || dotDecimals.MatchString(cell)
}

// parse reads an amount as package lead does, if it has not another meaning beside the others of its column. The
// error's text suits the caller.
func (m *money) parse(cell string) (lead.Amount, error) {
	switch {
	case byDots.MatchString(cell) && m.commas && !m.dots:
		cell = strings.ReplaceAll(cell, ".", "")
	case byDots.MatchString(cell) && !m.dots && strings.Count(cell, ".") == 1, byComma.MatchString(cell) && m.commas:
		return lead.Amount{}, errAmbiguous
	}
	return lead.ParseAmount(cell)
}
