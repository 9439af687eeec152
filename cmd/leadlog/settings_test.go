package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

func TestSettings_TableIsComplete(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/docs/commands.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(text), "\n## Settings\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var reported []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`LEADLOG_.*?) \\|").FindAllStringSubmatch(table, -1) {
		reported = append(reported, regexp.MustCompile(`LEADLOG_\w+`).FindAllString(row[1], -1)...)
	}
	parser, err := kong.New(&commands{})
	require.NoError(t, err)
	require.ElementsMatch(t, slices.Compact(slices.Sorted(slices.Values(settingsOf(parser.Model)))), reported)
	require.NoError(t, kong.Visit(parser.Model, func(node kong.Visitable, next kong.Next) error {
		if flag, is := node.(*kong.Flag); is && flag.HasDefault {
			for _, variable := range flag.Envs {
				require.Regexp(t, "(?m)^.*`"+variable+"`.*`"+regexp.QuoteMeta(flag.Default)+"`", table)
			}
		}
		return next(nil)
	}))
}
