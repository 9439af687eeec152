package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

func TestTheTableOfSettingsHasEverySettingAndItsDefault(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/commands.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(text), "\n## Settings\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var told []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`LEADLOG_.*?) \\|").FindAllStringSubmatch(table, -1) {
		told = append(told, regexp.MustCompile(`LEADLOG_\w+`).FindAllString(row[1], -1)...)
	}
	parser, err := kong.New(&service{})
	require.NoError(t, err)
	var there []string
	for _, flag := range parser.Model.Flags {
		for _, variable := range flag.Envs {
			there = append(there, variable)
			if flag.HasDefault {
				require.Regexp(t, "(?m)^.*`"+variable+"`.*`"+regexp.QuoteMeta(flag.Default)+"`", table)
			}
		}
	}
	require.ElementsMatch(t, there, told)
}
