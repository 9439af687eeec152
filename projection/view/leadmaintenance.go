package view

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/projection"
)

// leadBlocks is the work on blocks that is left for one session to do.
type leadBlocks struct {
	sweeping bool           // all accounts are looked at once, in the order of their names: nothing is known of them yet
	swept    string         // the account that was looked at last
	created  map[string]int // new leads since an account was looked at
	full     []string       // accounts with enough of them for a block, each once
	rests    time.Time      // full is left alone until then: the last look found no block to make
	young    []string       // accounts with enough leads for a block, some of which are too young, each once
	ripe     time.Time      // when to look at those again
	cleared  bool           // filters may have been cleared
	looked   time.Time      // when filters that were cleared were last looked for
}

// Maintenance implements projection.Maintainer.
func (Lead) Maintenance() projection.Maintenance {
	return &leadBlocks{sweeping: true, created: map[string]int{}, cleared: true}
}

// Note implements projection.Maintenance.
func (l *leadBlocks) Note(events []projection.Event) {
	for i := range events {
		l.cleared = true // perhaps
		if events[i].Revision > 0 {
			continue
		}
		account := events[i].Metadata.Account
		if l.created[account]++; l.created[account] == blockLeads {
			delete(l.created, account)
			l.look(account)
		}
	}
	if len(l.created) > accountsKept {
		clear(l.created)
		l.sweeping, l.swept = true, ""
	}
}

// Due implements projection.Maintenance. Filters that were cleared are looked for once in a while: mostly there are none.
func (l *leadBlocks) Due() bool {
	now := time.Now()
	return l.sweeping || len(l.full) > 0 && !now.Before(l.rests) || len(l.young) > 0 && !now.Before(l.ripe) ||
		l.cleared && now.Sub(l.looked) >= projection.MaintenancePause
}

// Pending implements projection.Maintenance.
func (l *leadBlocks) Pending() bool {
	return l.cleared || l.sweeping || len(l.full) > 0 || len(l.young) > 0
}

// Run implements projection.Maintenance. After an error nothing is known of what it had taken up.
func (l *leadBlocks) Run(ctx context.Context, tx pgx.Tx) error {
	more, err := l.remake(ctx, tx)
	if err == nil && !more {
		err = l.make(ctx, tx)
	}
	if err != nil {
		l.sweeping, l.swept, l.cleared = true, "", true
	}
	return err
}

// remake makes some of the filters that were cleared, when it is time to look for them. More: there may be others.
func (l *leadBlocks) remake(ctx context.Context, tx pgx.Tx) (more bool, err error) {
	if !l.cleared || time.Since(l.looked) < projection.MaintenancePause {
		return false, nil
	}
	made, err := remakeBlocks(ctx, tx)
	if err != nil || made == blocksAtOnce {
		return true, err
	}
	l.cleared, l.looked = false, time.Now()
	return false, nil
}

// make tries accounts until one has enough leads for a block.
func (l *leadBlocks) make(ctx context.Context, tx pgx.Tx) error {
	if len(l.young) > 0 && !time.Now().Before(l.ripe) {
		l.look(l.young...)
		l.young = nil
	}
	for range accountsAtOnce {
		account, err := l.next(ctx, tx)
		if err != nil || account == "" {
			return err
		}
		made, err := makeBlocks(ctx, tx, account)
		if err != nil {
			return err
		}
		if made > 0 {
			l.look(account) // there may be more
			l.rests = time.Time{}
			return nil
		}
		l.rests = time.Now().Add(projection.MaintenancePause)
		soon, err := soonEnough(ctx, tx, account)
		if err != nil {
			return err
		}
		if soon {
			l.wait(account)
		}
	}
	return nil
}

// look queues accounts to be looked at.
func (l *leadBlocks) look(accounts ...string) {
	for _, account := range accounts {
		if !slices.Contains(l.full, account) {
			l.full = append(l.full, account)
		}
	}
}

// wait makes an account be looked at again when its leads are old enough, even if no other leads come.
func (l *leadBlocks) wait(account string) {
	if len(l.young) == 0 {
		l.ripe = time.Now().Add(blockAge * time.Second)
	}
	if !slices.Contains(l.young, account) {
		l.young = append(l.young, account)
	}
}

// next returns an account to look at, or "" if there is none.
func (l *leadBlocks) next(ctx context.Context, tx pgx.Tx) (account string, err error) {
	if len(l.full) > 0 {
		account, l.full = l.full[0], l.full[1:]
		return account, nil
	}
	if !l.sweeping {
		return "", nil
	}
	err = tx.QueryRow(ctx, `SELECT coalesce((SELECT account FROM lead WHERE account > $1 ORDER BY account LIMIT 1), '')`, l.swept).Scan(&account)
	l.swept, l.sweeping = account, account != ""
	return account, err
}
