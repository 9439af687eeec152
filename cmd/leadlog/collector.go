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

// collectSeldom has the collector wait until the heap has grown to leastHeap, and for half as much garbage as there is live
// once more than two thirds of that is live. What is made while garbage is marked counts as live until the next time, which on
// a machine that is busy is as much again: to wait for as much garbage as that took 20 MiB more than are ever used. GOGC,
// when it is set, is left as it is.
func collectSeldom() {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: liveHeap}}
	percent := 0
	var collected func(*[64]byte) // runs after each collection, since each finds the bytes unused
	collected = func(marker *[64]byte) {
		metrics.Read(live)
		if next := seldom(live[0].Value.Uint64()); next != percent {
			percent = next
			debug.SetGCPercent(percent)
		}
		runtime.SetFinalizer(marker, collected)
	}
	collected(new([64]byte))
}

// seldom is the GOGC for so many bytes that are live, in steps of a quarter: to set it stops the program for a moment.
func seldom(live uint64) int {
	if live == 0 { // before the first collection
		live = leastHeap / 8
	}
	return int(min(max(leastHeap*4/live, 6), 64)-4) * 25
}
