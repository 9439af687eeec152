package query

import (
	"context"
	"iter"
	"math"
	"net/url"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// PersonPart is a list of what is stored about a person. It is read while it is consumed.
type PersonPart struct {
	Name  string
	Items iter.Seq2[any, error]
}

// Person returns the lists of what is stored about the person of a lead, besides the lead itself. The error of a list
// is ErrNotFound if the person was erased meanwhile.
func (r *Reader) Person(ctx context.Context, account string, l Lead) []PersonPart {
	parts := append([]string{l.LeadID}, l.Joined...)
	touches := TouchFilter{LeadID: l.LeadID, Visits: true, AsOf: eventstore.Position(math.MaxInt64)}
	return []PersonPart{
		{"sources", everyPage(func(p Page) (List[SourceEntry], error) {
			return r.LeadSources(ctx, account, l.LeadID, p)
		})},
		{"touches", everyPage(func(p Page) (List[Touch], error) { return r.Touches(ctx, account, touches, p) })},
		{"consents", whole(func() ([]Consent, error) { return r.Consents(ctx, account, l.LeadID, false) })},
		{"activity", everyPage(func(p Page) (List[Activity], error) {
			return r.LeadActivity(ctx, account, l.LeadID, p)
		})},
		{"events", func(yield func(any, error) bool) {
			for _, id := range parts {
				for e, err := range r.ownEvents(ctx, account, id) {
					if !yield(e, err) || err != nil {
						return
					}
				}
			}
		}},
		{"deliveries", whole(func() ([]Receiver, error) { return r.receivers(ctx, account, parts) })},
	}
}

// ownEvents lists the events of a lead since its latest split, which has what the lead was then: those before it are
// about another person, too.
func (r *Reader) ownEvents(ctx context.Context, account, id string) iter.Seq2[any, error] {
	all := everyPage(func(p Page) (List[Event], error) { return r.LeadEvents(ctx, account, id, p) })
	split := event.PublicName(event.LeadSplit{}.EventType())
	return func(yield func(any, error) bool) {
		since := eventstore.Revision(0)
		for item, err := range all {
			if err != nil {
				yield(nil, err)
				return
			}
			if e := item.(Event); e.Type == split {
				since = e.Revision
			}
		}
		for item, err := range all {
			if err == nil && item.(Event).Revision < since {
				continue
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

// whole lists items that are read together.
func whole[T any](list func() ([]T, error)) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		items, err := list()
		if err != nil {
			yield(nil, err)
			return
		}
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}

// personPage is the number of items that are read at a time.
const personPage = 200

// everyPage lists the items of all pages.
func everyPage[T any](list func(Page) (List[T], error)) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		for p := (Page{Limit: personPage}); ; {
			page, err := list(p)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if p.Cursor = page.NextCursor; p.Cursor == "" {
				return
			}
		}
	}
}

// Receiver is a host that events of a person were sent to, of the last schema.DeliveryDays days.
type Receiver struct {
	Host            string    `json:"host"`
	Delivered       int64     `json:"delivered"` // events
	LastDeliveredAt Timestamp `json:"lastDeliveredAt"`
}

// receivers lists the hosts of endpoints that were sent events of leads. Paths of endpoints may be secrets.
func (r *Reader) receivers(ctx context.Context, account string, leads []string) (found []Receiver, err error) {
	streams := make([]string, len(leads))
	for i, id := range leads {
		streams[i] = event.LeadStream(id)
	}
	rows, err := r.pool.Query(ctx, `
		SELECT e.url, count(*), max(d.finished_at)
		  FROM delivery.delivery d JOIN delivery.endpoint e USING (webhook_id)
		 WHERE d.stream = ANY ($1) AND d.state = 'delivered' AND e.account = $2
		 GROUP BY e.url ORDER BY e.url`, streams, account)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	var address string
	var one Receiver
	_, err = pgx.ForEachRow(rows, []any{&address, &one.Delivered, &one.LastDeliveredAt}, func() error {
		parsed, err := url.Parse(address)
		if err == nil {
			one.Host = parsed.Host
			found = append(found, one)
		}
		return err
	})
	return found, schema.Unavailable(err)
}
