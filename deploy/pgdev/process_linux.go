package pgdev

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// isPostgres compares the working directory: PostgreSQL's is its data directory, and a zombie has none.
func isPostgres(pid int, cluster string) bool {
	proc := "/proc/" + strconv.Itoa(pid)
	name, err := os.ReadFile(proc + "/comm")
	if err != nil || !strings.HasPrefix(string(bytes.TrimSpace(name)), "postgres") {
		return false
	}
	cwd, err := os.Stat(proc + "/cwd")
	if err != nil {
		return false
	}
	data, err := os.Stat(cluster)
	return err == nil && os.SameFile(cwd, data)
}
