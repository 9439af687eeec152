//go:build unix && !linux

package pgdev

import "os"

func tempDir() string { return os.TempDir() }
