package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/projection/verify"
)

type verifyCommand struct {
	service.SealedDatabase `embed:""`

	Most     int    `default:"10" placeholder:"N" help:"How many differences and notes of each kind to print."`
	Heal     bool   `help:"Finish erasures that killed processes left. May run beside the service."`
	ClaimKey string `env:"LEADLOG_CLAIM_KEY" placeholder:"BASE64" help:"With --heal: the HMAC key of claim names."`

	Tree      []string `type:"existingfile" placeholder:"FILE" help:"Signed tree head that the account's audit tree must begin with, or the log, when it is a head of the whole log. May be given more than once."`
	PublicKey string   `name:"public-key" env:"LEADLOG_TREE_PUBLIC_KEY" placeholder:"KEY" help:"Key that tree heads must be signed by, as leadlog tree-key prints it. Default: the one that the head names."`
	Head      string   `placeholder:"FILE" help:"When everything agrees, also write a signed head of the whole log."`
	TreeKey   string   `env:"LEADLOG_TREE_KEY" placeholder:"BASE64" help:"With --head: 32 bytes: the Ed25519 seed that signs tree heads."`
	Export    string   `arg:"" optional:"" type:"existingfile" help:"Export of token events as JSON lines: check it against the newest --tree, and its beginnings against older ones, without the database."`
}

// Run is leadlog verify.
func (v *verifyCommand) Run(ctx context.Context, c cli.Output) error {
	keys, err := v.validate()
	if err != nil {
		return err
	}
	heads, err := v.openHeads(c)
	if err != nil {
		return err
	}
	if v.Export != "" {
		return v.checkExport(c, heads)
	}
	sign, err := v.signLog(c)
	if err != nil {
		return err
	}
	service.CollectLess()
	h, err := v.OpenStores(ctx, c)
	if err != nil {
		return err
	}
	defer h.Close()
	found, err := v.verify(ctx, c, h, heads)
	for _, difference := range found.differences {
		fmt.Fprintln(c.Out, difference)
	}
	if err != nil {
		return err
	}
	v.note(c, found.left)
	if v.Heal {
		if err := heal(ctx, c, h, keys, found.left); err != nil {
			return err
		}
	}
	if len(found.differences) > 0 {
		return errDiffers
	}
	fmt.Fprintln(c.Out, "the log and the views agree")
	return sign(found.head)
}

// validate refuses flags that do not go together, and finds the keys that --heal needs.
func (v *verifyCommand) validate() (keys service.Keys, err error) {
	if v.Most < 1 {
		return keys, cli.Usagef("--most=%d: must be 1 or more", v.Most)
	}
	if v.Heal {
		if keys, err = v.Keys(v.ClaimKey); err != nil {
			return keys, err
		}
	}
	switch {
	case v.Export != "" && len(v.Tree) == 0:
		return keys, cli.Usagef("an export is checked with a tree head: verify --tree head.txt export.ndjson")
	case v.Export != "" && v.Head != "":
		return keys, cli.Usagef("--head is of the log, which an export is checked without")
	}
	return keys, nil
}

// verified is the result of verifying.
type verified struct {
	differences []string
	left        []verify.Leftover
	head        audit.Head // of the whole log
}

func (v *verifyCommand) verify(ctx context.Context, c cli.Output, h *service.Stores, heads []audit.Head) (found verified, err error) {
	shown := cli.NewProgress(c.Err, "verify")
	found.differences, err = verify.Verification{
		URL: h.URL, Pool: h.Pool, Store: h.Store.Forensic(), Sparse: h.Sparse, Heads: heads, Most: v.Most,
		Progress: func(done, end eventstore.Position) { shown.Show(uint64(done), uint64(end), "positions") },
		Left:     func(l verify.Leftover) { found.left = append(found.left, l) }, Unfinished: h.Eraser().Unfinished,
		Broken: h.BrokenSecrets(), Whole: func(head audit.Head) { found.head = head },
	}.Run(ctx)
	return found, err
}

// signLog returns the function that writes the signed head that --head asks for. A bad key is refused here, before the log is
// read.
func (v *verifyCommand) signLog(c cli.Output) (sign func(audit.Head) error, err error) {
	if v.Head == "" {
		return func(audit.Head) error { return nil }, nil
	}
	signer, err := v.TreeSigner(v.TreeKey)
	return func(h audit.Head) error { return writeHead(c, v.Head, signer, h) }, err
}

var errDiffers = errors.New("the log and the views do not agree")
