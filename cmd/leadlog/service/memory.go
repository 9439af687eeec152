package service

import (
	"log/slog"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// Files of Linux with memory limits: of the control group, of version 1 or 2, and of the machine. In a container the process's own
// group looks like the root; for a service of systemd it is below the root.
const (
	groups         = "/sys/fs/cgroup"
	groupMemory    = "memory.max"
	oldGroups      = "/sys/fs/cgroup/memory"
	oldGroupMemory = "memory.limit_in_bytes"
	ownGroups      = "/proc/self/cgroup"
	machineMemory  = "/proc/meminfo"
)

// limitMemory makes the garbage collector work harder instead of letting the process grow beyond three quarters of the
// memory of its control group, such as a container, or of the machine's. GOMEMLIMIT, if set, is left alone. It returns the
// limit in bytes, or math.MaxInt64 if there is none.
func limitMemory(log *slog.Logger) int64 {
	if os.Getenv("GOMEMLIMIT") == "" {
		if most := memory(os.ReadFile); most < math.MaxInt64 {
			debug.SetMemoryLimit(most / 4 * 3)
		}
	}
	limit := debug.SetMemoryLimit(-1)
	if limit < math.MaxInt64 {
		log.Info("memory is limited", "bytes", limit)
	}
	return limit
}

// memory returns the least of the limits in these files, in bytes; math.MaxInt64 if there is none.
func memory(read func(string) ([]byte, error)) int64 {
	most := int64(math.MaxInt64)
	for _, name := range limits(read) {
		if text, err := read(name); err == nil { // "max", which is not a number, means no limit
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
				most = min(most, n)
			}
		}
	}
	text, err := read(machineMemory)
	if err != nil {
		return most
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "MemTotal:" {
			if n, err := strconv.ParseInt(fields[1], 10, 64); err == nil && n > 0 {
				most = min(most, n<<10)
			}
		}
	}
	return most
}

// limits returns the files with the limits of the process's control group and of the groups above it.
func limits(read func(string) ([]byte, error)) []string {
	files := []string{path.Join(groups, groupMemory), path.Join(oldGroups, oldGroupMemory)}
	own, _ := read(ownGroups) // one line per hierarchy: its number, its controllers (none in version 2), the group
	for line := range strings.Lines(string(own)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		root, file := groups, groupMemory
		if fields[1] == "memory" {
			root, file = oldGroups, oldGroupMemory
		} else if fields[1] != "" {
			continue
		}
		for group := path.Clean("/" + fields[2]); group != "/"; group = path.Dir(group) {
			files = append(files, path.Join(root, group, file))
		}
	}
	return files
}

// Bounds of bodyBudget, in bytes.
const (
	leastBodies = 16 << 20
	mostBodies  = 256 << 20
)

// bodyBudget returns the maximum size of the bodies of all requests together under a memory limit. Batches have the same again. It is a
// small part of the limit, because decoding needs several times the memory of the body.
func bodyBudget(limit int64) int64 { return min(max(limit/16, leastBodies), mostBodies) }
