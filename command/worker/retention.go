package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/worker/forget"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/query"
)

const (
	retentionInterval = 6 * time.Hour // a run reads all leads of the accounts that have a retention
	retentionRetry    = 10 * time.Minute
	retentionAtOnce   = 10_000 // leads; each read looks at all of the account
	// A killed process leaves at most its last erasure unfinished.
	unfinishedAtMost = 20
	unfinishedSince  = 7 * 24 * time.Hour
)

// Retention erases the leads of accounts that were inactive for longer than the account's retentionDays. Several
// processes may run it: each lead is erased once.
type Retention struct {
	Query    *query.Reader
	Handlers *command.Handlers
	Eraser   forget.Eraser
	Log      *slog.Logger
	Now      func() time.Time
}

// Run runs until the context is done.
func (r Retention) Run(ctx context.Context) {
	work := eventstore.Background{
		Work: "erase leads whose retention has ended", Interval: retentionInterval, Retry: retentionRetry, Log: r.Log,
	}
	work.Run(ctx, func(ctx context.Context) (bool, error) { return false, r.runOnce(ctx) })
}

func (r Retention) runOnce(ctx context.Context) error {
	accounts, err := r.Query.RetainingAccounts(ctx)
	if err != nil {
		return err
	}
	var failed error
	for _, account := range accounts {
		err := r.eraseDue(ctx, account)
		if errors.Is(err, eventstore.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// eraseDue finishes erasures that a killed process has left, and erases all leads of an account that are due.
func (r Retention) eraseDue(ctx context.Context, account string) error {
	since := r.Now().Add(-unfinishedSince)
	unfinished, err := r.Query.ErasedByRetention(ctx, account, command.RetentionActor, since, unfinishedAtMost)
	if err != nil {
		return err
	}
	for _, id := range unfinished {
		if _, err := r.Eraser.EraseLead(ctx, r.Handlers.RetentionErasure(account, lead.Retention{}), id); err != nil {
			return fmt.Errorf("lead %s: %w", id, err)
		}
	}
	erased := 0
	var failed error // of one lead: the others are erased all the same
	for last := (query.DueLead{}); ; {
		due, by, err := r.Query.DueLeads(ctx, account, last, retentionAtOnce)
		if err != nil {
			return errors.Join(failed, err)
		}
		for _, one := range due {
			_, err := r.Eraser.EraseLead(ctx, r.Handlers.RetentionErasure(account, by), one.LeadID)
			switch {
			case errors.Is(err, eventstore.ErrUnavailable) || ctx.Err() != nil:
				return err
			case errors.Is(err, lead.ErrNotDue), errors.Is(err, lead.ErrNotFound):
			case err != nil:
				failed = fmt.Errorf("lead %s: %w", one.LeadID, err)
			default:
				erased++
			}
			last = one
		}
		if len(due) < retentionAtOnce {
			break
		}
	}
	if erased > 0 {
		r.Log.Info("leads whose retention has ended erased", slog.String("account", account), slog.Int("leads", erased))
	}
	return failed
}
