package pgdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockRetry is the interval between attempts to lock: flock cannot wait with a context.
const lockRetry = 20 * time.Millisecond

// lockExclusive waits for the lock until ctx ends. Closing the file releases it.
func lockExclusive(ctx context.Context, path string) (*os.File, error) {
	file, err := openOwn(path)
	if err != nil {
		return nil, err
	}
	for {
		got, err := tryLock(file, syscall.LOCK_EX)
		if got {
			return file, nil
		}
		if err != nil {
			file.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("waiting for %s, which another process holds: %w", path, context.Cause(ctx))
		case <-time.After(lockRetry):
		}
	}
}

// lockShared does not wait: only the holder of start.lock locks the file exclusively.
func lockShared(path string) (*os.File, error) {
	file, err := openOwn(path)
	if err != nil {
		return nil, err
	}
	if got, err := tryLock(file, syscall.LOCK_SH); !got {
		file.Close()
		return nil, errors.Join(fmt.Errorf("%s is held by another process", path), err)
	}
	return file, nil
}

// lockAlone reports whether no other process has locked the file.
func lockAlone(file *os.File) (bool, error) { return tryLock(file, syscall.LOCK_EX) }

func tryLock(file *os.File, how int) (bool, error) {
	for {
		err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		default:
			return false, fmt.Errorf("locking %s: %w", file.Name(), err)
		}
	}
}

// openOwn does not follow links: another user's link would let that user choose a file that root writes.
func openOwn(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
}
