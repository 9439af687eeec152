//go:build unix && !linux

package pgdev

// inMemory is no directory: other systems have none that everybody may write to.
func inMemory() []string { return nil }
