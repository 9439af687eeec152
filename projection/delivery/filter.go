package delivery

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection"
)

// Filters decide which events are sent to endpoints with a filter. A filter is applied once to an event, when the
// delivery would be queued, on the body that it would have. So a replay decides like the first delivery, unless the
// filter was changed.
type Filters struct {
	store    eventstore.Store
	bodies   *Bodies
	compiled *lru.Cache[string, *webhook.Filter] // compiling one takes 0.7 ms, applying it 2 µs
}

const filterCacheSize = 1024

// NewFilters returns filters that read leads from a store and cache bodies in Bodies; nil: a cache of their own.
func NewFilters(store eventstore.Store, bodies *Bodies) *Filters {
	compiled, err := lru.New[string, *webhook.Filter](filterCacheSize)
	if err != nil {
		panic(err) // the size is positive
	}
	if bodies == nil {
		bodies = NewBodies()
	}
	return &Filters{store, bodies, compiled}
}

// verdict is the decision of a filter.
type verdict int

const (
	matching verdict = iota
	filteredOut
	filterFailed // counts as not matching
	withdrawn    // the lead is erased, so there is no body
)

// candidate is a message that may be delivered. Its body is rendered once for all filters.
type candidate struct {
	Source
	filters *Filters
	first   *projection.Event // the event, if it is the first of its stream; nil: it is not, or unknown

	rendered bool // the fields below are set
	body     []byte
	input    map[string]any
	err      error

	steps uint64 // the cost of all decisions so far, in the units of expression.CostLimit
}

// longestStep is more than a step takes, also on a busy machine. A filter that takes longer, because it is priced too
// low, costs its time.
const longestStep = 10 * time.Microsecond

// bytesPerStep is how much of a body can be rendered and parsed in the time of a step.
const bytesPerStep = 20

// candidate returns a message of an event.
func (f *Filters) candidate(e projection.Event, m webhook.Message) *candidate {
	c := f.at(Source{Stream: e.Stream, Revision: e.Revision, Position: e.Position, Message: m})
	if e.Revision == 0 {
		c.first = &e
	}
	return c
}

// at returns a message by its source.
func (f *Filters) at(s Source) *candidate { return &candidate{Source: s, filters: f} }

// decide applies a filter; an empty one matches everything. The error is that of the store.
func (c *candidate) decide(ctx context.Context, source string) (verdict, error) {
	if source == "" {
		return matching, nil
	}
	if err := c.render(ctx); err != nil {
		switch {
		case errors.Is(err, ErrForgotten):
			return withdrawn, nil
		case errors.Is(err, ErrNotOnLog):
			return matching, nil // the courier shows its owner the error
		}
		return 0, err
	}
	filter, ok := c.filters.compiled.Get(source)
	if !ok {
		var err error
		if filter, err = webhook.CompileFilter(source); err != nil {
			return filterFailed, nil // this version does not know what the filter uses
		}
		c.filters.compiled.Add(source, filter)
	}
	began := time.Now()
	matches, steps, err := filter.Matches(c.input)
	c.steps += max(steps, uint64(time.Since(began)/longestStep))
	switch {
	case err != nil:
		return filterFailed, nil
	case !matches:
		return filteredOut, nil
	}
	return matching, nil
}

// render renders the body, once.
func (c *candidate) render(ctx context.Context) error {
	if c.rendered {
		return c.err
	}
	c.rendered = true
	known, ok := c.filters.bodies.get(c.Source)
	if !ok {
		if c.first != nil {
			known, c.err = renderFirst(c.Source, *c.first)
		} else {
			known, c.err = render(ctx, c.filters.store, c.filters.bodies.folds, c.Source)
		}
		if c.err != nil {
			return c.err
		}
		c.filters.bodies.cache(c.Source, known)
	}
	c.body = known.JSON
	c.steps += uint64(len(c.body) / bytesPerStep)
	c.input, c.err = webhook.FilterInput(c.body)
	return c.err
}

// filterCounts counts, by endpoint, the events that filters excluded or failed on.
type filterCounts map[string]*filterCount

type filterCount struct{ filtered, failed int64 }

func (f filterCounts) add(webhookID string, v verdict) {
	if v != filteredOut && v != filterFailed {
		return
	}
	if f[webhookID] == nil {
		f[webhookID] = &filterCount{}
	}
	if v == filterFailed {
		f[webhookID].failed++
	} else {
		f[webhookID].filtered++
	}
}

// save adds to the counts of endpoints. It first resets those of changed, whose filter was changed.
func (f filterCounts) save(ctx context.Context, tx pgx.Tx, changed []string) error {
	batch := &pgx.Batch{}
	if len(changed) > 0 {
		batch.Queue(`DELETE FROM delivery.filter_count WHERE webhook_id = ANY ($1)`, changed)
	}
	for _, id := range slices.Sorted(maps.Keys(f)) {
		count := f[id]
		batch.Queue(`
			INSERT INTO delivery.filter_count AS c (webhook_id, filtered, failed) VALUES ($1, $2, $3)
			    ON CONFLICT (webhook_id) DO UPDATE SET filtered = c.filtered + excluded.filtered,
			    failed = c.failed + excluded.failed`,
			id, count.filtered, count.failed)
	}
	if batch.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, batch).Close()
}

// Preview is the result of applying a filter to past events.
type Preview struct {
	Events  int              // evaluated; each consent that an event changed is one of its own
	Matched int              // of these
	Failed  int              // events on which the filter failed, which counts as not matching
	Sample  []jsontext.Value // the bodies of the first matching events
}

const previewSample = 10

// Preview applies a filter to what an endpoint with these types would get of events, without side effects. Events of
// erased leads are left out. It waits for a turn before each message and ends the turn after it, because a filter may
// be expensive. The errors are those of the store and of turn.
func (f *Filters) Preview(
	ctx context.Context, events []Source, types []string, source string,
	turn func(context.Context) (end func(), err error),
) (Preview, error) {
	preview := Preview{Sample: []jsontext.Value{}}
	for _, e := range events {
		fact, _, err := e.load(ctx, f.store, f.bodies.folds)
		if errors.Is(err, ErrForgotten) || errors.Is(err, ErrNotOnLog) {
			continue
		}
		if err != nil {
			return preview, err
		}
		for _, e.Message = range webhook.Messages(fact.Data) {
			if !webhook.Subscribes(types, e.Type) {
				continue
			}
			if err := preview.add(ctx, f.at(e), source, turn); err != nil {
				return preview, err
			}
		}
	}
	return preview, nil
}

// add applies a filter to a message.
func (p *Preview) add(
	ctx context.Context, c *candidate, source string, turn func(context.Context) (end func(), err error),
) error {
	if err := c.render(ctx); errors.Is(err, ErrForgotten) || errors.Is(err, ErrNotOnLog) {
		return nil
	}
	end, err := turn(ctx)
	if err != nil {
		return err
	}
	decided, err := c.decide(ctx, source)
	end()
	if err != nil {
		return err
	}
	p.Events++
	switch decided {
	case filterFailed:
		p.Failed++
	case matching:
		if p.Matched++; len(p.Sample) < previewSample {
			p.Sample = append(p.Sample, c.body)
		}
	}
	return nil
}
