package pgdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockRetry is how often a held lock is asked for again: flock has no wait that a context could end.
const lockRetry = 20 * time.Millisecond

// lockExclusive waits for the lock until ctx ends. Closing the file lets go of it.
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

// lockShared does not wait: an exclusive lock on the same file is only ever taken by the holder of start.lock.
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

// lockAlone says whether nobody but the holder of file has it locked.
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

// openOwn follows no link: as root, a link put there by somebody else would let him choose the file.
func openOwn(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
}
