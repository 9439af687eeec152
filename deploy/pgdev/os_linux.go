package pgdev

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
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

// roomOfTests is several times what the databases of the whole test suite and their log have taken at once, in bytes.
const roomOfTests = 1 << 30

// tempDir is the directory whose files are in memory, when there is room. In a container there seldom is.
func tempDir() string {
	const dir = "/dev/shm"
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < roomOfTests {
		return os.TempDir()
	}
	return dir
}
