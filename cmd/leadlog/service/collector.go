package service

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// leastHeap is how large the heap may grow before the garbage collector runs. With 64 connections capturing, a quarter of that
// is live. The cost of a collection depends on what is live, so collecting a third as often saves time. Together with all
// memory outside of the heap, the process stays under 128 MiB.
const leastHeap = 64 << 20 // bytes

const liveHeap = "/gc/heap/live:bytes"

// tuneCollector makes the garbage collector wait until the heap has grown to leastHeap. Once more than two thirds of that are
// live, it waits until there is half as much garbage as there is live. Not as much, which is Go's default: whatever is allocated
// while the collector marks counts as live until its next run, on a busy machine as many bytes again as are really live, and
// this cost 20 MiB that were never used. GOGC, if set, is left alone.
func tuneCollector() {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: liveHeap}}
	percent := 0
	var collected func(*[64]byte) // runs after each collection, since each finds the bytes unused
	collected = func(marker *[64]byte) {
		metrics.Read(live)
		if next := gcPercent(live[0].Value.Uint64()); next != percent {
			percent = next
			debug.SetGCPercent(percent)
		}
		runtime.SetFinalizer(marker, collected)
	}
	collected(new([64]byte))
}

// gcPercent returns the GOGC for so many live bytes. It goes in steps of 25, because each change stops the program for a moment.
func gcPercent(live uint64) int {
	if live == 0 { // before the first collection
		live = leastHeap / 8
	}
	return int(min(max(leastHeap*4/live, 6), 64)-4) * 25
}
