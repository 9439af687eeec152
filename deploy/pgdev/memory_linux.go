package pgdev

import (
	"os"
	"syscall"
)

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
