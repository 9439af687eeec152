package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/view"
	"github.com/leadlog/leadlog/query"
)

type tailCommand struct {
	service.SealedDatabase `embed:""`

	Type string `placeholder:"PATTERN" help:"Only events whose public type matches, such as 'token.*'."`
	JSON bool   `name:"json" help:"One JSON object a line, with the event's data. It contains personal data."`
	From string `placeholder:"POSITION|TIME" help:"Start after this position of the log (0 is its beginning), or at the first event of this time or later. Default: the end of the log."`
}

// Run is leadlog tail.
func (t *tailCommand) Run(ctx context.Context, c cli.Output) error {
	if !slices.ContainsFunc(event.Catalogue(), t.selects) { // it would never print an event
		return cli.Usagef("--type=%q: must be a type of event, or a pattern such as token.* that matches one", t.Type)
	}
	start, err := t.start()
	if err != nil {
		return err
	}
	h, err := t.OpenStores(ctx, c)
	if err != nil {
		return err
	}
	defer h.Close()
	from, err := h.Store.Head(ctx)
	if err != nil {
		return err
	}
	switch {
	case t.From == "":
	case !start.at.IsZero():
		from, err = view.PositionBefore(ctx, h.Pool, h.Store, start.at)
	case start.position > from:
		err = cli.Usagef("--from=%q: must be a position of this log, which ends at %d", t.From, from)
	default:
		from = start.position
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Err, "following the log from position %d; Ctrl-C ends it\n", from)
	err = t.follow(ctx, h.Store, from, start.at, c.Out)
	if errors.Is(err, eventstore.ErrUnknownPosition) {
		err = cli.Usagef("--from=%q: must be a position that the log gave: %w", t.From, err)
	}
	return err
}

// tailStart is where to start: after a position, or at a time.
type tailStart struct {
	position eventstore.Position
	at       time.Time
}

func (t *tailCommand) start() (start tailStart, err error) {
	if t.From == "" {
		return start, nil
	}
	if position, err := strconv.ParseUint(t.From, 10, 63); err == nil {
		start.position = eventstore.Position(position)
		return start, nil
	}
	var check cli.Checker
	start.at = check.Time("--from", t.From, "a position of the log, or a time such as 2006-01-02T15:04:05Z")
	return start, check.Err()
}

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// follow prints events after a position, from the first at or after a time, until the context ends. While the database
// is unreachable it retries, and then resumes, unless the log has lost events that it has seen. A missing right or
// table is an error.
func (t *tailCommand) follow(
	ctx context.Context, store eventstore.Store, from eventstore.Position, since time.Time, out io.Writer,
) error {
	backoff := eventstore.Backoff{Shortest: firstPause, Longest: longestPause}
	for {
		for page, err := range store.Subscribe(ctx, from, eventstore.Filter{}) {
			if ctx.Err() != nil {
				return nil
			}
			if errors.Is(err, eventstore.ErrUnavailable) && !errors.Is(err, eventstore.ErrDiverged) && !misses(err) {
				break
			}
			if err != nil {
				return err
			}
			from = page.Position
			backoff.Reset()
			for _, e := range page.Events {
				if e.At.Before(since) {
					continue
				}
				since = time.Time{} // all later events of the log
				if !t.selects(e.Type) {
					continue
				}
				if err := t.print(out, e); err != nil {
					return err
				}
			}
		}
		if backoff.Wait(ctx) != nil {
			return nil
		}
	}
}

func (t *tailCommand) selects(eventType string) bool {
	if t.Type == "" {
		return true
	}
	matched, _ := path.Match(t.Type, event.PublicName(eventType)) // a malformed pattern matches nothing
	return matched
}

// tailed is an event as tail --json prints it.
type tailed struct {
	Position  eventstore.Position `json:"position"`
	At        query.Timestamp     `json:"at"`
	Type      string              `json:"type"`
	Stream    string              `json:"stream"`
	Revision  eventstore.Revision `json:"revision"`
	ID        string              `json:"id"`
	Account   string              `json:"account"`
	Actor     string              `json:"actor"`
	RequestID string              `json:"requestId"`
	Data      jsontext.Value      `json:"data"`
}

// print writes one line. The plain format contains no personal data.
func (t *tailCommand) print(out io.Writer, e eventstore.Recorded) error {
	if !t.JSON {
		_, err := fmt.Fprintf(out, "%d %s %-18s %s %s %s\n", e.Position, e.At.UTC().Format("2006-01-02T15:04:05.000Z"),
			event.PublicName(e.Type), e.Stream, orDash(e.Metadata.Account), cli.Printable(orDash(e.Metadata.Actor)))
		return err
	}
	data, err := withoutHash(e)
	if err != nil {
		return err
	}
	line, err := json.Marshal(tailed{
		Position: e.Position, At: query.Timestamp(e.At), Type: event.PublicName(e.Type), Stream: e.Stream,
		Revision: e.Revision, ID: e.ID.String(), Account: e.Metadata.Account, Actor: e.Metadata.Actor,
		RequestID: e.Metadata.RequestID, Data: data,
	}, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return err
	}
	_, err = out.Write(append(line, '\n'))
	return err
}

// withoutHash returns an event's data without the hash of a token's value, which is never shown.
func withoutHash(e eventstore.Recorded) (jsontext.Value, error) {
	if !strings.HasPrefix(e.Stream, event.TokenPrefix) {
		return e.Data, nil
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(e.Data, &members); err != nil {
		return nil, fmt.Errorf("event at position %d: %w", e.Position, err)
	}
	delete(members, "hash")
	return json.Marshal(members, json.Deterministic(true))
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
