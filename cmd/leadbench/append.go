package main

import (
	"context"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/postgres"
)

// appendBenchmark measures the log alone: appends of a new lead with its two claims, under checks of a token and an
// account, beside the same facts as plain rows.
type appendBenchmark struct {
	settings `embed:""`
	Callers  []int         `default:"8,64,256" help:"Concurrent callers, and clients of pgbench."`
	Duration time.Duration `default:"5s" help:"Of each measurement."`

	MessageDB string `placeholder:"DIR" help:"Directory of message-db's SQL files, to compare with its write_message too, by 64 callers."`
}

// messageDBCallers is the number of callers with which the log is compared with message-db.
const messageDBCallers = 64

// appendGoals are the least ratios to pgbench, by the number of callers.
var appendGoals = map[int]float64{8: 1.4, 64: 3.5, 256: 5}

// Run is leadbench append.
func (b *appendBenchmark) Run(ctx context.Context) error {
	b.Leadlog = "-" // the log runs in this process
	r, err := newRig(ctx, b.settings)
	if err != nil {
		return err
	}
	defer r.close()
	plain, err := r.plainRows(ctx, 0)
	if err != nil {
		return err
	}
	address, err := r.database(ctx, "log")
	if err != nil {
		return err
	}
	store, err := openLog(ctx, address)
	if err != nil {
		return err
	}
	defer store.Close()
	for _, stream := range checked {
		if _, err := store.Append(ctx, newStream(stream, fact("bench.began.v1", `{}`))); err != nil {
			return err
		}
	}
	var messageDB string
	if b.MessageDB != "" {
		if messageDB, err = r.messageDB(ctx, b.MessageDB); err != nil {
			return err
		}
	}
	// Rates by the number of callers, a round each.
	transactions, appends, messages := map[int][]float64{}, map[int][]float64{}, map[int][]float64{}
	for round := range b.Rounds {
		progress("round %d of %d", round+1, b.Rounds)
		for _, callers := range b.Callers {
			rate, err := r.pgbench(ctx, plain, twoInserts, callers, b.Duration)
			if err != nil {
				return err
			}
			transactions[callers] = append(transactions[callers], rate)
			if err := r.checkpoint(ctx); err != nil {
				return err
			}
			l, err := appendAll(ctx, store, callers, b.Duration)
			if err != nil {
				return err
			}
			appends[callers] = append(appends[callers], l.rate())
			if messageDB == "" || callers != messageDBCallers {
				continue
			}
			if rate, err = r.pgbench(ctx, messageDB, messageDBScript(), callers, b.Duration); err != nil {
				return err
			}
			messages[callers] = append(messages[callers], rate)
		}
	}
	t := newTable("callers", "appends a second", "what", "a second", "leadlog to it", "aim")
	for _, callers := range b.Callers {
		goal := ""
		if least, ok := appendGoals[callers]; ok {
			goal = fmt.Sprint(least)
		}
		appended := count(median(appends[callers]))
		t.row(fmt.Sprint(callers), appended, "pgbench: two INSERTs in a transaction",
			count(median(transactions[callers])),
			times(ratio(appends[callers], transactions[callers])), goal)
		if rates := messages[callers]; rates != nil {
			t.row(fmt.Sprint(callers), appended, "message-db: three write_message in a statement", count(median(rates)),
				times(ratio(appends[callers], rates)), "15")
		}
	}
	t.print()
	t = newSummary()
	appended := appends[messageDBCallers]
	t.row("appends to the log, 64 callers, to two INSERTs by pgbench; to message-db",
		times(ratio(appended, transactions[messageDBCallers]))+"; "+times(ratio(appended, messages[messageDBCallers])),
		"3.5; 15")
	t.print()
	return nil
}

// appendAll has concurrent callers append arrivals of new leads.
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

// openLog makes a log in an empty database and opens it.
func openLog(ctx context.Context, address string) (*postgres.Store, error) {
	if err := postgres.Migrate(ctx, address); err != nil {
		return nil, err
	}
	return postgres.Open(ctx, postgres.Options{URL: address})
}

// checked are the streams that every append checks, as a capture checks its token and its account.
var checked = []string{"bench-token", "bench-account"}

func fact(eventType, data string) eventstore.Event {
	return eventstore.Event{
		ID: ulid.Make(), Type: eventType, At: time.Now().UTC().Truncate(time.Millisecond), Data: []byte(data),
	}
}

func newStream(stream string, events ...eventstore.Event) eventstore.Write {
	return eventstore.Write{Stream: stream, Expect: eventstore.NoStream, Events: events}
}

// arrival is the append of a capture of a new lead.
func arrival() []eventstore.Write {
	lead := fact("lead.created.v1",
		`{"contactUID":"01J000000000000000000000CU","name":"Asha Rao","phone":"+919876543210",`+
			`"email":"asha@example.com",`+
			`"status":"new","leadTemperature":"warm","source":"website","metadata":{"source":"website",`+
			`"utm_campaign":"diwali"},"customFields":{"city":"Pune"}}`)
	phone, email := fact("claim.taken.v1", `{"kind":"phone","holder":"01J000000000000000000000CU"}`),
		fact("claim.taken.v1", `{"kind":"email","holder":"01J000000000000000000000CU"}`)
	for _, e := range []*eventstore.Event{&lead, &phone, &email} {
		e.Metadata.Account, e.Metadata.Actor, e.Metadata.RequestID = account, "token:01J000000000000000000000TK",
			"01J000000000000000000000RQ"
	}
	return []eventstore.Write{
		eventstore.Check(checked[0], 0), eventstore.Check(checked[1], 0),
		// A claim's name is random: a keyed hash.
		newStream(fmt.Sprintf("claim-%x", phone.ID.Entropy()), phone),
		newStream(fmt.Sprintf("claim-%x", email.ID.Entropy()), email),
		newStream("lead-"+lead.ID.String(), lead),
	}
}
