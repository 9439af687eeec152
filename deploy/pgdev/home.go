package pgdev

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	defaultDir = ".leadlog"
	// fallbackRoot has the clusters whose data directory the unprivileged user cannot reach.
	fallbackRoot = "/var/lib/leadlog"
	// longestSocketDir plus "/.s.PGSQL.65535.lock" is the 104 bytes that macOS allows for a socket's path.
	longestSocketDir = 84
)

// home is the directory of one cluster, and the account that PostgreSQL runs as there.
type home struct {
	dir     string
	account account
}

func (h home) cluster() string   { return filepath.Join(h.dir, "postgres") }
func (h home) startLock() string { return filepath.Join(h.dir, "start.lock") }
func (h home) usersLock() string { return filepath.Join(h.dir, "users.lock") }
func (h home) logFile() string   { return filepath.Join(h.dir, "postgres.log") }
func (h home) hbaFile() string   { return filepath.Join(h.dir, "pg_hba.conf") }
func (h home) portFile() string  { return filepath.Join(h.dir, "port") }

func openHome(opts Options, log *slog.Logger) (home, error) {
	if opts.Throwaway {
		return throwawayHome(log)
	}
	dir := opts.Dir
	if dir == "" {
		dir = defaultDir
	}
	if opts.Existing {
		if at, err := absolute(dir); err != nil || !exists(home{dir: at}.cluster()) &&
			!exists(home{dir: filepath.Join(fallbackRoot, nameOf(at))}.cluster()) {
			return home{}, fmt.Errorf("%w in %s", ErrNone, at)
		}
	}
	return homeIn(dir, fallbackRoot, log)
}

// homeIn prefers the directory that has a cluster already: when a directory becomes reachable, or unreachable, an empty
// database must not replace the one with the data.
func homeIn(dir, fallback string, log *slog.Logger) (home, error) {
	if err := makeDirs(dir); err != nil {
		return home{}, err
	}
	dir, err := absolute(dir)
	if err != nil {
		return home{}, err
	}
	elsewhere := filepath.Join(fallback, nameOf(dir))
	own := home{dir: dir}
	if own.account, err = accountOf(own.cluster()); err != nil {
		return home{}, err
	}
	away := home{dir: elsewhere}
	if away.account, err = accountOf(away.cluster()); err != nil {
		return home{}, err
	}
	switch {
	case exists(own.cluster()):
		if !own.account.reaches(dir) {
			return home{}, fmt.Errorf("the owner of %s (uid %d), as whom PostgreSQL runs, cannot reach it: "+
				"a directory above it has lost its x permission", own.cluster(), own.account.uid)
		}
		return own, own.checkOwner()
	case !exists(away.cluster()) && own.account.reaches(dir):
		return own, nil
	}
	if err := makeDirs(elsewhere); err != nil {
		return home{}, err
	}
	log.Info("the user that PostgreSQL runs as cannot reach the data directory: the database is elsewhere",
		"dataDir", dir, "dir", elsewhere)
	return away, nil
}

// checkOwner returns an error if the cluster belongs to another user, with a clearer text than PostgreSQL's.
func (h home) checkOwner() error {
	uid, _, err := ownerOf(h.cluster())
	if err != nil {
		return err
	}
	if uid != h.account.uid {
		return fmt.Errorf("%s belongs to another user (uid %d): run as that user or as root", h.cluster(), uid)
	}
	return nil
}

// nameOf is a readable and unique name for a directory.
func nameOf(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return filepath.Base(filepath.Dir(dir)) + "-" + hex.EncodeToString(sum[:6])
}

