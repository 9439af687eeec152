package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/command"
)

type treeKeyCommand struct {
	service.Database `embed:""`

	TreeKey string `env:"LEADLOG_TREE_KEY" placeholder:"BASE64" help:"32 bytes: the Ed25519 seed. Default: the one in the data directory."`
	Origin  string `name:"log-origin" env:"LEADLOG_LOG_ORIGIN" placeholder:"NAME" help:"Name of the log in its checkpoints. Default: the name on the log."`
}

var errNoOrigin = errors.New("the log has no name yet: start leadlog once, or set LEADLOG_LOG_ORIGIN")

// Run is leadlog tree-key.
func (t *treeKeyCommand) Run(ctx context.Context, c cli.Output) error {
	var check cli.Checker
	if service.CheckLogOrigin(&check, t.Origin); check.Err() != nil {
		return check.Err()
	}
	if _, err := t.TreeSigner(t.TreeKey); err != nil {
		return err
	}
	origin := t.Origin
	if origin == "" {
		var err error
		if origin, err = t.loggedOrigin(ctx, c); err != nil {
			return err
		}
	}
	signer, err := t.LogSigner(t.TreeKey, origin)
	if err != nil {
		return err
	}
	fmt.Fprintln(c.Out, signer.PublicKey())
	return nil
}

// loggedOrigin reads the name that is kept on the log.
func (t *treeKeyCommand) loggedOrigin(ctx context.Context, c cli.Output) (string, error) {
	var check cli.Checker
	if t.Check(&check); check.Err() != nil {
		return "", check.Err()
	}
	log := cli.Logger(c)
	_, events, private, err := t.Open(ctx, log)
	if err != nil {
		return "", err
	}
	defer service.StopPrivate(private, log)
	store, err := service.OpenLog(ctx, events, log)
	if err != nil {
		return "", err
	}
	defer store.Close()
	origin, _, err := command.LoadOrigin(ctx, store)
	if err == nil && origin == "" {
		err = errNoOrigin
	}
	return origin, err
}
