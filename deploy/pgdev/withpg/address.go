package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
)

// port is the port in every address. A socket's file is named after it.
const port = "5432"

// address is a directory whose path is the same in every run in a checkout, with a link to the socket of the server
// that a run started. go test caches a package's result only if the environment variables that its tests read are the
// same, and a throwaway server has a random directory and port. Concurrent runs have an address each.
type address struct {
	dir  string
	lock *os.File
}

// reserveAddress returns the first address of the working directory that no other run holds. The kernel releases it
// when the process ends.
func reserveAddress() (*address, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	checkout, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(checkout))
	for n := range 100 {
		dir := filepath.Join(cache, "leadlog", fmt.Sprintf("withpg-%x-%d", sum[:4], n))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return &address{dir: dir, lock: lock}, nil
		}
		lock.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", dir, err)
		}
	}
	return nil, errors.New("a hundred runs in this directory are under way")
}

// link makes the address lead to the server of a database's URL, and returns the URL of the database there.
func (a *address) link(database string) (string, error) {
	u, err := url.Parse(database)
	if err != nil {
		return "", err
	}
	query := u.Query()
	socket := filepath.Join(a.dir, ".s.PGSQL."+port)
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.Symlink(filepath.Join(query.Get("host"), ".s.PGSQL."+query.Get("port")), socket); err != nil {
		return "", err
	}
	u.RawQuery = url.Values{"host": {a.dir}, "port": {port}}.Encode()
	return u.String(), nil
}
