package pgdev

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	throwawayPrefix = "leadlog-throwaway-"
	// newbornPrefix marks a directory whose users.lock is not held yet, so that no sweep takes it for an orphan.
	newbornPrefix = "leadlog-newborn-"
)

// MkdirTemp makes a directory for the clusters of a test, which PostgreSQL's user can reach: t.TempDir is none, its parent
// is 0700. Whoever makes it removes it.
func MkdirTemp(pattern string) (string, error) {
	dir, err := os.MkdirTemp(tempDir(), pattern)
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// throwawayHome is a new directory in the first temporary one that PostgreSQL's user can reach. In memory a database is
// copied in 30 ms and on a disk with ext4 in 300, once tests have dropped many: each of a database's 300 files looks past
// all that were deleted within five minutes for a place on the disk.
func throwawayHome(log *slog.Logger) (home, error) {
	account, err := accountOf("")
	if err != nil {
		return home{}, err
	}
	for _, parent := range []string{tempDir(), os.TempDir(), "/tmp", "/var/tmp"} {
		sweep(parent, log)
		dir, err := os.MkdirTemp(parent, newbornPrefix)
		if err != nil {
			continue
		}
		if dir, err = absolute(dir); err != nil {
			return home{}, err
		}
		if err := os.Chmod(dir, 0o711); err == nil && account.reaches(dir) {
			return home{dir: dir, account: account}, nil
		}
		_ = os.RemoveAll(dir)
	}
	return home{}, errors.New("PostgreSQL's user can reach none of the temporary directories")
}

// named gives a throwaway home, whose users.lock is held now, the name under which a later sweep looks at it.
func (h home) named() (home, error) {
	suffix := strings.TrimPrefix(filepath.Base(h.dir), newbornPrefix)
	to := filepath.Join(filepath.Dir(h.dir), throwawayPrefix+suffix)
	if err := os.Rename(h.dir, to); err != nil {
		return home{}, err
	}
	return home{dir: to, account: h.account}, nil
}

// sweep removes the throwaway clusters whose processes died without a Stop: nobody holds their users.lock.
func sweep(parent string, log *slog.Logger) {
	dirs, err := filepath.Glob(filepath.Join(parent, throwawayPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		if uid, _, err := ownerOf(dir); err != nil || uid != uint32(os.Geteuid()) {
			continue
		}
		h := home{dir: dir}
		users, err := os.OpenFile(h.usersLock(), os.O_RDWR|syscall.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		if alone, err := lockAlone(users); alone && err == nil {
			log.Info("removing a throwaway PostgreSQL whose owner died", "dir", dir)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			if running := h.postmaster(); running == nil || running.stop(ctx, h.cluster(), true) == nil {
				_ = os.RemoveAll(dir)
			}
			cancel()
		}
		users.Close()
	}
}
