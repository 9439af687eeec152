package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/projection/schema"
)

// growthBenchmark asks what a long past costs: captures and appends on logs of several lengths, the views of all of it
// kept, beside tables of plain rows that hold as many leads.
type growthBenchmark struct {
	settings    `embed:""`
	Events      []int         `default:"10000,1000000" help:"Events on the logs, the shortest first. 10000,1000000,10000000 takes a quarter of an hour and 25 GB."`
	Connections int           `default:"64"`
	Duration    time.Duration `default:"5s" help:"Of each measurement."`
	Settle      time.Duration `default:"4us" help:"How long each load goes on before anything is measured, for each event of the log: 40 s for ten million. Until then much of the indexes is not in PostgreSQL's memory. 0s measures a server that was just started."`
}

// longLog is what a cluster with a long log should be set to, for what it is compared with too: deploy/docs/runbook.md.
var longLog = []string{"shared_buffers=4GB", "max_wal_size=8GB", "min_wal_size=2GB", "checkpoint_timeout=15min"}

// grown is one log with its service, and the table that it is compared with.
type grown struct {
	events  int
	store   *postgres.Store
	leadlog *service
	crud    string // address

	captures       figures
	appends, plain []float64 // a second
}

// Run is leadbench growth.
func (b *growthBenchmark) Run(ctx context.Context) error {
	b.Cluster = append(slices.Clone(longLog), b.Cluster...)
	r, err := newRig(ctx, b.settings)
	if err != nil {
		return err
	}
	defer r.close()
	var all []*grown
	for _, events := range b.Events {
		g, err := r.grow(ctx, events)
		if err != nil {
			return err
		}
		defer g.leadlog.stop()
		defer g.store.Close()
		all = append(all, g)
	}
	if err := r.checkpoint(ctx); err != nil {
		return err
	}
	for _, g := range all {
		if err := b.settle(ctx, r, g); err != nil {
			return err
		}
	}
	for round := range b.Rounds {
		say("round %d of %d", round+1, b.Rounds)
		for _, g := range all {
			if err := b.measure(ctx, r, g); err != nil {
				return err
			}
		}
	}
	t := newTable("events on the log", "captures a second", "processor time of one: service, database", "to the shortest log", "goal",
		"appends a second", "pgbench, as many leads", "ratio", "goal")
	for _, g := range all {
		t.row(count(float64(g.events)), count(median(g.captures.rate)), g.captures.processor(),
			times(float64(g.captures.cost())/float64(all[0].captures.cost())), atMost("1.3"),
			count(median(g.appends)), count(median(g.plain)), times(share(g.appends, g.plain)), atLeast(2.5))
	}
	t.print()
	return nil
}

// settle brings into memory what a server that has been running has there.
func (b *growthBenchmark) settle(ctx context.Context, r *rig, g *grown) error {
	enough := time.Duration(g.events) * b.Settle
	if enough == 0 {
		return nil
	}
	say("%v of each load on %d events, before anything is measured", enough, g.events)
	if _, err := r.pgbench(ctx, g.crud, plainCrud, b.Connections, enough); err != nil {
		return err
	}
	if _, err := g.leadlog.captureAll(ctx, b.Connections, enough); err != nil {
		return err
	}
	_, err := g.leadlog.catchUp(ctx)
	return err
}

// measure runs one round on one log. Checkpoints come when they are due, as they do in production.
func (b *growthBenchmark) measure(ctx context.Context, r *rig, g *grown) error {
	err := g.captures.measure(ctx, r, g.leadlog, 1, func() (load, error) { return g.leadlog.captureAll(ctx, b.Connections, b.Duration) })
	if err != nil {
		return err
	}
	rate, err := r.pgbench(ctx, g.crud, plainCrud, b.Connections, b.Duration)
	if err != nil {
		return err
	}
	g.plain = append(g.plain, rate)
	l, err := appendAll(ctx, g.store, b.Connections, b.Duration)
	if err != nil {
		return err
	}
	g.appends = append(g.appends, l.rate())
	_, err = g.leadlog.catchUp(ctx)
	return err
}

// grow makes a log of so many events, its views, and a table of as many leads.
func (r *rig) grow(ctx context.Context, events int) (g *grown, err error) {
	say("making a log of %d events", events)
	g = &grown{events: events}
	address, err := r.database(ctx, fmt.Sprintf("log%d", events))
	if err != nil {
		return nil, err
	}
	if err := schema.Migrate(ctx, address); err != nil {
		return nil, err
	}
	if g.store, err = r.log(ctx, address); err != nil {
		return nil, err
	}
	if err := fill(ctx, address, events); err != nil {
		return nil, err
	}
	if g.crud, err = r.crud(ctx, fmt.Sprintf("crud%d", events)); err != nil {
		return nil, err
	}
	if err := execute(ctx, g.crud, crudPast, events/3); err != nil { // a lead has two claims beside it
		return nil, err
	}
	if g.leadlog, err = r.serve(ctx, address); err != nil {
		return nil, err
	}
	if _, err = g.leadlog.catchUp(ctx); err != nil {
		return nil, err
	}
	if err := beginChecked(ctx, g.store); err != nil {
		return nil, err
	}
	return g, execute(ctx, address, `VACUUM ANALYZE`) // as autovacuum would have done long ago
}

const crudPast = `INSERT INTO lead (account, name, phone, email, status, temperature, source, metadata, custom_fields)
SELECT 'bench', 'Asha Rao', '+91' || n, 'a' || n || '@example.com', 'new', 'warm', 'website', '{"source":"website","utm_campaign":"diwali"}', '{"city":"Pune"}'
  FROM (SELECT hashint8extended(i, 1) AS n FROM generate_series(1, $1::bigint) AS i) AS random`

// fill copies events onto an empty log, and lets PostgreSQL make the indexes when they are there.
func fill(ctx context.Context, address string, events int) error {
	const constraints = `PRIMARY KEY (position), ADD CONSTRAINT event_stream_revision UNIQUE (stream, revision)`
	err := execute(ctx, address, `ALTER TABLE log.event DROP CONSTRAINT event_position, DROP CONSTRAINT event_stream_revision`)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	past := &rows{history: newHistory(), events: events}
	columns := []string{"position", "recorded_at", "revision", "event_id", "stream", "type", "data", "metadata"}
	if _, err := conn.CopyFrom(ctx, pgx.Identifier{"log", "event"}, columns, past); err != nil {
		return err
	}
	return execute(ctx, address, `ALTER TABLE log.event ADD CONSTRAINT event_position `+constraints)
}

// rows are the events of new leads as rows of the log.
type rows struct {
	history  *history
	events   int
	position int
	next     []eventstore.Write
}

func (r *rows) Next() bool {
	if len(r.next) > 1 {
		r.next = r.next[1:]
	} else {
		r.next = r.history.newcomer()
	}
	r.position++
	return r.position <= r.events
}

func (r *rows) Values() ([]any, error) {
	e := r.next[0].Events[0]
	metadata, err := json.Marshal(e.Metadata)
	return []any{int64(r.position), e.At, int64(0), [16]byte(e.ID), r.next[0].Stream, e.Type, e.Data, metadata}, err
}

func (r *rows) Err() error { return nil }
