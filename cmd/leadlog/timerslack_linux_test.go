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

// printsSlack is the environment variable that makes this test binary print its slack, its arguments and the mark of a second start.
const printsSlack = "LEADLOG_TEST_PRINT_SLACK"

func init() { // runs before TestMain, which has no build constraint
	if os.Getenv(printsSlack) != "" {
		slackenTimers()
		printSlack()
		os.Exit(0)
	}
}

func printSlack() {
	slack := make(chan time.Duration)
	go func() {
		runtime.LockOSThread() // never unlocked: a thread that the runtime has created
		slack <- threadSlack()
	}()
	fmt.Println(<-slack, os.Args[1:], os.Getenv(slackened))
}

func TestSlackenTimers_RestartsOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ given, has time.Duration }{
		"default":       {0, timerSlack}, // 0 is the system's default
		"more than set": {5 * timerSlack, 5 * timerSlack},
		"less than set": {timerSlack / 2, timerSlack},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "serve", "--addr", "a b")
			cmd.Env = append(os.Environ(), printsSlack+"=1")
			var printed strings.Builder
			cmd.Stdout = &printed
			started := make(chan error)
			go func() {
				runtime.LockOSThread() // never unlocked: no other goroutine may run on a thread with this slack
				_, _, refused := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_TIMERSLACK, uintptr(c.given), 0)
				if refused != 0 {
					started <- refused
					return
				}
				started <- cmd.Start()
			}()
			require.NoError(t, <-started)
			require.NoError(t, cmd.Wait())
			require.Equal(t, fmt.Sprintln(c.has, []string{"serve", "--addr", "a b"}, ""), printed.String())
		})
	}
}
