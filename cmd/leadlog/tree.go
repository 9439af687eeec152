package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/query"
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

// signExport writes the signed head of the account's tree at the size of the export.
func (e *exportCommand) signExport(ctx context.Context, c cli.Output, reader *query.Reader, events int64) error {
	signer, err := e.Database.TreeSigner(e.TreeKey)
	if err != nil {
		return err
	}
	head, err := reader.TreeHead(ctx, e.Account, events)
	if err != nil {
		return err
	}
	return writeHead(c, e.Head, signer, head)
}

func writeHead(c cli.Output, file string, signer *audit.Signer, head audit.Head) error {
	text, err := signer.SignHead(head)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(c.Err, "%s: tree head of size %d, signed with %s\n", file, head.Size, signer.PublicKey())
	return nil
}

var errNotProven = errors.New("the export is not what the tree head was signed for")

// checkExport compares an export of token events with signed tree heads. It needs no database.
func (v *verifyCommand) checkExport(c cli.Output, heads []audit.Head) error {
	for i, head := range heads {
		if head.Account == audit.WholeLog {
			return cli.Usagef("%s: is a head of the whole log, which is checked on its database: verify --tree %[1]s", v.Tree[i])
		}
		if head.Account != heads[0].Account {
			return fmt.Errorf("%s: is of account %s, and %s of %s", v.Tree[i], head.Account, v.Tree[0], heads[0].Account)
		}
	}
	file, err := os.Open(v.Export)
	if err != nil {
		return err
	}
	defer file.Close()
	shown := cli.NewProgress(c.Err, "verify export")
	findings, events, err := audit.Check{
		Heads: heads, Most: v.Most,
		Progress: func(events, size int64) { shown.Show(uint64(events), uint64(size), "events") },
	}.Export(file)
	for _, finding := range findings {
		fmt.Fprintln(c.Out, finding)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", v.Export, err)
	}
	if len(findings) > 0 {
		return errNotProven
	}
	fmt.Fprintf(c.Out, "account %s: all %d token events are there, in order, as they were signed\n", heads[0].Account, events)
	return nil
}

// openHeads reads the tree heads and verifies their signatures, which must all be of one key.
func (v *verifyCommand) openHeads(c cli.Output) (heads []audit.Head, err error) {
	key := v.PublicKey
	for _, path := range v.Tree {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var head audit.Head
		if head, key, err = audit.OpenHead(text, key); errors.Is(err, audit.ErrPublicKey) && v.PublicKey != "" {
			return nil, cli.Usagef("--public-key=%q: %w", v.PublicKey, err)
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		heads = append(heads, head)
	}
	if v.PublicKey == "" && key != "" {
		fmt.Fprintf(c.Err, "signed with %s\n"+
			"That key is named by the tree head itself: see that it is the one you were given, or pass it as --public-key.\n", key)
	}
	return heads, nil
}
