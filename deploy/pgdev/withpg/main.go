// Command withpg runs another command with a throwaway PostgreSQL, whose address is in LEADLOG_TEST_DATABASE_URL. If
// that is set already, no server is started. The address is the same in every run in a directory, so that go test
// caches results.
//
//	go run ./deploy/pgdev/withpg -- go test ./...
//	go run ./deploy/pgdev/withpg -check    # is a usable PostgreSQL installed?
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/leadlog/leadlog/deploy/pgdev"
)

const urlVariable = "LEADLOG_TEST_DATABASE_URL"

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "withpg:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(args []string) (code int, err error) {
	switch {
	case len(args) == 1 && args[0] == "-check":
		return check()
	case len(args) > 1 && args[0] == "--":
		args = args[1:]
	default:
		return 2, errors.New("usage: withpg -check | withpg -- command [argument …]")
	}
	// Caught from here on: a signal must not end this process before the server is stopped.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)

	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if os.Getenv(urlVariable) != "" {
		return follow(cmd, signals)
	}
	addr, err := reserveAddress()
	if err != nil {
		return 1, err
	}
	defer addr.lock.Close()
	server, err := start()
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, stop(server)) }()
	url, err := addr.link(server.URL())
	if err != nil {
		return 1, err
	}
	cmd.Env = append(os.Environ(), urlVariable+"="+url)
	return follow(cmd, signals)
}

func check() (int, error) {
	found, err := pgdev.FindBinaries()
	if err != nil {
		return 1, err
	}
	fmt.Printf("PostgreSQL %d in %s\n", found.Major, found.Dir)
	return 0, nil
}

func start() (*pgdev.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	return pgdev.Start(ctx, pgdev.Options{Throwaway: true, Log: log})
}

func stop(server *pgdev.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return server.Stop(ctx)
}

// follow runs the command, hands on signals, and returns its exit code, as a shell does: 128 and the signal's number
// when one ended it.
func follow(cmd *exec.Cmd, signals <-chan os.Signal) (int, error) {
	if err := cmd.Start(); err != nil {
		return 127, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case signal := <-signals:
			_ = cmd.Process.Signal(signal) // it may have exited
		case err := <-ended:
			var exit *exec.ExitError
			switch {
			case err == nil:
				return 0, nil
			case !errors.As(err, &exit):
				return 1, err
			}
			if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
				return 128 + int(status.Signal()), nil
			}
			return exit.ExitCode(), nil
		}
	}
}
