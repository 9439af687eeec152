package main

import (
	"context"
	"fmt"
	"time"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
)

type migrateCommand struct {
	service.Database `embed:""`
}

// Run is leadlog migrate.
func (m *migrateCommand) Run(ctx context.Context, c cli.Output) error {
	var check cli.Checker
	if m.Database.Check(&check); check.Err() != nil {
		return check.Err()
	}
	log := cli.Logger(c)
	views, events, private, err := m.Database.Open(ctx, log)
	if err != nil {
		return err
	}
	defer service.StopPrivate(private, log)
	began := time.Now()
	if err := service.Migrate(ctx, views, events); err != nil {
		return err
	}
	fmt.Fprintf(c.Err, "schema is up to date (%s)\n", time.Since(began).Round(time.Millisecond))
	return nil
}
