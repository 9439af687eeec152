package systemtest

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// onSmallDisk is set for the re-executed test binary, which may mount file systems.
const onSmallDisk = "LEADLOG_TEST_ON_SMALL_DISK"

// PostgreSQL is on a disk that fills up. The test re-executes itself to mount a private disk: as root in a mount
// namespace, otherwise also in a user namespace. If neither is allowed, only TestFaults_Statements covers the errors of
// a full disk.
func TestFullDisk_Recovers(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	if os.Getenv(onSmallDisk) != "" {
		fillTheDisk(t)
		return
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), onSmallDisk+"=1")
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		const capSysAdmin = 21 // CAP_SYS_ADMIN, only in the new namespace
		again.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		again.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		again.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		again.SysProcAttr.AmbientCaps = []uintptr{capSysAdmin}
	}
	printed, err := again.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL) {
		t.Skipf("a private disk cannot be mounted: %v", err)
	}
	require.NoError(t, err, "%s", printed)
}

// fillTheDisk runs callers while the disk of the database is full.
func fillTheDisk(t *testing.T) {
	const megabytes = "200"
	disk, err := os.MkdirTemp("", "leadlog-disk-")
	require.NoError(t, err)
	t.Cleanup(func() { os.Remove(disk) })
	require.NoError(t, syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	require.NoError(t, syscall.Mount("tmpfs", disk, "tmpfs", 0, "mode=0755,size="+megabytes+"m"))
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	server, err := pgdev.Start(t.Context(), pgdev.Options{Dir: disk + "/data", Settings: map[string]string{
		"shared_buffers": "16MB", "min_wal_size": "32MB", "max_wal_size": "48MB", "fsync": "off",
	}})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, server.Stop(ctx))
	})
	settings := emptySettings(t)
	settings["LEADLOG_DATABASE_URL"] = server.URL()
	jwt := provision(t, settings)
	c := newFaultService(t, settings, server.URL(), jwt)
	ballast := disk + "/ballast"
	c.runFault(t, fault{noWrites: true, someWrites: true, begin: func(t *testing.T) {
		file, err := os.Create(ballast)
		require.NoError(t, err)
		defer file.Close()
		_, err = io.Copy(file, zeros{})
		require.ErrorIs(t, err, syscall.ENOSPC)
	}, end: func(t *testing.T) { require.NoError(t, os.Remove(ballast)) }}).requireStoredOnce(t)
	launch(t, settings, "verify").exits(t, 0)
}

// zeros is an endless reader of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
