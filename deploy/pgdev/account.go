package pgdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// account is the user that PostgreSQL runs as.
type account struct {
	uid, gid uint32
	// drop is set when this process is root and the account is not.
	drop bool
}

// accountOf returns the current user or, for root, the owner of an existing cluster, else the user postgres, else the
// user nobody. PostgreSQL refuses to run as root.
func accountOf(cluster string) (account, error) {
	if os.Geteuid() != 0 {
		return account{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}, nil
	}
	if uid, gid, err := ownerOf(cluster); err == nil && uid != 0 {
		return account{uid: uid, gid: gid, drop: true}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return account{uid: uint32(uid), gid: uint32(gid), drop: true}, nil
		}
	}
	return account{}, errors.New("PostgreSQL cannot run as root, and there is no user postgres or nobody to run it as")
}

func ownerOf(path string) (uid, gid uint32, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, 0, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, fmt.Errorf("%s: owner unknown", path)
	}
	return stat.Uid, stat.Gid, nil
}

// command returns a command that runs as the account, in a process group of its own, so that Ctrl-C signals only this
// process. Every user can enter its working directory.
func (a account) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "/"
	cmd.Env = environment(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if a.drop {
		// No Groups: root's supplementary groups are dropped with its user.
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return cmd
}

// environment keeps the search paths of programs and libraries only: PG* variables and locales would change the
// cluster. macOS needs LC_ALL.
func environment(caller []string) []string {
	env := []string{"LC_ALL=C", "TZ=UTC"}
	for _, pair := range caller {
		name, _, _ := strings.Cut(pair, "=")
		if name == "PATH" || name == "LD_LIBRARY_PATH" || name == "DYLD_LIBRARY_PATH" {
			env = append(env, pair)
		}
	}
	return env
}

// mkdir creates a directory that only the account can use.
func (a account) mkdir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	if !a.drop {
		return nil
	}
	return os.Lchown(path, int(a.uid), int(a.gid))
}

// reaches reports whether the account can write to a directory of its own inside dir. It tries, because modes do not
// show access lists, mount options and root-squashed network file systems.
func (a account) reaches(dir string) bool {
	if !a.drop {
		return true
	}
	probe, err := os.MkdirTemp(dir, ".reach-*")
	if err != nil {
		return false
	}
	defer os.RemoveAll(probe)
	if err := os.Lchown(probe, int(a.uid), int(a.gid)); err != nil {
		return false
	}
	return a.command(context.Background(), "/bin/sh", "-c", `cd "$0" && : >probe`, probe).Run() == nil
}
