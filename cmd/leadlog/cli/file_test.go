package cli_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
)

func TestWriteFile_ReplacesWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, link := filepath.Join(dir, "head.txt"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(path, []byte("earlier"), 0o600))
	require.NoError(t, os.Chmod(path, 0o640))
	require.NoError(t, os.Symlink(path, link))
	earlier, err := os.Open(path)
	require.NoError(t, err)
	defer earlier.Close()
	require.NoError(t, cli.WriteFile(link, []byte("new")))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "new", string(text), "the link is followed")
	kept := make([]byte, 7)
	_, err = earlier.ReadAt(kept, 0)
	require.NoError(t, err, "the earlier file was not written to")
	require.Equal(t, "earlier", string(kept))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode().Perm())
	require.NoError(t, cli.WriteFile(os.DevNull, []byte("new")), "a device is written to")
	require.Error(t, cli.WriteFile(dir, nil))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "nothing else is left")
}

func TestCheckerFile_RefusesBeforeWriting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "head.txt")
	var good cli.Checker
	good.File("--head", path)
	require.NoError(t, good.Err())
	require.NoFileExists(t, path)
	require.NoError(t, os.WriteFile(path, []byte("earlier"), 0o600))
	good.File("--head", path)
	good.File("--head", os.DevNull)
	require.NoError(t, good.Err())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "earlier", string(text))
	for bad, message := range map[string]string{
		"": "it has no name", dir: "it is a directory", dir + "/none/head.txt": "no such file or directory",
		path + "/x": "not a directory",
	} {
		var check cli.Checker
		check.File("--head", bad)
		require.ErrorContains(t, check.Err(), "--head=")
		require.ErrorContains(t, check.Err(), "must be a file that can be written: "+message)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing else is left")
}
