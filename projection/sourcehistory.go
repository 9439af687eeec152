package projection

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// SourceHistory keeps where each lead came from: a row for each source that it ever arrived from. The rows of a lead that
// is joined into another become that one's.
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

// Apply implements Projector. A join is about rows that were made before it, so a batch is cut there.
func (SourceHistory) Apply(ctx context.Context, tx pgx.Tx, batch []Event) error {
	begin := 0
	for i, e := range batch {
		joined, ok := e.Data.(event.LeadJoined)
		if !ok {
			continue
		}
		if err := applySightings(ctx, tx, batch[begin:i]); err != nil {
			return err
		}
		if err := joinHistories(ctx, tx, event.LeadID(e.Stream), joined.From); err != nil {
			return err
		}
		begin = i + 1
	}
	return applySightings(ctx, tx, batch[begin:])
}

// joinHistories gives one lead the rows of another. Of a source that both have, the row that was first tells how, and it
// tells of the arrivals of both: as lead.Evolve does it.
func joinHistories(ctx context.Context, tx pgx.Tx, into, from string) error {
	_, err := tx.Exec(ctx, `
		WITH departed AS (DELETE FROM source_history WHERE lead_id = $2 RETURNING *)
		INSERT INTO source_history AS old (lead_id, source, account, position, first_seen_at, last_seen_at, arrivals,
		                                   credential, metadata, ip, user_agent, request_id, changed)
		SELECT $1, source, account, position, first_seen_at, last_seen_at, arrivals, credential, metadata, ip, user_agent,
		       request_id, changed
		  FROM departed
		    ON CONFLICT (lead_id, source) DO UPDATE
		   SET last_seen_at = greatest(old.last_seen_at, excluded.last_seen_at), arrivals = old.arrivals + excluded.arrivals,
		       (position, first_seen_at, credential, metadata, ip, user_agent, request_id, changed) = (
		           SELECT r.position, r.first_seen_at, r.credential, r.metadata, r.ip, r.user_agent, r.request_id, r.changed
		             FROM (VALUES (old.position, old.first_seen_at, old.credential, old.metadata, old.ip, old.user_agent, old.request_id, old.changed, 0),
		                          (excluded.position, excluded.first_seen_at, excluded.credential, excluded.metadata, excluded.ip, excluded.user_agent,
		                           excluded.request_id, excluded.changed, 1))
		                  AS r (position, first_seen_at, credential, metadata, ip, user_agent, request_id, changed, place)
		            ORDER BY r.first_seen_at, r.place LIMIT 1)`,
		into, from)
	return err
}

func applySightings(ctx context.Context, tx pgx.Tx, batch []Event) error {
	if len(batch) == 0 {
		return nil
	}
	seen := map[sourceKey]*sighting{}
	born := map[string]struct{}{}
	erased := map[string]struct{}{}
	for _, e := range batch {
		if _, ok := e.Data.(event.LeadErased); ok || e.Erased {
			erased[event.LeadID(e.Stream)] = struct{}{}
			continue
		}
		if e.Revision == 0 {
			born[event.LeadID(e.Stream)] = struct{}{}
		}
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
	if err := saveSightings(ctx, tx, seen, born); err != nil {
		return err
	}
	return deleteLeads(ctx, tx, "source_history", slices.Sorted(maps.Keys(erased)))
}

// saveSightings inserts what a lead that was born in the batch was seen from. Of others some rows may be there.
func saveSightings(ctx context.Context, tx pgx.Tx, seen map[sourceKey]*sighting, born map[string]struct{}) error {
	r := makeRows(len(seen), 600)
	var again sightings
	for _, s := range slices.SortedFunc(maps.Values(seen), func(a, b *sighting) int { return cmp.Compare(a.position, b.position) }) {
		if _, new := born[s.leadID]; new {
			s.write(&r)
		} else {
			again.add(s)
		}
	}
	if err := r.insert(ctx, tx, "source_history", "lead_id", "source", "account", "position", "first_seen_at", "last_seen_at",
		"arrivals", "credential", "metadata", "ip", "user_agent", "request_id", "changed"); err != nil {
		return err
	}
	return again.save(ctx, tx)
}

// appendMetadata and appendChanged write nothing as {} and [], never as null.
func (s *sighting) appendMetadata(buffer []byte) []byte {
	if s.Metadata == nil {
		return append(buffer, "{}"...)
	}
	e := encoder{buffer}
	e.members("", s.Metadata)
	return e.buffer
}

func (s *sighting) appendChanged(buffer []byte) []byte {
	if s.Changed == nil {
		return append(buffer, "[]"...)
	}
	e := encoder{buffer}
	e.list("", s.Changed)
	return e.buffer
}

func (s *sighting) write(r *rows) {
	r.row(13)
	r.text(s.leadID)
	r.text(s.source)
	r.text(s.account)
	r.bigint(int64(s.position))
	r.timestamp(s.FirstSeenAt)
	r.timestamp(s.LastSeenAt)
	r.integer(int32(s.Arrivals))
	r.text(s.Credential)
	r.jsonBy(s.appendMetadata)
	r.text(s.IP)
	r.text(s.UserAgent)
	r.text(s.RequestID)
	r.jsonbBy(s.appendChanged)
}

// sightings are column by column.
type sightings struct {
	ids, sources, accounts, credentials, ips, agents, requests []string
	positions, arrivals                                        []int64
	first, latest                                              []time.Time
	metadata, changed                                          [][]byte
}

func (c *sightings) add(s *sighting) {
	c.ids, c.sources, c.accounts = append(c.ids, s.leadID), append(c.sources, s.source), append(c.accounts, s.account)
	c.positions, c.arrivals = append(c.positions, int64(s.position)), append(c.arrivals, int64(s.Arrivals))
	c.first, c.latest = append(c.first, s.FirstSeenAt), append(c.latest, s.LastSeenAt)
	c.credentials, c.metadata, c.changed = append(c.credentials, s.Credential), append(c.metadata, s.appendMetadata(nil)), append(c.changed, s.appendChanged(nil))
	c.ips, c.agents, c.requests = append(c.ips, s.IP), append(c.agents, s.UserAgent), append(c.requests, s.RequestID)
}

func (c *sightings) save(ctx context.Context, tx pgx.Tx) error {
	if len(c.ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO source_history AS old (lead_id, source, account, position, first_seen_at, last_seen_at, arrivals,
		                                   credential, metadata, ip, user_agent, request_id, changed)
		SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::timestamptz[], $6::timestamptz[],
		                     $7::bigint[], $8::text[], $9::json[], $10::text[], $11::text[], $12::text[], $13::jsonb[])
		    ON CONFLICT (lead_id, source) DO UPDATE
		   SET last_seen_at = excluded.last_seen_at, arrivals = old.arrivals + excluded.arrivals`,
		c.ids, c.sources, c.accounts, c.positions, c.first, c.latest, c.arrivals, c.credentials, c.metadata, c.ips, c.agents,
		c.requests, c.changed)
	return err
}
