package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The output of make bench has each row of performance.md, with the same label.
func TestSummary_HasRowsOfPerformanceDocument(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		source.Write(text)
	}
	document, err := os.ReadFile("../../deploy/docs/performance.md")
	require.NoError(t, err)
	_, rows, found := strings.Cut(string(document), "| what | figure | aim |\n|---|---|---|\n")
	require.True(t, found)
	rows, _, _ = strings.Cut(rows, "\n\n")
	for row := range strings.Lines(rows) {
		cells := strings.Split(row, " | ")
		require.Len(t, cells, 3)
		require.Contains(t, source.String(), `row("`+strings.TrimPrefix(cells[0], "| ")+`"`)
	}
}
