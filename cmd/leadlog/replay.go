package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/view"
)

type replayCommand struct {
	service.SealedDatabase `embed:""`

	View  string  `arg:"" help:"Name of a view, such as lead or touch, or all."`
	Until *string `placeholder:"TIME|POSITION" help:"Build the view as of this time or position. Needs --into, because a live view is never set back."`
	Into  *string `placeholder:"SCHEMA" help:"Build a copy in this schema, and do not change the live view."`
}

// Run is leadlog replay. It only reads the log and writes views: it sends no webhooks.
func (r *replayCommand) Run(ctx context.Context, c cli.Output) error {
	projectors, into, until, err := r.parse()
	if err != nil {
		return err
	}
	service.CollectLess(0)
	h, err := r.OpenStores(ctx, c)
	if err != nil {
		return err
	}
	defer h.Close()
	shown, begun := cli.NewProgress(c.Err, "replay "+r.View), false
	err = projection.Replay{
		URL: h.URL, Store: h.Store, Projectors: projectors, Into: into, Until: until,
		Progress: func(done, end eventstore.Position) {
			if !begun {
				begun = true
				shown.Resumed(uint64(done))
			}
			shown.Show(uint64(done), uint64(end), "positions")
		},
		Built: func(p projection.Projector, position eventstore.Position) {
			what := "replaced"
			if into != "" {
				what = into + " is as of " + until.String()
			}
			shown.Note("replay %s: %s, from the log up to position %d", p.Name(), what, position)
		},
	}.Run(ctx)
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("replay %s: interrupted; run it again to resume", r.View)
	}
	if errors.Is(err, projection.ErrBeyondLog) {
		return cli.Usagef("--until=%q: must be a position of the log: %w", *r.Until, err)
	}
	if err != nil {
		return fmt.Errorf("replay %s: %w", r.View, err)
	}
	shown.End("done")
	return nil
}

// parse reads the arguments. Into is empty when the live view is to be replaced. An empty --into is refused: a script
// with an unset variable would replace the live view by mistake.
func (r *replayCommand) parse() (projectors []projection.Projector, into string, until projection.Until, err error) {
	var check cli.Checker
	var names []string
	for _, p := range view.All() {
		names = append(names, p.Name())
		if r.View == p.Name() || r.View == "all" {
			projectors = append(projectors, p)
		}
	}
	if len(projectors) == 0 {
		slices.Sort(names)
		check.Refuse("VIEW", r.View, "all or one of "+strings.Join(names, ", "))
	}
	if r.Until != nil {
		if r.Into == nil {
			check.Refuse("--until", *r.Until, "given together with --into: a live view is never set back")
		}
		if position, err := strconv.ParseUint(*r.Until, 10, 63); err == nil && position > 0 {
			until.Position = eventstore.Position(position)
		} else {
			until.Time = check.Time("--until", *r.Until,
				"a time such as 2006-01-02T15:04:05Z, or a position of the log from 1")
		}
	}
	if r.Into != nil {
		into = *r.Into
		// Schemas that exist already, those of PostgreSQL and of leadlog among them, are refused later. Here only the
		// names of unfinished copies are: the next replay or verify drops every schema with such a name.
		if !regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`).MatchString(into) || strings.HasPrefix(into, "replay_") ||
			strings.HasPrefix(into, "verify_") {
			check.Refuse("--into", into,
				"a name of at most 63 small letters, digits and _, and not one that begins with replay_ or verify_")
		}
	}
	return projectors, into, until, check.Err()
}
