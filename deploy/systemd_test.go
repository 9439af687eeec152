package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheUnitStopsLaterThanTheServiceDoes(t *testing.T) {
	t.Parallel()
	raw := text(t, "systemd/leadlog.service")
	seconds := func(pattern string) int {
		found := regexp.MustCompile(pattern).FindStringSubmatch(raw)
		require.NotNil(t, found, pattern)
		n, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		return n
	}
	require.Greater(t, seconds(`TimeoutStopSec=(\d+)s`), seconds(`LEADLOG_DRAIN=(\d+)s`)+20)
}

// While its database is away the program ends as soon as it is started, and is started again after a second.
func TestTheUnitIsStartedAgainHoweverLongTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	unit, _, _ := strings.Cut(text(t, "systemd/leadlog.service"), "[Service]")
	require.Contains(t, unit, "\nStartLimitIntervalSec=0\n")
}

// Where systemd is, it has the last word: that it understands every line, and how much the service is exposed.
func TestSystemdUnderstandsTheUnit(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("no systemd on this machine: the unit was only read")
		return
	}
	raw := text(t, "systemd/leadlog.service")
	unit := filepath.Join(t.TempDir(), "leadlog.service")
	program, err := os.Executable() // the one that it names need not be installed here
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(unit, []byte(strings.ReplaceAll(raw, "/usr/local/bin/leadlog", program)), 0o644))
	output, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", unit).CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.NotContains(t, string(output), "leadlog.service:", "a line that systemd does not understand")
	output, err = exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--threshold=20", unit).CombinedOutput()
	require.NoError(t, err, "more exposed than 2.0 of 10:\n%s", output)
}
