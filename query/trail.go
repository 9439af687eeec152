package query

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore/event"
)

// TrailRecord is one act in an account, or one recorded reading of personal data. It contains no personal data and no
// secret.
type TrailRecord struct {
	ID        string         `json:"id"`
	Type      string         `json:"type"`
	At        Timestamp      `json:"at"`
	Actor     string         `json:"actor"`
	Subject   string         `json:"subject"` // id of what it was about; of a search, what was searched
	IP        string         `json:"ip"`      // of the actor; empty for acts on leads, likewise the user agent
	UserAgent string         `json:"userAgent"`
	RequestID string         `json:"requestId"`
	Data      jsontext.Value `json:"data"` // a changed setting is an object of old and new
}

// TrailFilter selects records. Empty fields select all.
type TrailFilter struct {
	Type    string // public name, or the beginning of names before a *
	Actor   string
	Subject string
	Since   time.Time // inclusive
	Until   time.Time // exclusive
}

// TrailTypes returns the public names of the types in the trail, in order.
func TrailTypes() []string {
	var names []string
	for _, stored := range event.TrailTypes() {
		names = append(names, event.TrailName(stored))
	}
	slices.Sort(names)
	return names
}

// leadSplit is a type that no event has yet. Programs may ask for it.
const leadSplit = "lead.split"

// TrailPattern reports whether a type of a TrailFilter selects types of the trail.
func TrailPattern(pattern string) bool {
	return slices.ContainsFunc(append(TrailTypes(), leadSplit), func(name string) bool {
		return event.Matches(name, pattern)
	})
}

// Trail lists an account's records, oldest first. The error is ErrCursor for a cursor of another list.
func (r *Reader) Trail(ctx context.Context, account string, filter TrailFilter, p Page) (List[TrailRecord], error) {
	s, err := filter.selection(ctx, r, account, `position`)
	if err != nil {
		return List[TrailRecord]{}, err
	}
	return pageByPosition(ctx, r, s, cursorOf(trailCursor, account), p, scanTrail)
}

// LatestTrail is Trail, newest first.
func (r *Reader) LatestTrail(
	ctx context.Context, account string, filter TrailFilter, p Page,
) (List[TrailRecord], error) {
	s, err := filter.selection(ctx, r, account, `position DESC`)
	if err != nil {
		return List[TrailRecord]{}, err
	}
	return pageByPosition(ctx, r, s, cursorOf(latestTrailCursor, account), p, scanTrail)
}

// TrailAll yields everything that Trail lists, in constant memory. It ends after yielding an error.
func (r *Reader) TrailAll(ctx context.Context, account string, filter TrailFilter) iter.Seq2[TrailRecord, error] {
	return All(func(p Page) (List[TrailRecord], error) { return r.Trail(ctx, account, filter, p) })
}

func (f TrailFilter) selection(ctx context.Context, r *Reader, account, order string) (selection, error) {
	s := selection{
		from:  `SELECT position, event_id, type, at, actor, subject, ip, user_agent, request_id, data FROM views.trail`,
		order: order, table: `views.trail`,
	}
	s.and(`account = ?`, account)
	if err := s.bySpan(ctx, r, `at`, f.Since, f.Until); err != nil {
		return s, err
	}
	s.equal(`subject`, f.Subject)
	if f.Actor+f.Type != "" {
		s.narrow = func(s *selection) {
			s.equal(`actor`, f.Actor)
			if f.Type != "" {
				types := []string{}
				for _, name := range TrailTypes() {
					if event.Matches(name, f.Type) {
						types = append(types, name)
					}
				}
				s.and(`type = ANY (?)`, types)
			}
		}
	}
	return s, nil
}

func scanTrail(row pgx.CollectableRow) (positioned[TrailRecord], error) {
	var v positioned[TrailRecord]
	var data []byte
	err := row.Scan(&v.position, &v.item.ID, &v.item.Type, &v.item.At, &v.item.Actor, &v.item.Subject, &v.item.IP,
		&v.item.UserAgent, &v.item.RequestID, &data)
	v.item.Data = data
	return v, err
}
