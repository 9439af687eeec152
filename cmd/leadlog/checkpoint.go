package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/merkle"
)

// signingFlags are the flags of commands that sign checkpoints.
type signingFlags struct {
	TreeKey string `env:"LEADLOG_TREE_KEY" placeholder:"BASE64" help:"32 bytes: the Ed25519 seed that signs checkpoints. Default: the one in the data directory."`
	Origin  string `name:"log-origin" env:"LEADLOG_LOG_ORIGIN" placeholder:"NAME" help:"Name of the log in its checkpoints. Default: the name on the log."`
}

var errNoOrigin = errors.New("the log has no name yet: start leadlog once, or set LEADLOG_LOG_ORIGIN")

// origin returns the log's name in its checkpoints; empty if it has none yet.
func (f signingFlags) origin(ctx context.Context, store eventstore.Store) (string, error) {
	if f.Origin != "" {
		return f.Origin, nil
	}
	origin, _, err := command.LoadOrigin(ctx, store)
	return origin, err
}

// signer returns the signer of the log's checkpoints.
func (f signingFlags) signer(ctx context.Context, seed []byte, store eventstore.Store) (*merkle.Signer, error) {
	origin, err := f.origin(ctx, store)
	if err == nil && origin == "" {
		err = errNoOrigin
	}
	if err != nil {
		return nil, err
	}
	return merkle.NewSigner(origin, seed)
}

// writeCheckpoint signs a checkpoint of the tree of an account or, without one, of the whole log, and writes it to a
// file.
func writeCheckpoint(c cli.Output, file string, signer *merkle.Signer, account string, tree tlog.Tree) error {
	text, err := signer.SignTree(account, tree)
	if err != nil {
		return err
	}
	if err := cli.WriteFile(file, []byte(text)); err != nil {
		return err
	}
	fmt.Fprintf(c.Err, "%s: checkpoint of size %d, signed with %s\n", file, tree.N, signer.PublicKey())
	return nil
}

// readCheckpoint reads a checkpoint from a file, which may be a saved JSON response.
func readCheckpoint(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil || !bytes.HasPrefix(bytes.TrimLeft(text, " \r\n\t"), []byte("{")) {
		return text, err
	}
	var answer struct {
		Data struct {
			Checkpoint string `json:"checkpoint"`
		} `json:"data"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Data.Checkpoint == "" {
		return nil, fmt.Errorf("%w: JSON without data.checkpoint", merkle.ErrCheckpoint)
	}
	return []byte(answer.Data.Checkpoint), nil
}

// openCheckpoints reads the checkpoints that --tree names and verifies their signatures.
func (v *verifyCommand) openCheckpoints(c cli.Output) (signed []merkle.Checkpoint, err error) {
	if len(v.Tree) == 0 {
		return nil, nil
	}
	trust, err := v.trust()
	if err != nil {
		return nil, err
	}
	for _, file := range v.Tree {
		text, err := readCheckpoint(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		checkpoint, err := trust.Open(text)
		if err != nil {
			return nil, v.refused(file, err)
		}
		signed = append(signed, checkpoint)
	}
	v.reportKey(c, signed[0])
	return signed, nil
}

// trust returns the keys that checkpoints must be signed with. Without --public-key it is the key of this machine.
func (v *verifyCommand) trust() (trust merkle.Trust, err error) {
	trust = merkle.Trust{PublicKey: v.PublicKey, Witnesses: v.Witness, Quorum: v.Quorum}
	if v.Quorum < 0 {
		trust.Quorum = len(v.Witness)
	}
	if trust.PublicKey == "" {
		if trust.Seed, err = v.TreeSeed(v.TreeKey); err != nil {
			return trust, cli.Usagef("--public-key: give the verifier key of the log, as leadlog tree-key prints it " +
				"on the service's machine")
		}
	}
	return trust, nil
}

// refused returns the error of a file that is not what the keys have signed.
func (v *verifyCommand) refused(file string, err error) error {
	switch {
	case errors.Is(err, merkle.ErrPublicKey):
		return cli.Usagef("--public-key=%q: %w", v.PublicKey, err)
	case errors.Is(err, merkle.ErrWitnessKey):
		return cli.Usagef("--witness: %w", err)
	}
	return fmt.Errorf("%s: %w", file, err)
}

// reportKey names the key of this machine, if that was used.
func (v *verifyCommand) reportKey(c cli.Output, signed merkle.Checkpoint) {
	if v.PublicKey == "" {
		fmt.Fprintln(c.Err, "checked with the key of this machine:", signed.PublicKey)
	}
}
