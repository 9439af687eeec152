//go:build unix && !linux

package pgdev

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// isPostgres reports whether a process is the PostgreSQL of a cluster, by its -D argument. Z marks a zombie.
func isPostgres(pid int, cluster string) bool {
	out, err := exec.Command("ps", "-ww", "-o", "stat=,command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return false
	}
	state, command, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	return !strings.HasPrefix(state, "Z") && strings.Contains(command, "postgres") &&
		strings.Contains(command+" ", "-D "+cluster+" ")
}

func tempDir() string { return os.TempDir() }
