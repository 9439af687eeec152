package main

import (
	"fmt"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
)

type treeKeyCommand struct {
	DataDir string `env:"LEADLOG_DATA_DIR" default:".leadlog" help:"Directory of the private PostgreSQL and its keys."`
	TreeKey string `env:"LEADLOG_TREE_KEY" placeholder:"BASE64" help:"32 bytes: the Ed25519 seed. Default: that of the data directory."`
}

// Run is leadlog tree-key.
func (t *treeKeyCommand) Run(c cli.Output) error {
	signer, err := service.Database{DataDir: t.DataDir}.TreeSigner(t.TreeKey)
	if err != nil {
		return err
	}
	fmt.Fprintln(c.Out, signer.PublicKey())
	return nil
}
