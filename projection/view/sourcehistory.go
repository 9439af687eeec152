package view

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// SourceHistory has a row for each source that a lead ever arrived from. The rows of a lead that is joined into another become that
// one's.
type SourceHistory struct{}

func (SourceHistory) Name() string     { return schema.SourceHistory }
func (SourceHistory) Version() int     { return 1 }
func (SourceHistory) Tables() []string { return []string{"source_history"} }
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

func (h SourceHistory) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
	return h.Prepare(batch)(ctx, tx)
}

// Prepare implements projection.Preparer. A join is about rows that were made before it, so a batch is cut there.
func (SourceHistory) Prepare(batch []projection.Event) projection.Write {
	var parts []projection.Write
	begin := 0
	for i := range batch {
		joined, ok := batch[i].Data.(event.LeadJoined)
		if !ok {
			continue
		}
		into := event.LeadID(batch[i].Stream)
		parts = append(parts, newSightings(batch[begin:i]).write, func(ctx context.Context, tx pgx.Tx) error {
			return joinHistories(ctx, tx, into, joined.From)
		})
		begin = i + 1
	}
	parts = append(parts, newSightings(batch[begin:]).write)
	return func(ctx context.Context, tx pgx.Tx) error {
		for _, part := range parts {
			if err := part(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	}
}

// joinHistories gives one lead the rows of another. Of a source that both have, the earlier row stays, with the arrivals of both
// counted, as in lead.Evolve.
func joinHistories(ctx context.Context, tx pgx.Tx, into, from string) error {
	_, err := tx.Exec(ctx, `
		WITH merged AS (DELETE FROM source_history WHERE lead_id = $2 RETURNING *)
		INSERT INTO source_history AS old (lead_id, source, account, position, first_seen_at, last_seen_at, arrivals,
		                                   credential, metadata, ip, user_agent, request_id, changed)
		SELECT $1, source, account, position, first_seen_at, last_seen_at, arrivals, credential, metadata, ip, user_agent,
		       request_id, changed
		  FROM merged
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

// sightings are what a part of a batch comes to: rows of leads that begin in it, and what is added to those of others.
type sightings struct {
	rows
	again  sightingColumns
	erased []string
}

func newSightings(batch []projection.Event) *sightings {
	var s sightings
	seen, index := make([]sighting, 0, len(batch)), make(map[sourceKey]int, len(batch))
	created := make(map[string]struct{}, len(batch))
	for i := range batch {
		e := &batch[i]
		id := event.LeadID(e.Stream)
		if _, ok := e.Data.(event.LeadErased); ok || e.Erased {
			s.erased = append(s.erased, id)
			continue
		}
		if e.Revision == 0 {
			created[id] = struct{}{}
		}
		entry, ok := sourceEntry(e)
		if !ok {
			continue
		}
		key := sourceKey{id, entry.Source}
		if i, again := index[key]; again {
			if entry.LastSeenAt.After(seen[i].LastSeenAt) { // a resubmitted arrival may be older
				seen[i].LastSeenAt = entry.LastSeenAt
			}
			seen[i].Arrivals++
			continue
		}
		index[key] = len(seen)
		seen = append(seen, sighting{key, entry, e.Metadata.Account, e.Position})
	}
	s.rows = makeRows(len(seen), 600)
	for i := range seen {
		if _, new := created[seen[i].leadID]; new {
			seen[i].write(&s.rows)
		} else {
			s.again.add(&seen[i])
		}
	}
	return &s
}

// sourceEntry returns the entry that an arrival adds.
func sourceEntry(e *projection.Event) (lead.SourceEntry, bool) {
	fact := e.Fact()
	switch data := e.Data.(type) {
	case event.LeadCreated:
		return lead.CreatedSourceEntry(&fact, &data), true
	case event.LeadMerged:
		return lead.MergedSourceEntry(&fact, &data), true
	}
	return lead.SourceEntry{}, false
}

func (s *sightings) write(ctx context.Context, tx pgx.Tx) error {
	err := s.insert(ctx, tx, "source_history", "lead_id", "source", "account", "position", "first_seen_at", "last_seen_at",
		"arrivals", "credential", "metadata", "ip", "user_agent", "request_id", "changed")
	if err == nil {
		err = s.again.save(ctx, tx)
	}
	if err != nil {
		return err
	}
	slices.Sort(s.erased)
	return deleteLeads(ctx, tx, "source_history", s.erased)
}

func (s *sighting) appendMetadata(buffer []byte) ([]byte, error) {
	return event.AppendObject(buffer, s.Metadata)
}

func (s *sighting) appendChanged(buffer []byte) ([]byte, error) {
	return event.AppendList(buffer, s.Changed)
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

// sightingColumns are sightings of leads that began before, column by column.
type sightingColumns struct {
	ids, sources, accounts, credentials, ips, agents, requests []string
	positions, arrivals                                        []int64
	first, latest                                              []time.Time
	metadata, changed                                          [][]byte
	err                                                        error // the first of a value that cannot be written
}

func (c *sightingColumns) add(s *sighting) {
	c.ids, c.sources, c.accounts = append(c.ids, s.leadID), append(c.sources, s.source), append(c.accounts, s.account)
	c.positions, c.arrivals = append(c.positions, int64(s.position)), append(c.arrivals, int64(s.Arrivals))
	c.first, c.latest = append(c.first, s.FirstSeenAt), append(c.latest, s.LastSeenAt)
	metadata, err := s.appendMetadata(nil)
	c.err = cmp.Or(c.err, err)
	changed, err := s.appendChanged(nil)
	c.err = cmp.Or(c.err, err)
	c.credentials, c.metadata, c.changed = append(c.credentials, s.Credential), append(c.metadata, metadata), append(c.changed, changed)
	c.ips, c.agents, c.requests = append(c.ips, s.IP), append(c.agents, s.UserAgent), append(c.requests, s.RequestID)
}

func (c *sightingColumns) save(ctx context.Context, tx pgx.Tx) error {
	if c.err != nil || len(c.ids) == 0 {
		return c.err
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO source_history AS old (lead_id, source, account, position, first_seen_at, last_seen_at, arrivals,
		                                   credential, metadata, ip, user_agent, request_id, changed)
		SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::timestamptz[], $6::timestamptz[],
		                     $7::bigint[], $8::text[], $9::json[], $10::text[], $11::text[], $12::text[], $13::jsonb[])
		    ON CONFLICT (lead_id, source) DO UPDATE
		   SET last_seen_at = greatest(old.last_seen_at, excluded.last_seen_at), arrivals = old.arrivals + excluded.arrivals`,
		c.ids, c.sources, c.accounts, c.positions, c.first, c.latest, c.arrivals, c.credentials, c.metadata, c.ips, c.agents,
		c.requests, c.changed)
	return err
}
