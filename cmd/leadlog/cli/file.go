package cli

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// File refuses a path at which no file can be written. Commands check it before work that takes long or cannot be
// undone.
func (c *Checker) File(name, path string) {
	if err := tryFile(path); err != nil {
		var at *fs.PathError
		if errors.As(err, &at) { // the path is shown already
			err = at.Err
		}
		c.Refuse(name, path, "a file that can be written: "+err.Error())
	}
}

func tryFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case path == "":
		return errors.New("it has no name")
	case err == nil && info.IsDir():
		return errors.New("it is a directory")
	case err == nil && !info.Mode().IsRegular(): // such as /dev/stdout
		return nil
	case err == nil:
		present, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		present.Close()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	fresh, err := createBeside(path)
	if err != nil {
		return err
	}
	fresh.Close()
	return os.Remove(fresh.Name())
}

// WriteFile writes a file whole or not at all: when the disk is full, an earlier file of the name stays as it was.
func WriteFile(path string, text []byte) error {
	mode := fs.FileMode(0)
	if info, err := os.Stat(path); err == nil {
		if !info.Mode().IsRegular() {
			return os.WriteFile(path, text, 0)
		}
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return err
		}
		mode = info.Mode().Perm()
	}
	fresh, err := createBeside(path)
	if err != nil {
		return err
	}
	_, err = fresh.Write(text)
	if err == nil && mode != 0 {
		err = fresh.Chmod(mode)
	}
	if err == nil {
		err = fresh.Sync()
	}
	if err = errors.Join(err, fresh.Close()); err == nil {
		err = os.Rename(fresh.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(fresh.Name()))
	}
	return nil
}

// createBeside creates a new hidden file in the directory of a file.
func createBeside(path string) (*os.File, error) {
	dir, name := filepath.Split(path)
	return os.OpenFile(filepath.Join(dir, "."+name+"-"+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
}
