package deploy

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheRunbookHasEveryAlertAndNoOther(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("runbook.md")
	require.NoError(t, err)
	var told, want []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(Leadlog[A-Za-z]+)` \\|").FindAllStringSubmatch(string(raw), -1) {
		told = append(told, row[1])
	}
	for _, group := range alerts(t).Groups {
		for _, rule := range group.Rules {
			want = append(want, rule.Alert)
		}
	}
	require.Equal(t, want, told)
}
