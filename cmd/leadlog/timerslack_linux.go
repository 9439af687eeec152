package main

import (
	"os"
	"runtime"
	"syscall"
	"time"
)

// timerSlack is how much longer than it asked for Linux may let a thread sleep; 50 µs unless said otherwise. A thread of Go's
// runtime looks after the others, and as long as requests come and go it sleeps 20 µs at a time. With 50 µs more that was
// 5,000 wake-ups a second, each of which may push another thread off its processor: a seventh of what a capture costs this
// process at half the saturated rate, and a quarter with one caller at a time. What this program itself waits for by the
// clock is longer.
const timerSlack = time.Millisecond

// slackened is in the environment of a process that begins for the second time.
const slackened = "LEADLOG_TIMERS_SLACKENED"

// slackenTimers has the process begin again, with the slack. Threads take it over from the thread that makes them, and the
// runtime makes its own before any code of ours. Where that cannot be, everything works all the same.
func slackenTimers() {
	if os.Getenv(slackened) != "" {
		_ = os.Unsetenv(slackened) // nobody who is started from here is meant
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	path, err := os.Executable()
	if err != nil || threadSlack() >= timerSlack {
		return
	}
	if _, _, refused := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_TIMERSLACK, uintptr(timerSlack), 0); refused == 0 {
		_ = syscall.Exec(path, os.Args, append(os.Environ(), slackened+"=1"))
	}
}

// threadSlack is that of the thread that asks.
func threadSlack() time.Duration {
	slack, _, _ := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_GET_TIMERSLACK, 0, 0) // cannot fail
	return time.Duration(slack)
}
