package view

import (
	"bytes"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// A search skips blocks of leads that cannot contain a match. A row of views.lead_block is a block: the leads of an account that
// were created between two times, with a Bloom filter of what searches compare (schema.Grams). Blocks are made in the background.
// A change of leads sets the filter of their block to NULL in the same transaction; such a block is always searched, until
// its filter is made again.

const (
	blockTable = "lead_block"
	// blockLeads are those of one block; more, when they are of one moment.
	blockLeads = 128
	// blocksAtOnce bounds how long a view waits for blocks.
	blocksAtOnce = 8
	// accountsAtOnce are looked at for leads that are in no block.
	accountsAtOnce = 20
	// accountsKept bounds for how many accounts new leads are counted.
	accountsKept = 10_000
	// blockAge is how old a lead is before it goes into a block, in seconds: until then others may still come before it.
	blockAge = 10
)

// clearFiltersOfNew is about the blocks that new leads fall into: those that end behind the oldest new lead of the account.
// There are none while the leads of several processes come in the order of their clocks, give or take ten seconds.
func clearFiltersOfNew(ctx context.Context, tx pgx.Tx, leads []lead.State) error {
	oldest := map[string]time.Time{}
	for i := range leads {
		at, met := oldest[leads[i].Account]
		if leads[i].Phase == lead.Live && (!met || leads[i].CreatedAt.Before(at)) {
			oldest[leads[i].Account] = leads[i].CreatedAt
		}
	}
	if len(oldest) == 0 {
		return nil
	}
	accounts, times := make([]string, 0, len(oldest)), make([]time.Time, 0, len(oldest))
	for account, at := range oldest {
		accounts, times = append(accounts, account), append(times, at)
	}
	_, err := tx.Exec(ctx, `
		UPDATE lead_block AS b SET grams = NULL FROM unnest($1::text[], $2::timestamptz[]) AS n (account, oldest)
		 WHERE b.account = n.account AND b.until > n.oldest AND b.grams IS NOT NULL`, accounts, times)
	return err
}

// clearFiltersOfChanged is about the blocks of leads that are found by something else now, or are gone.
func clearFiltersOfChanged(ctx context.Context, tx pgx.Tx, before, after []lead.State) error {
	var accounts []string
	var times []time.Time
	for i := range before {
		if after[i].Phase != lead.Live || after[i].Temperature != before[i].Temperature || searched(&before[i]) != searched(&after[i]) {
			accounts, times = append(accounts, before[i].Account), append(times, before[i].CreatedAt)
		}
	}
	if len(accounts) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		UPDATE lead_block AS b SET grams = NULL
		  FROM unnest($1::text[], $2::timestamptz[]) AS n (account, at)
		 CROSS JOIN LATERAL (SELECT until FROM lead_block WHERE account = n.account AND until > n.at ORDER BY until LIMIT 1) AS its
		 WHERE b.account = n.account AND b.until = its.until AND b.grams IS NOT NULL`, accounts, times)
	return err
}

// outside selects the leads of the account $1 that are in no block.
const outside = `
		  FROM lead WHERE account = $1 AND created_at >= (SELECT coalesce(max(until), '-infinity') FROM lead_block WHERE account = $1)`

// soonEnough reports whether an account has leads for another block, some of which are young.
func soonEnough(ctx context.Context, tx pgx.Tx, account string) (soon bool, err error) {
	err = tx.QueryRow(ctx, `
		SELECT (SELECT max(created_at) FROM lead WHERE account = $1) >= now() - $3 * interval '1 s' AND EXISTS (SELECT`+outside+` OFFSET $2)`,
		account, blockLeads, blockAge).Scan(&soon)
	return soon, err
}

// makeBlocks makes the next blocks of an account. Leads that are young stay out. Where a process has a clock that is ahead,
// the time is that of the account's latest lead.
func makeBlocks(ctx context.Context, tx pgx.Tx, account string) (made int, err error) {
	rows, err := tx.Query(ctx, `
		SELECT created_at, search, temperature, source`+outside+`
		   AND created_at < greatest(now(), (SELECT max(created_at) FROM lead WHERE account = $1)) - $3 * interval '1 s'
		 ORDER BY created_at LIMIT $2`, account, blocksAtOnce*blockLeads+1, blockAge)
	if err != nil {
		return 0, err
	}
	var at time.Time
	var search, temperature, source string
	var ends []time.Time
	var blocks [][]byte
	block, leads, latest := schema.Grams{}, 0, time.Time{}
	_, err = pgx.ForEachRow(rows, []any{&at, &search, &temperature, &source}, func() error {
		if leads >= blockLeads && at.After(latest) {
			ends, blocks = append(ends, at), append(blocks, append([]byte(nil), block[:]...))
			block, leads = schema.Grams{}, 0
		}
		block.AddLead(search, temperature, source)
		leads, latest = leads+1, at
		return nil
	})
	if err != nil || len(ends) == 0 {
		return 0, err
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO lead_block (account, since, until, grams)
		SELECT $1, coalesce(lag(until) OVER (ORDER BY until), (SELECT max(until) FROM lead_block WHERE account = $1), '-infinity'), until, grams
		  FROM unnest($2::timestamptz[], $3::bytea[]) AS n (until, grams)`, account, ends, blocks)
	return len(ends), err
}

