package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
)

type versionCommand struct{}

// Run is leadlog version.
func (versionCommand) Run(c cli.Output) error {
	version, commit := build()
	fmt.Fprintf(c.Out, "leadlog %s commit %s %s\n", version, commit, runtime.Version())
	return nil
}

// build returns what the Go tool recorded in the binary.
func build() (version, commit string) {
	version, commit = "devel", "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version, commit
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		version = v
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			commit = setting.Value
		}
		if setting.Key == "vcs.modified" && setting.Value == "true" {
			commit += "+changes"
		}
	}
	return version, commit
}