// makeDirs creates missing directories, which other users may enter but not list, whatever the umask.
func makeDirs(dir string) error {
	err := os.Mkdir(dir, 0o711)
	switch {
	case err == nil:
		return os.Chmod(dir, 0o711)
	case errors.Is(err, fs.ErrExist):
		info, statErr := os.Stat(dir)
		if statErr == nil && !info.IsDir() {
			return fmt.Errorf("%s is not a directory", dir)
		}
		return statErr
	case errors.Is(err, fs.ErrNotExist):
		if err := makeDirs(filepath.Dir(dir)); err != nil {
			return err
		}
		return makeDirs(dir)
	}
	return err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

var plainPath = regexp.MustCompile(`^[A-Za-z0-9._/-]+$`)

// socketDir is in the home, or in /tmp if the home's path is too long for a socket or needs quoting in PostgreSQL's
// settings.
func (h home) socketDir() string {
	dir := filepath.Join(h.dir, "socket")
	if len(dir) <= longestSocketDir && plainPath.MatchString(dir) {
		return dir
	}
	sum := sha256.Sum256([]byte(h.dir))
	return filepath.Join("/tmp", "leadlog-socket-"+hex.EncodeToString(sum[:6]))
}

// prepareSocketDir deletes the directory and creates it: PostgreSQL does not start if a socket's lock file names a
// zombie or another program. It requires start.lock and no running server.
func (h home) prepareSocketDir() (string, error) {
	dir := h.socketDir()
	if exists(dir) {
		info, err := os.Lstat(dir)
		if err != nil {
			return "", err
		}
		uid, _, err := ownerOf(dir)
		if err != nil {
			return "", err
		}
		// It belongs to this user if an earlier process was killed before it changed the owner.
		if ours := uint32(os.Geteuid()); uid != h.account.uid && uid != ours || info.Mode() != fs.ModeDir|0o700 {
			return "", fmt.Errorf("%s is not a private directory of PostgreSQL's user: remove it", dir)
		}
		if err := os.RemoveAll(dir); err != nil {
			return "", err
		}
	}
	return dir, h.account.mkdir(dir)
}

// removeSocketDir removes the directory, which every start creates.
func (h home) removeSocketDir() { _ = os.RemoveAll(h.socketDir()) }

// passwordOf returns the role's password, which it creates at first use.
func (h home) passwordOf() (string, error) {
	file, err := openOwn(filepath.Join(h.dir, "password"))
	if err != nil {
		return "", err
	}
	defer file.Close()
	known, err := io.ReadAll(io.LimitReader(file, 256))
	if err != nil {
		return "", err
	}
	if password := strings.TrimSpace(string(known)); len(password) == 52 && plainPath.MatchString(password) {
		return password, nil
	}
	password := rand.Text() + rand.Text()
	if err := file.Truncate(0); err != nil {
		return "", err
	}
	_, err = file.WriteAt([]byte(password+"\n"), 0)
	return password, err
}

func (h home) lastPort() int {
	text, err := os.ReadFile(h.portFile())
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || port < 1 || port > 65535 {
		return 0
	}
	return port
}

func (h home) write(path, text string, mode fs.FileMode) error {
	_ = os.Remove(path) // so that it does not write through a link
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if _, err := file.WriteString(text); err != nil {
		file.Close()
		return err
	}
	return errors.Join(file.Chmod(mode), file.Close())
}

const (
	throwawayPrefix = "leadlog-throwaway-"
	// startingPrefix marks a directory whose users.lock is not held yet, so that no sweep removes it.
	startingPrefix = "leadlog-starting-"
)

// MkdirTemp creates a directory for a test's clusters that PostgreSQL's user can reach, unlike t.TempDir, whose parent
// is 0700. The caller removes it.
func MkdirTemp(pattern string) (string, error) {
	dir, err := os.MkdirTemp(tempDir(), pattern)
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// throwawayHome is a new directory in the first temporary directory that PostgreSQL's user can reach. In memory, a
// database is copied in 30 ms. On ext4 that takes 300 ms after many databases were dropped: for each of a database's
// 300 files it skips the inodes that were deleted within five minutes.
func throwawayHome(log *slog.Logger) (home, error) {
	account, err := accountOf("")
	if err != nil {
		return home{}, err
	}
	for _, parent := range []string{tempDir(), os.TempDir(), "/tmp", "/var/tmp"} {
		sweep(parent, log)
		dir, err := os.MkdirTemp(parent, startingPrefix)
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

// named renames a throwaway home, whose users.lock is held now, so that later sweeps find it.
func (h home) named() (home, error) {
	suffix := strings.TrimPrefix(filepath.Base(h.dir), startingPrefix)
	to := filepath.Join(filepath.Dir(h.dir), throwawayPrefix+suffix)
	if err := os.Rename(h.dir, to); err != nil {
		return home{}, err
	}
	return home{dir: to, account: h.account}, nil
}

// sweep removes the throwaway clusters whose users.lock is free: their processes died without a Stop.
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
