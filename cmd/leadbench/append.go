package main

import (
	"context"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/postgres"
)

// appendBenchmark asks what the log alone costs: a new lead with its two claims, under checks of a token and an
// account, beside the same facts as plain rows.
type appendBenchmark struct {
	settings `embed:""`
	Callers  []int         `default:"8,64,256" help:"Callers at a time, and clients of pgbench."`
	Duration time.Duration `default:"5s" help:"Of each measurement."`

	MessageDB string `placeholder:"DIR" help:"Where message-db's SQL files are, to compare with its write_message too."`
}

// With so many callers the log is compared with message-db, and this is the least ratio.
const (
	messageDBCallers = 64
	messageDBGoal    = 15
)

// appendGoals are the least ratios that the log has to reach, by the number of callers.
var appendGoals = map[int]float64{8: 1.3, 64: 3.5, 256: 4}

// Run is leadbench append.
func (b *appendBenchmark) Run(ctx context.Context) error {
	b.settings.Leadlog = "-" // the log runs in this process
	r, err := newRig(ctx, b.settings)
	if err != nil {
		return err
	}
	defer r.close()
	crud, err := r.crud(ctx, "crud")
	if err != nil {
		return err
	}
	address, err := r.database(ctx, "log")
	if err != nil {
		return err
	}
	store, err := r.log(ctx, address)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := beginChecked(ctx, store); err != nil {
		return err
	}
	var other string
	if b.MessageDB != "" {
		if other, err = r.messageDB(ctx, b.MessageDB); err != nil {
			return err
		}
	}
	plain, appends, others := rates{}, rates{}, rates{}
	for round := range b.Rounds {
		say("round %d of %d", round+1, b.Rounds)
		for _, callers := range b.Callers {
			err := plain.measure(ctx, r, callers, func() (float64, error) { return r.pgbench(ctx, crud, plainCrud, callers, b.Duration) })
			if err == nil {
				err = appends.measure(ctx, r, callers, func() (float64, error) {
					l, err := appendAll(ctx, store, callers, b.Duration)
					return l.rate(), err
				})
			}
			if err == nil && other != "" && callers == messageDBCallers {
				err = others.measure(ctx, r, callers, func() (float64, error) { return r.pgbench(ctx, other, messageDBFacts, callers, b.Duration) })
			}
			if err != nil {
				return err
			}
		}
	}
	t := newTable("callers", "appends a second", "pgbench: two INSERTs in a transaction", "leadlog to it", "goal")
	for _, callers := range b.Callers {
		goal := ""
		if least, ok := appendGoals[callers]; ok {
			goal = atLeast(least)
		}
		t.row(fmt.Sprint(callers), count(median(appends[callers])), count(median(plain[callers])),
			times(share(appends[callers], plain[callers])), goal)
	}
	t.print()
	for callers, rates := range others {
		t = newTable("callers", "message-db: three write_message in a statement", "leadlog to it", "goal")
		t.row(fmt.Sprint(callers), count(median(rates)), times(share(appends[callers], rates)), atLeast(messageDBGoal))
		t.print()
	}
	return nil
}

// rates are what rounds gave, by the number of callers.
type rates map[int][]float64

// measure runs one round after a checkpoint.
func (r rates) measure(ctx context.Context, on *rig, callers int, run func() (float64, error)) error {
	if err := on.checkpoint(ctx); err != nil {
		return err
	}
	rate, err := run()
	r[callers] = append(r[callers], rate)
	return err
}

// appendAll has callers append arrivals of new leads, one after another each.
func appendAll(ctx context.Context, store *postgres.Store, callers int, duration time.Duration) (load, error) {
	workers := make([]func(context.Context) error, callers)
	for i := range workers {
		workers[i] = func(ctx context.Context) error {
			_, err := store.Append(ctx, arrival()...)
			return err
		}
	}
	return drive(ctx, duration, 0, workers)
}

// log makes a log in an empty database and opens it.
func (r *rig) log(ctx context.Context, address string) (*postgres.Store, error) {
	if err := postgres.Migrate(ctx, address); err != nil {
		return nil, err
	}
	return postgres.Open(ctx, postgres.Options{URL: address})
}

// checked are the streams that every append checks, as a capture checks its token and its account. No view is about them.
var checked = []string{"bench-token", "bench-account"}

func beginChecked(ctx context.Context, store eventstore.Store) error {
	var writes []eventstore.Write
	for _, stream := range checked {
		begin := []eventstore.Event{fact("bench.began.v1", `{}`)}
		writes = append(writes, eventstore.Write{Stream: stream, Expect: eventstore.NoStream, Events: begin})
	}
	_, err := store.Append(ctx, writes...)
	return err
}

func fact(eventType, data string) eventstore.Event {
	return eventstore.Event{ID: ulid.Make(), Type: eventType, At: time.Now().UTC().Truncate(time.Millisecond), Data: []byte(data)}
}

// arrival is what the capture of a new lead appends.
func arrival() []eventstore.Write {
	lead := fact("lead.created.v1", `{"contactUID":"01J000000000000000000000CU","name":"Asha Rao","phone":"+919876543210","email":"asha@example.com",`+
		`"status":"new","leadTemperature":"warm","source":"website","metadata":{"source":"website","utm_campaign":"diwali"},"customFields":{"city":"Pune"}}`)
	phone, email := fact("claim.taken.v1", `{"kind":"phone","holder":"01J000000000000000000000CU"}`), fact("claim.taken.v1", `{"kind":"email","holder":"01J000000000000000000000CU"}`)
	for _, e := range []*eventstore.Event{&lead, &phone, &email} {
		e.Metadata.Account, e.Metadata.Actor, e.Metadata.RequestID = account, "token:01J000000000000000000000TK", "01J000000000000000000000RQ"
	}
	fresh := func(stream string, e eventstore.Event) eventstore.Write {
		return eventstore.Write{Stream: stream, Expect: eventstore.NoStream, Events: []eventstore.Event{e}}
	}
	return []eventstore.Write{
		eventstore.Check(checked[0], 0), eventstore.Check(checked[1], 0),
		// Claims are named by a keyed hash: at random.
		fresh(fmt.Sprintf("claim-%x", phone.ID.Entropy()), phone), fresh(fmt.Sprintf("claim-%x", email.ID.Entropy()), email),
		fresh("lead-"+lead.ID.String(), lead),
	}
}
