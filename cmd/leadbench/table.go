package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// table is printed as Markdown, aligned.
type table struct {
	rows [][]string
}

func newTable(columns ...string) *table {
	rule := make([]string, len(columns))
	for i := range rule {
		rule[i] = "---"
	}
	return &table{rows: [][]string{columns, rule}}
}

// newSummary is a table whose rows have the labels and aims of deploy/docs/performance.md.
func newSummary() *table { return newTable("what", "figure", "aim") }

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	for _, row := range t.rows {
		fmt.Fprintf(w, "| %s\t|\n", strings.Join(row, "\t| "))
	}
	w.Flush()
}

// median of the rounds' figures; 0 without any.
func median[T float64 | time.Duration](figures []T) T {
	if len(figures) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(figures))[len(figures)/2]
}

// ratio is the median of the ratios within each round, because other load slows down both measurements of a round.
func ratio[T float64 | time.Duration](numerators, denominators []T) float64 {
	ratios := make([]float64, min(len(numerators), len(denominators)))
	for i := range ratios {
		ratios[i] = float64(numerators[i]) / float64(denominators[i])
	}
	return median(ratios)
}

// count has thousands separators.
func count(n float64) string {
	return message.NewPrinter(language.English).Sprintf("%.0f", n)
}

func perSecond(rate float64) string { return count(rate) + " a second" }
func times(ratio float64) string    { return fmt.Sprintf("%.2f", ratio) }
func millis(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}
func seconds(d time.Duration) string           { return fmt.Sprintf("%.1f s", d.Seconds()) }
func mebibytes(n float64) string               { return fmt.Sprintf("%.0f MiB", n) }
func progress(format string, arguments ...any) { fmt.Fprintf(os.Stderr, format+"\n", arguments...) }
