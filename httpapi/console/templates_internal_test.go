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
	files, err := fs.Glob(templateFiles, "templates/*.html")
	require.NoError(t, err)
	found := 0
	for _, name := range files {
		text, err := fs.ReadFile(templateFiles, name)
		require.NoError(t, err)
		for _, one := range faults.FindAllStringSubmatch(string(text), -1) {
			found++
			// a fieldset refers to it without being invalid itself
			if strings.Contains(string(text), `aria-describedby="`+strings.Trim(one[1], `"`)+`-fault"`) {
				continue
			}
			require.Contains(t, string(text), "{{faulty "+one[1], name)
		}
		require.Equal(t, strings.Count(string(text), `template "fault"`),
			len(faults.FindAllString(string(text), -1)), name)
	}
	require.NotZero(t, found)
}
