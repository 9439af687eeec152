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

// SourceDay counts the arrivals of each day, by source and outcome: on the day on which the person came, and on the day
// on which the arrival was recorded, which may be later.
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

// outcomes counts arrivals by outcome, those that were recorded, and how many of these were lines of a batch or a file.
type outcomes struct{ created, merged, refused, recorded, lines int64 }

type dayCounts map[sourceDay]outcomes

func (c dayCounts) add(account string, at time.Time, source string, n outcomes) {
	key := sourceDay{account, at.UTC().Truncate(24 * time.Hour), source}
	sum := c[key]
	c[key] = outcomes{
		sum.created + n.created, sum.merged + n.merged, sum.refused + n.refused, sum.recorded + n.recorded,
		sum.lines + n.lines,
	}
}

func (SourceDay) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
	counted := dayCounts{}
	for _, e := range batch {
		var one outcomes
		source, came := "", e.At
		switch data := e.Data.(type) {
		case event.LeadCreated:
			source, came, one.created = data.Source, data.SeenAt(e.At), 1
		case event.LeadMerged:
			source, came, one.merged = data.Source, data.SeenAt(e.At), 1
		case event.LeadRefused:
			source, one.refused = data.Source, 1
		default:
			continue
		}
		recorded := outcomes{recorded: 1}
		if e.Metadata.Line != "" {
			recorded.lines = 1
		}
		counted.add(e.Metadata.Account, came, source, one)
		counted.add(e.Metadata.Account, e.At, source, recorded)
	}
	if len(counted) == 0 {
		return nil
	}
	var accounts, sources []string
	var days []time.Time
	var created, merged, refused, recorded, lines []int64
	for _, key := range slices.SortedFunc(maps.Keys(counted), sourceDay.compare) {
		n := counted[key]
		accounts, days, sources = append(accounts, key.account), append(days, key.day), append(sources, key.source)
		created, merged, refused, lines = append(created, n.created), append(merged, n.merged),
			append(refused, n.refused), append(lines, n.lines)
		recorded = append(recorded, n.recorded)
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO source_day AS old (account, day, source, created, merged, refused, recorded, lines)
		SELECT * FROM unnest($1::text[], $2::date[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
		         $8::bigint[])
		    ON CONFLICT (account, day, source) DO UPDATE
		   SET created = old.created + excluded.created, merged = old.merged + excluded.merged,
		       refused = old.refused + excluded.refused, recorded = old.recorded + excluded.recorded,
		       lines = old.lines + excluded.lines`,
		accounts, days, sources, created, merged, refused, recorded, lines)
	return err
}