// leadsOf selects what the filter of a block b is made of, three texts for each lead. The place is a schema with its dot, or
// empty.
func leadsOf(place string) string {
	return `ARRAY(SELECT ARRAY[search, temperature, source] FROM ` + place + `lead l
	               WHERE l.account = b.account AND l.created_at >= b.since AND l.created_at < b.until)`
}

// remakeBlocks makes some of the filters that were cleared.
func remakeBlocks(ctx context.Context, tx pgx.Tx) (made int, err error) {
	rows, err := tx.Query(ctx, `
		SELECT account, until, `+leadsOf(``)+` FROM lead_block AS b WHERE grams IS NULL LIMIT $1`, blocksAtOnce)
	if err != nil {
		return 0, err
	}
	var account string
	var until time.Time
	var leads [][]string
	var accounts []string
	var ends []time.Time
	var blocks [][]byte
	_, err = pgx.ForEachRow(rows, []any{&account, &until, &leads}, func() error {
		accounts, ends, blocks = append(accounts, account), append(ends, until), append(blocks, gramsOf(leads))
		return nil
	})
	if err != nil || len(ends) == 0 {
		return 0, err
	}
	_, err = tx.Exec(ctx, `
		UPDATE lead_block AS b SET grams = n.grams
		  FROM unnest($1::text[], $2::timestamptz[], $3::bytea[]) AS n (account, until, grams)
		 WHERE b.account = n.account AND b.until = n.until`, accounts, ends, blocks)
	return len(ends), err
}

func gramsOf(leads [][]string) []byte {
	var block schema.Grams
	for _, l := range leads {
		block.AddLead(l[0], l[1], l[2])
	}
	return block[:]
}

// DerivedTables implements projection.Maintainer.
func (Lead) DerivedTables() []string { return []string{blockTable} }

// CompareDerived implements projection.Maintainer. Each block begins where the one before ends, and has the filter of its leads.
func (Lead) CompareDerived(ctx context.Context, tx pgx.Tx, live string, most int) (found []projection.Difference, err error) {
	place := pgx.Identifier{live}.Sanitize() + `.`
	rows, err := tx.Query(ctx, `
		SELECT account, until, grams, since = lag(until, 1, '-infinity') OVER (PARTITION BY account ORDER BY until), `+leadsOf(place)+`
		  FROM `+place+blockTable+` AS b ORDER BY account, until`)
	if err != nil {
		return nil, err
	}
	var account string
	var until time.Time
	var grams []byte
	var joins bool
	var leads [][]string
	_, err = pgx.ForEachRow(rows, []any{&account, &until, &grams, &joins, &leads}, func() error {
		d := projection.Difference{Table: blockTable, Key: account + " " + until.UTC().Format(time.RFC3339Nano), What: "does not match its leads"}
		if !joins {
			d.What = "does not begin where the one before ends"
		}
		if len(found) < most && (!joins || grams != nil && !bytes.Equal(grams, gramsOf(leads))) {
			found = append(found, d)
		}
		return nil
	})
	return found, err
}
