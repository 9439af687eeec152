package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// leastHeap is how large the heap may grow before the garbage collector runs. With 64 connections capturing, a quarter of that
// is live. A collection costs by what is live, so collecting a third as often saves time; with everything outside of the heap
// the process stays under 128 MiB.
const leastHeap = 64 << 20 // bytes

const liveHeap = "/gc/heap/live:bytes"

// tuneCollector has the collector wait until the heap has grown to leastHeap; once more than two thirds of that is live, until
// there is half as much garbage as is live. Whatever is made while the collector marks counts as live until its next run, and on
// a busy machine that is as much again as really is: waiting for an equal amount of garbage cost 20 MiB that were never used.
// GOGC, if it is set, is left alone.
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

// gcPercent is the GOGC for so many bytes that are live, in steps of a quarter: to set it stops the program for a moment.
func gcPercent(live uint64) int {
	if live == 0 { // before the first collection
		live = leastHeap / 8
	}
	return int(min(max(leastHeap*4/live, 6), 64)-4) * 25
}
