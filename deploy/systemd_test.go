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

func TestUnit_StopTimeoutExceedsDrain(t *testing.T) {
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

// While its database is down, the program exits at each start, and systemd restarts it after a second, without limit.
func TestUnit_RestartsWithoutLimit(t *testing.T) {
	t.Parallel()
	unit, _, _ := strings.Cut(text(t, "systemd/leadlog.service"), "[Service]")
	require.Contains(t, unit, "\nStartLimitIntervalSec=0\n")
}

// systemd, where it is installed, checks the unit's lines and how exposed the service is.
func TestUnit_SystemdAcceptsUnit(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("systemd is not installed: the unit was only read")
		return
	}
	raw := text(t, "systemd/leadlog.service")
	unit := filepath.Join(t.TempDir(), "leadlog.service")
	program, err := os.Executable() // the unit's program need not be installed
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(unit, []byte(strings.ReplaceAll(raw, "/usr/local/bin/leadlog", program)), 0o644))
	output, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", unit).CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.NotContains(t, string(output), "leadlog.service:", "systemd rejects a line")
	output, err = exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true",
		"--threshold=20", unit).CombinedOutput()
	require.NoError(t, err, "more exposed than 2.0 of 10:\n%s", output)
}
