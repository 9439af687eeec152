package main

import (
	"os"
	"runtime"
	"syscall"
	"time"
)

// timerSlack is the time by which Linux may delay the end of a thread's sleep; the default is 50 µs. The monitor thread of Go's runtime
// sleeps 20 µs at a time under load. With the default slack it wakes up 5,000 times a second, and each wake-up may preempt another
// thread. The larger slack saves 6 to 25 % of the processor time of a capture. All timers of this program are longer than it.
const timerSlack = time.Millisecond

// slackened is set in the environment of a process that slackenTimers has started again.
const slackened = "LEADLOG_TIMERS_SLACKENED"

// slackenTimers sets the slack and executes the program again in the same process. A thread inherits the slack of the thread that
// creates it, and the runtime creates its own threads before main. If this fails, the program runs with the default slack.
func slackenTimers() {
	if os.Getenv(slackened) != "" {
		_ = os.Unsetenv(slackened) // it is not for the processes that this one starts
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

// threadSlack returns the slack of the calling thread.
func threadSlack() time.Duration {
	slack, _, _ := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_GET_TIMERSLACK, 0, 0) // cannot fail
	return time.Duration(slack)
}
