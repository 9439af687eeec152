package main

import (
	"fmt"
	"runtime"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
)

type versionCommand struct{}

// Run is leadlog version.
func (versionCommand) Run(c cli.Output) error {
	version, commit := service.Build()
	fmt.Fprintf(c.Out, "leadlog %s commit %s %s\n", version, commit, runtime.Version())
	return nil
}
