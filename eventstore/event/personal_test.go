package event

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestClasses_Golden lists every field of every type. A new field has to say whether it is personal, and a changed
// class is seen in review.
func TestClasses_Golden(t *testing.T) {
	t.Parallel()
	const golden = "testdata/personal.txt"
	var list strings.Builder
	for _, name := range Catalogue() {
		classes, known := Classes(name)
		require.True(t, known)
		aboutPerson := slices.ContainsFunc([]string{"lead.", "visitor.", "arrival."}, func(p string) bool {
			return strings.HasPrefix(name, p)
		})
		for _, member := range slices.Sorted(maps.Keys(classes)) {
			class := classes[member]
			if aboutPerson {
				require.Contains(t, []Class{Plain, Personal, Content}, class,
					"%s: the tag personal of %s", name, member)
			} else {
				require.Empty(t, class, "%s is not about a person: the tag personal of %s", name, member)
				class = "-"
			}
			fmt.Fprintln(&list, name, member, class)
		}
	}
	if *writeMissing {
		require.NoError(t, os.WriteFile(golden, []byte(list.String()), 0o644))
	}
	checkedIn, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(checkedIn), list.String())
}
