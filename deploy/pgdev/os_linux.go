package pgdev

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// isPostgres reports whether a process is the PostgreSQL of a cluster, by its working directory. A zombie has none.
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

// testBytes is several times the size of the whole test suite's databases and their log.
const testBytes = 1 << 30

// tempDir is the directory of files in memory, if it is large enough. In containers it seldom is.
func tempDir() string {
	const dir = "/dev/shm"
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < testBytes {
		return os.TempDir()
	}
	return dir
}
