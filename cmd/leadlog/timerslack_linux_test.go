package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tellingSlack makes this test binary a process that says with what slack, arguments and mark it runs.
const tellingSlack = "LEADLOG_TEST_TELL_SLACK"

func init() { // before TestMain, which is for every system
	if os.Getenv(tellingSlack) != "" {
		slackenTimers()
		tellSlack()
		os.Exit(0)
	}
}

func tellSlack() {
	slack := make(chan time.Duration)
	go func() {
		runtime.LockOSThread() // for good: a thread that the runtime has made
		slack <- threadSlack()
	}()
	fmt.Println(<-slack, os.Args[1:], os.Getenv(slackened))
}

func TestTimerSlack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ given, has time.Duration }{
		"as usual":                {0, timerSlack}, // 0 is the system's default
		"more was asked for":      {5 * timerSlack, 5 * timerSlack},
		"less than what is meant": {timerSlack / 2, timerSlack},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "serve", "--addr", "a b")
			cmd.Env = append(os.Environ(), tellingSlack+"=1")
			var said strings.Builder
			cmd.Stdout = &said
			started := make(chan error)
			go func() {
				runtime.LockOSThread() // for good: nobody else is to have a thread with this slack
				_, _, refused := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_TIMERSLACK, uintptr(c.given), 0)
				if refused != 0 {
					started <- refused
					return
				}
				started <- cmd.Start()
			}()
			require.NoError(t, <-started)
			require.NoError(t, cmd.Wait())
			require.Equal(t, fmt.Sprintln(c.has, []string{"serve", "--addr", "a b"}, ""), said.String())
		})
	}
}
