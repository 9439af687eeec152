package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/verify"
)

type verifyCommand struct {
	database `embed:""`

	Most int `default:"10" placeholder:"N" help:"Differences of each kind to tell."`
}

// Run is leadlog verify.
func (v *verifyCommand) Run(ctx context.Context, c console) error {
	if v.Most < 1 {
		return &usageError{fmt.Errorf("--most=%d: must be 1 or more", v.Most)}
	}
	readAtLength()
	h, err := v.database.hold(ctx, c)
	if err != nil {
		return err
	}
	defer h.close()
	var shown *progress
	findings, err := verify.Verification{
		URL: h.url, Pool: h.pool, Store: h.store, Most: v.Most,
		Progress: func(what string, done, end eventstore.Position) {
			if shown == nil || shown.what != "verify "+what {
				shown = newProgress(c.err, "verify "+what)
			}
			shown.show(uint64(done), uint64(end), "positions")
		},
	}.Run(ctx)
	for _, finding := range findings {
		fmt.Fprintln(c.out, finding)
	}
	if err != nil {
		return err
	}
	if len(findings) > 0 {
		return errDiffers
	}
	fmt.Fprintln(c.out, "the log and the views agree")
	return nil
}

var errDiffers = errors.New("the log and the views do not agree")
