package main

import (
	"context"
	"fmt"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/eventstore/merkle"
)

type treeKeyCommand struct {
	service.Database `embed:""`
	signingFlags     `embed:""`
}

// Run is leadlog tree-key.
func (t *treeKeyCommand) Run(ctx context.Context, c cli.Output) error {
	var check cli.Checker
	if service.CheckLogOrigin(&check, t.Origin); check.Err() != nil {
		return check.Err()
	}
	seed, err := t.TreeSeed(t.TreeKey)
	if err != nil {
		return err
	}
	var signer *merkle.Signer
	if t.Origin != "" {
		signer, err = merkle.NewSigner(t.Origin, seed)
	} else {
		signer, err = t.loggedSigner(ctx, c, seed)
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(c.Out, signer.PublicKey())
	return nil
}

// loggedSigner returns the signer with the name that is kept on the log.
func (t *treeKeyCommand) loggedSigner(ctx context.Context, c cli.Output, seed []byte) (*merkle.Signer, error) {
	var check cli.Checker
	if t.Check(&check); check.Err() != nil {
		return nil, check.Err()
	}
	log := cli.Logger(c)
	_, events, private, err := t.OpenExisting(ctx, log)
	if err != nil {
		return nil, err
	}
	defer service.StopPrivate(private, log)
	store, err := service.OpenLog(ctx, events, log)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	return t.signer(ctx, seed, store)
}
