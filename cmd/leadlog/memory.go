package main

import (
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// Where Linux says how much memory this process may use: as a container, by either version of control groups, and at most.
const (
	groupMemory    = "/sys/fs/cgroup/memory.max"
	oldGroupMemory = "/sys/fs/cgroup/memory/memory.limit_in_bytes"
	machineMemory  = "/proc/meminfo"
)

// limitMemory makes the garbage collector work harder instead of letting the process grow beyond three quarters of the
// container's memory, or of the machine's. GOMEMLIMIT, if set, is left alone. It returns the limit in bytes, or math.MaxInt64
// if there is none.
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

// memory is the least of what the files tell.
func memory(read func(string) ([]byte, error)) int64 {
	most := int64(math.MaxInt64)
	for _, name := range []string{groupMemory, oldGroupMemory} {
		if text, err := read(name); err == nil { // "max" is no number
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

// Bounds of what requests may hold in memory together.
const (
	leastBodies = 16 << 20
	mostBodies  = 256 << 20
)

// bodies is how much of a memory limit the bodies of requests may take, and those of batches again as much. Decoding takes
// several times as much as the body.
func bodies(limit int64) int64 { return min(max(limit/16, leastBodies), mostBodies) }
