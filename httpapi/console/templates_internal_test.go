package console

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An error beside a field is read out with the field only if the field refers to it.
func TestTemplates_LinkErrorsToFields(t *testing.T) {
	t.Parallel()
	faults := regexp.MustCompile(`\{\{template "fault" list ("[\w-]+"|\(print [^)]+\))`)
	part := regexp.MustCompile(`"([\w-]+)"|(\.\w+)`)
	files, err := fs.Glob(templateFiles, "templates/*.html")
	require.NoError(t, err)
	found := 0
	for _, name := range files {
		text, err := fs.ReadFile(templateFiles, name)
		require.NoError(t, err)
		for _, one := range faults.FindAllStringSubmatch(string(text), -1) {
			found++
			id := "" // as in the page's text
			for _, p := range part.FindAllStringSubmatch(one[1], -1) {
				if id += p[1]; p[2] != "" {
					id += "{{" + p[2] + "}}"
				}
			}
			require.True(t, strings.Contains(string(text), "{{faulty "+one[1]) || strings.Contains(string(text), `aria-describedby="`+id+`-fault"`), "%s: %s", name, one[0])
		}
		require.Equal(t, strings.Count(string(text), `template "fault"`), len(faults.FindAllString(string(text), -1)), name)
	}
	require.NotZero(t, found)
}
