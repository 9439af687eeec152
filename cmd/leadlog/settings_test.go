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

func TestTheTableOfSettingsHasEverySettingAndItsDefault(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/docs/commands.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(text), "\n## Settings\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var told []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`LEADLOG_.*?) \\|").FindAllStringSubmatch(table, -1) {
		told = append(told, regexp.MustCompile(`LEADLOG_\w+`).FindAllString(row[1], -1)...)
	}
	parser, err := kong.New(&commands{})
	require.NoError(t, err)
	require.ElementsMatch(t, slices.Compact(slices.Sorted(slices.Values(settingsOf(parser.Model)))), told)
	require.NoError(t, kong.Visit(parser.Model, func(node kong.Visitable, next kong.Next) error {
		if flag, is := node.(*kong.Flag); is && flag.HasDefault {
			for _, variable := range flag.Envs {
				require.Regexp(t, "(?m)^.*`"+variable+"`.*`"+regexp.QuoteMeta(flag.Default)+"`", table)
			}
		}
		return next(nil)
	}))
}

func TestOriginsAndPathsThatBrowsersSendAreTaken(t *testing.T) {
	t.Parallel()
	var c checker
	origins := []string{"https://example.com", "http://localhost:3000", "https://xn--mnchen-3ya.de:8443", "http://[::1]:8080", "http://127.0.0.1", "https://a_b.example"}
	require.Equal(t, origins, c.origins("LEADLOG_CORS_ORIGINS", strings.Join(origins, ", ")))
	for given, prefix := range map[string]string{"": "", "/": "", "/crm": "/crm", "/crm/": "/crm", "/a-b/c_d~e.f": "/a-b/c_d~e.f"} {
		require.Equal(t, prefix, c.basePath(given), given)
	}
	require.NoError(t, c.Err())
}
