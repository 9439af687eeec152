package projection

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// SourceHistory keeps where each lead came from: a row for each source that it ever arrived from.
type SourceHistory struct{}

// Name implements Projector.
func (SourceHistory) Name() string { return schema.SourceHistory }

// Version implements Projector.
func (SourceHistory) Version() int { return 1 }

// Tables implements Projector.
func (SourceHistory) Tables() []string { return []string{"source_history"} }

// Filter implements Projector.
func (SourceHistory) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.LeadPrefix}}
}

type sourceKey struct{ leadID, source string }

// sighting is what a batch has of one source of a lead. The first arrival makes the row, unless the row is there
// already: then the batch only adds to it.
type sighting struct {
	sourceKey
	lead.SourceEntry
	account  string
	position eventstore.Position
}

// Apply implements Projector.
func (SourceHistory) Apply(ctx context.Context, tx pgx.Tx, batch []Event) error {
	seen := map[sourceKey]*sighting{}
	for _, e := range batch {
		var entry lead.SourceEntry
		switch data := e.Data.(type) {
		case event.LeadCreated:
			entry = lead.NewSourceEntry(e.Fact(), data.Source, data.Metadata, data.IP, data.UserAgent, data.Changed)
		case event.LeadMerged:
			entry = lead.NewSourceEntry(e.Fact(), data.Source, data.Metadata, data.IP, data.UserAgent, data.Changed)
		default:
			continue
		}
		key := sourceKey{event.LeadID(e.Stream), entry.Source}
		if s, again := seen[key]; again {
			s.LastSeenAt = entry.LastSeenAt
			s.Arrivals++
			continue
		}
		seen[key] = &sighting{key, entry, e.Metadata.Account, e.Position}
	}
	return saveSightings(ctx, tx, seen)
}

func saveSightings(ctx context.Context, tx pgx.Tx, seen map[sourceKey]*sighting) error {
	if len(seen) == 0 {
		return nil
	}
	sightings := make([]*sighting, 0, len(seen))
	for _, s := range seen {
		sightings = append(sightings, s)
	}
	slices.SortFunc(sightings, func(a, b *sighting) int { return cmp.Compare(a.position, b.position) })

	var ids, sources, accounts, credentials, ips, agents, requests []string
	var positions, arrivals []int64
	var first, latest []time.Time
	var metadata, changed [][]byte
	for _, s := range sightings {
		given, err := json.Marshal(s.Metadata, json.Deterministic(true), jsontext.PreserveRawStrings(true))
		if err != nil {
			return fmt.Errorf("metadata of lead %s: %w", s.leadID, err)
		}
		names, err := json.Marshal(s.Changed)
		if err != nil {
			return fmt.Errorf("changes of lead %s: %w", s.leadID, err)
		}
		ids, sources, accounts = append(ids, s.leadID), append(sources, s.source), append(accounts, s.account)
		positions, arrivals = append(positions, int64(s.position)), append(arrivals, int64(s.Arrivals))
		first, latest = append(first, s.FirstSeenAt), append(latest, s.LastSeenAt)
		credentials, metadata, changed = append(credentials, s.Credential), append(metadata, given), append(changed, names)
		ips, agents, requests = append(ips, s.IP), append(agents, s.UserAgent), append(requests, s.RequestID)
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO source_history AS old (lead_id, source, account, position, first_seen_at, last_seen_at, arrivals,
		                                   credential, metadata, ip, user_agent, request_id, changed)
		SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::timestamptz[], $6::timestamptz[],
		                     $7::bigint[], $8::text[], $9::json[], $10::text[], $11::text[], $12::text[], $13::jsonb[])
		    ON CONFLICT (lead_id, source) DO UPDATE
		   SET last_seen_at = excluded.last_seen_at, arrivals = old.arrivals + excluded.arrivals`,
		ids, sources, accounts, positions, first, latest, arrivals, credentials, metadata, ips, agents, requests, changed)
	return err
}
