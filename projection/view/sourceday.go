package view

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// SourceDay counts the arrivals of each day, by source and outcome.
type SourceDay struct{}

func (SourceDay) Name() string     { return schema.SourceDay }
func (SourceDay) Version() int     { return 2 }
func (SourceDay) Tables() []string { return []string{"source_day"} }
func (SourceDay) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.LeadPrefix, event.RefusedPrefix}}
}

type sourceDay struct {
	account string
	day     time.Time // midnight, UTC
	source  string
}

func (d sourceDay) compare(other sourceDay) int {
	return cmp.Or(cmp.Compare(d.account, other.account), d.day.Compare(other.day), cmp.Compare(d.source, other.source))
}

// outcomes counts arrivals by outcome, and how many of them were lines of a batch or a file.
type outcomes struct{ created, merged, refused, lines int64 }

func (SourceDay) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
	counted := map[sourceDay]outcomes{}
	for _, e := range batch {
		key := sourceDay{account: e.Metadata.Account, day: e.At.UTC().Truncate(24 * time.Hour)}
		var one outcomes
		switch data := e.Data.(type) {
		case event.LeadCreated:
			key.source, one.created = data.Source, 1
		case event.LeadMerged:
			key.source, one.merged = data.Source, 1
		case event.LeadRefused:
			key.source, one.refused = data.Source, 1
		default:
			continue
		}
		if e.Metadata.Line != "" {
			one.lines = 1
		}
		sum := counted[key]
		counted[key] = outcomes{
			sum.created + one.created, sum.merged + one.merged, sum.refused + one.refused, sum.lines + one.lines,
		}
	}
	if len(counted) == 0 {
		return nil
	}
	var accounts, sources []string
	var days []time.Time
	var created, merged, refused, lines []int64
	for _, key := range slices.SortedFunc(maps.Keys(counted), sourceDay.compare) {
		n := counted[key]
		accounts, days, sources = append(accounts, key.account), append(days, key.day), append(sources, key.source)
		created, merged, refused, lines = append(created, n.created), append(merged, n.merged),
			append(refused, n.refused), append(lines, n.lines)
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO source_day AS old (account, day, source, created, merged, refused, lines)
		SELECT * FROM unnest($1::text[], $2::date[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
		    ON CONFLICT (account, day, source) DO UPDATE
		   SET created = old.created + excluded.created, merged = old.merged + excluded.merged,
		       refused = old.refused + excluded.refused, lines = old.lines + excluded.lines`,
		accounts, days, sources, created, merged, refused, lines)
	return err
}
