package deploy

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheRunbookHasEveryAlertAndNoOther(t *testing.T) {
	t.Parallel()
	raw := text(t, "docs/runbook.md")
	var told, want []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(Leadlog[A-Za-z]+)` \\|").FindAllStringSubmatch(raw, -1) {
		told = append(told, row[1])
	}
	for _, group := range alerts(t).Groups {
		for _, rule := range group.Rules {
			want = append(want, rule.Alert)
		}
	}
	require.Equal(t, want, told)
}
