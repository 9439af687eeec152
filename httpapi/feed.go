package httpapi

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/export"
)

// Limits of a request for the change feed.
const (
	maxFeedLimit = 1000
	maxFeedWait  = 30 // seconds
)

// feedScopes are the scopes for kinds of events, besides that of the route. Events that the caller may not read are
// left out.
var feedScopes = map[string]string{
	event.LeadKind: "leads:read", event.TokenKind: "audit:read", event.AccountKind: "audit:read",
	event.WebhookKind: "webhooks:read", event.IntakeKind: "intakes:read",
}

// feedRequest has the parameters of a request for the feed.
type feedRequest struct {
	types     []string // stored
	epoch     string
	after     query.FeedMark
	limit     int
	unlimited bool // no limit was given
	wait      time.Duration
}

func (ex *exchange) feedRequest() (f feedRequest, err error) {
	p := ex.params()
	f.limit, f.unlimited = defaultLimit, true
	if value := p.get("limit"); value != "" {
		f.limit, err = strconv.Atoi(value)
		if f.unlimited = false; err != nil || f.limit < 1 || f.limit > maxFeedLimit {
			p.wrong.Add("limit", "must be a whole number from 1 to 1000")
		}
	}
	if value := p.get("wait"); value != "" {
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil || !(seconds >= 0 && seconds <= maxFeedWait) {
			p.wrong.Add("wait", "must be a number of seconds from 0 to 30")
		}
		f.wait = time.Duration(seconds * float64(time.Second))
	}
	var patterns, kinds []string
	if value := p.text("types"); value != "" {
		patterns = strings.Split(value, ",")
	}
	for kind, scope := range feedScopes {
		if ex.jwt.May(scope) {
			kinds = append(kinds, kind)
		}
	}
	var known bool
	if f.types, known = query.FeedTypes(kinds, patterns); !known {
		p.wrong.Add("types", "must be types of events such as lead.created or lead.*, separated by commas")
	}
	cursor := p.text("after")
	if err := ex.waitFor(p); err != nil { // for no view: the feed is read from the log
		return f, err
	}
	if f.epoch, err = ex.Query.Epoch(ex.ctx); err != nil {
		return f, err
	}
	f.after, err = ex.Query.FeedMark(ex.ctx, ex.caller.Account, f.epoch, cursor)
	if errors.Is(err, query.ErrCursor) {
		err = field.Errors{{Field: "after", Message: "is not a cursor of this account's feed"}}
	}
	return f, err
}

// listEvents answers with the account's own events in the order of the log: a page as JSON or JSON lines or, as JSON
// lines without a limit, all up to the end of the log. If there are none, it waits for as long as the request says.
func (ex *exchange) listEvents() (answer, error) {
	f, err := ex.feedRequest()
	if err != nil {
		return answer{}, err
	}
	ex.w.Header().Add("Vary", "Accept")
	lines := preferred(ex.r.Header.Values("Accept"), mediaJSON, mediaNDJSON) == mediaNDJSON
	page, err := ex.awaitEvents(f)
	if err != nil {
		return answer{}, err
	}
	if isExport := lines && f.unlimited; !isExport && len(page.Events) > 0 {
		ex.Commands.Search(ex.ctx, ex.caller, "events")
	}
	next := ex.Query.FeedCursor(ex.caller.Account, f.epoch, page.MarkAfter(f.after))
	if !lines {
		return answer{body: listEnvelope{Success: true, Data: page.Events, NextCursor: &next}}, nil
	}
	ex.w.Header().Set(nextCursorHeader, next)
	events := func(yield func(query.FeedEvent, error) bool) {
		for _, e := range page.Events {
			if !yield(e, nil) {
				return
			}
		}
	}
	if f.unlimited && page.More {
		ex.w.Header().Del(nextCursorHeader)
		events = concat(events, ex.Query.FeedAll(ex.detached(), ex.caller.Account, f.types, page.End))
	}
	sealed := func(yield func(query.FeedEvent, error) bool) {
		for e, err := range events {
			if err == nil {
				e.Cursor = ex.Query.FeedCursor(ex.caller.Account, f.epoch, e.Mark())
			}
			if !yield(e, err) {
				return
			}
		}
	}
	if f.unlimited {
		return exported(ex, "events", mediaNDJSON, export.Events(), sealed), nil
	}
	return streamed(ex, mediaNDJSON, export.Events(), sealed), nil
}

// nextCursorHeader has the cursor that continues after a page of JSON lines, which may have no lines.
const nextCursorHeader = "X-Next-Cursor"

// concat yields one sequence and then another.
func concat[T any](first, then iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, items := range []iter.Seq2[T, error]{first, then} {
			for item, err := range items {
				if !yield(item, err) || err != nil {
					return
				}
			}
		}
	}
}

// awaitEvents reads a page of the feed. If the page is empty, it reads again whenever there may be an event, until the
// wait is over, the client disconnects or the service stops. A waiting request holds no connection to the database.
// Each account may have a limited number of them.
func (ex *exchange) awaitEvents(f feedRequest) (page query.FeedPage, err error) {
	if f.wait == 0 {
		return ex.readEvents(f)
	}
	leave, err := ex.load.polls.of(ex.caller.Account).enter()
	if err != nil {
		return page, err
	}
	defer leave()
	// the body is not read, and a deadline must not end the wait
	_ = http.NewResponseController(ex.w).SetReadDeadline(time.Time{})
	deadline := time.NewTimer(f.wait)
	defer deadline.Stop()
	changes := ex.Query.AwaitFeed(ex.caller.Account, f.types) // before the read, so that no event is missed
	defer changes.Close()
	for last := false; ; {
		page, err = ex.readEvents(f)
		if f.after.Position = page.End; err != nil || last || len(page.Events) > 0 {
			return page, err
		}
		if page.More {
			continue
		}
		select {
		case <-changes.Woken:
		case <-deadline.C:
			last = true
		case <-ex.Stopping:
			return page, nil
		case <-ex.r.Context().Done():
			return page, nil
		}
		if err := ex.stillAdmitted(); err != nil {
			return page, err
		}
		ex.cancel()
		ex.ctx, ex.cancel = context.WithTimeout(ex.detached(), requestTimeout)
	}
}

// readEvents reads a page, as one of the account's concurrent reads of streams.
func (ex *exchange) readEvents(f feedRequest) (query.FeedPage, error) {
	leave, err := ex.enterStream()
	if err != nil {
		return query.FeedPage{}, err
	}
	defer leave()
	return ex.Query.Feed(ex.ctx, ex.caller.Account, f.types, f.after.Position, f.limit)
}
