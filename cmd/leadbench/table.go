package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// table is what a benchmark tells: aligned, and readable as Markdown.
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

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	for _, row := range t.rows {
		fmt.Fprintf(w, "| %s\t|\n", strings.Join(row, "\t| "))
	}
	w.Flush()
}

// median of what several rounds gave; of none it is 0.
func median[T int | int64 | uint64 | float64 | time.Duration](of []T) T {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// share is the median of what one thing came to of another in each round: what slowed the machine down for one then did so for
// the other.
func share(of, to []float64) float64 {
	ratios := make([]float64, min(len(of), len(to)))
	for i := range ratios {
		ratios[i] = of[i] / to[i]
	}
	return median(ratios)
}

func count(n float64) string     { return fmt.Sprintf("%.0f", n) }
func times(ratio float64) string { return fmt.Sprintf("%.2f", ratio) }
func millis(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}
func mebibytes(n float64) string          { return fmt.Sprintf("%.0f MiB", n) }
func atLeast(goal float64) string         { return fmt.Sprintf("≥ %g", goal) }
func atMost(goal string) string           { return "≤ " + goal }
func say(format string, arguments ...any) { fmt.Fprintf(os.Stderr, format+"\n", arguments...) }
