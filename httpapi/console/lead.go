package console

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/leadlog/leadlog/command/attribution"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/query"
)

// leadPage is one lead, as it is or was, and its story.
type leadPage struct {
	Lead     leadShown
	Revision eventstore.Revision // that the lead is shown as of
	Latest   eventstore.Revision
	Story    []scene // a page of it, in the order that the reader chose
	Newest   bool    // first
	Turn     string  // query string of the story in the other order
	First    string  // query strings of other pages of the story; empty: none
	Next     string
	Later    string // query string of the visitor activity that follows, of this page of the story
	Steps    []stepShown
	Sources  []query.SourceEntry
	Touches  []touchShown // the first of them
	Cut      bool         // there are more touches
	Model    attribution.Model
	Chosen   bool // the model was chosen
	Models   []string
	Won      *query.LeadConversion // nil: it is not won
	Query    string                // of this page
	Revealed bool                  // by the button
	Masked   bool
	Form     *leadForm      // nil: the user may not change it, or it is shown as it was earlier, or is part of another lead
	Parts    *partsShown    // nil: it is shown as it was earlier, or is part of another lead
	Consents *consentsShown // likewise
}

// Past reports whether the lead is shown as it was earlier.
func (l leadPage) Past() bool { return l.Revision != l.Latest }

// stepShown is an event of the lead as a page shows it, masked or not.
type stepShown struct {
	query.Step
	Changes []changeShown
	AsOf    string // query string of the lead as of it
	Here    bool
	Open    string // query string that shows or hides the stored event
	Raw     string
}

type changeShown struct{ Field, Old, New string }

// touchShown is a touch with its part of the conversion, if it has one.
type touchShown struct {
	query.Touch
	Credit *query.Credit
}

type activityShown struct {
	query.Activity
	URL, Title, Referrer string
}

// storyEvents is how many events of a lead are on a page of its story.
const storyEvents = 50

func (v *visit) showLead(mask masker) (screen, error) {
	return v.leadScreen(mask, func(form leadForm) leadForm { return form })
}

// leadScreen shows a lead, and the form that changes it as posted.
func (v *visit) leadScreen(mask masker, posted func(leadForm) leadForm) (screen, error) {
	p, id := v.params(), v.id("id")
	shown := leadPage{Revealed: mask.revealed && !v.reads(), Masked: !mask.revealed, Query: p.with("", ""), Newest: p.text("order") == "newest"}
	timeline, span, err := v.leadSpan(p, &shown, id)
	if err != nil {
		return screen{}, missing(err, lead.ErrNotFound)
	}
	shown.Lead, shown.Revision, shown.Latest = mask.lead(timeline.Lead), timeline.Revision, timeline.Latest
	for _, step := range timeline.Steps {
		shown.Steps = append(shown.Steps, mask.step(step, p, timeline.Revision))
	}
	if err := v.addOrigins(&shown, mask, p, id); err != nil {
		return screen{}, err
	}
	activity, err := v.activityWithin(&shown, mask, p, id, span)
	if err != nil {
		return screen{}, err
	}
	if shown.Story, err = v.story(&shown, activity, span); err != nil {
		return screen{}, err
	}
	// choices that were made would be lost by an update
	if !shown.Past() && shown.Lead.JoinedInto == "" && !wantsStream(v.r) {
		if shown.Parts, err = v.parts(p, timeline, mask); err != nil {
			return screen{}, err
		}
		if shown.Consents, err = v.consents(p, timeline, mask); err != nil {
			return screen{}, err
		}
		if v.identity.May("leads:write") {
			form, err := v.leadForm(timeline.Lead)
			if err != nil {
				return screen{}, err
			}
			shown.Form = new(posted(form))
		}
	}
	page := screen{
		name: "lead", title: "Lead " + id, data: shown, live: v.reads() && !shown.Past(),
		reveals: mask.reveals(shown.Lead.LeadID),
	}
	if shown.Form != nil && shown.Form.Wrong != nil {
		page.status = http.StatusBadRequest
	}
	if !shown.Past() {
		at := "/api/v1/crm/leads/" + shown.Lead.LeadID
		page.calls = v.calls(v.get("leads:read", "This lead", at).withNote(unmasked),
			v.get("leads:read", "Its events", at+"/events").withNote(oldestFirst+" "+unmasked),
			v.get("leads:read", "Its sources", at+"/sources").withNote(unmasked),
			v.get("leads:read", "Its consents", at+"/consents").withNote(unmasked),
			v.get("leads:read", "Its touches", "/api/v1/crm/touches", "leadId", shown.Lead.LeadID))
	}
	return page, nil
}

// storySpan is the time of a page of a story: from its first event to the first one of the page that follows in time.
// The first page begins with time itself, and the last one ends with it.
type storySpan struct{ since, until time.Time }

func (s storySpan) has(at time.Time) bool {
	return !at.Before(s.since) && (s.until.IsZero() || at.Before(s.until))
}

// leadSpan reads a page of a lead's events, in their order, and the event after it, which ends the page's time.
func (v *visit) leadSpan(p *params, shown *leadPage, id string) (timeline query.Timeline, at storySpan, err error) {
	page := query.TimelinePage{Limit: storyEvents + 1, AsOf: p.revision("revision")}
	first := eventstore.Revision(-1) // of the page, when it is known before it is read
	end := eventstore.Revision(-1)   // after the page
	from, before := p.revision("from"), p.revision("before")
	switch {
	case !shown.Newest:
		first = 0
		if from != nil {
			first = *from
		}
		end = first + storyEvents
		page.Before = end + 1
	case before != nil && *before > 0:
		end = *before
		page.Before = end + 1
	}
	if timeline, err = v.Query.LeadTimeline(v.ctx, v.identity.Account, id, page); err != nil {
		return timeline, at, err
	}
	if end < 0 || end > timeline.Latest {
		end = timeline.Latest + 1
	}
	if shown.Newest {
		first = max(0, end-storyEvents)
	}
	var steps []query.Step
	for i := len(timeline.Steps) - 1; i >= 0; i-- {
		step := timeline.Steps[i]
		switch {
		case step.Revision == end:
			at.until = time.Time(step.At)
		case step.Revision >= first:
			steps = append(steps, step)
		}
	}
	if timeline.Steps = steps; len(steps) > 0 && first > 0 {
		at.since = time.Time(steps[0].At)
	}
	story := &params{values: p.without("from", "before", "activity", "order")}
	if !shown.Newest {
		shown.Turn = story.with("order", "newest")
	} else {
		shown.Turn = cmp.Or(story.with("order", ""), "?")
	}
	if shown.Newest {
		story.values.Set("order", "newest")
	}
	switch {
	case !shown.Newest && end <= timeline.Latest:
		shown.Next = story.with("from", formatInt(int64(end)))
	case shown.Newest && first > 0:
		shown.Next = story.with("before", formatInt(int64(first)))
	}
	if !shown.Newest && first > 0 || shown.Newest && end <= timeline.Latest {
		shown.First = cmp.Or(story.with("", ""), "?")
	}
	return timeline, at, nil
}

// addOrigins adds the lead's sources and touches, and the credit of each touch.
func (v *visit) addOrigins(shown *leadPage, mask masker, p *params, id string) error {
	sources, err := v.Query.LeadSources(v.ctx, v.identity.Account, id, query.Page{Limit: rows})
	if err != nil && !errors.Is(err, query.ErrNotFound) { // the view may not have the lead yet
		return err
	}
	shown.Sources = sources.Items
	touches := query.TouchFilter{LeadID: id, Visits: true, Masked: !mask.revealed}
	if touches.AsOf, err = v.Query.PositionAsOf(v.ctx, query.AsOf{}); err != nil {
		return err
	}
	list, err := v.Query.Touches(v.ctx, v.identity.Account, touches, query.Page{Limit: rows})
	if err != nil {
		return err
	}
	shown.Cut, shown.Model, shown.Models = list.NextCursor != "", p.model(), attribution.Models()
	shown.Chosen = p.text("model") != ""
	if err := p.wrong.Err(); err != nil {
		return err
	}
	sharing := query.AttributionFilter{AsOf: touches.AsOf, Rules: attribution.Rules{
		Model: shown.Model, Window: attribution.DefaultWindow, HalfLife: attribution.DefaultHalfLife,
	}}
	if shown.Won, err = v.Query.LeadConversion(v.ctx, v.identity.Account, id, sharing); err != nil {
		return err
	}
	for _, t := range list.Items {
		one := touchShown{Touch: t}
		if shown.Won != nil {
			if credit, has := shown.Won.Credits[t.Position]; has {
				one.Credit = &credit
			}
		}
		shown.Touches = append(shown.Touches, one)
	}
	return nil
}

// activityWithin returns the activities of the lead's visitors in the time of the page.
func (v *visit) activityWithin(
	shown *leadPage, mask masker, p *params, id string, at storySpan,
) (all []activityShown, err error) {
	list, err := v.Query.LeadActivitySince(v.ctx, v.identity.Account, id, at.since, query.Page{
		Limit: rows, Cursor: p.text("activity"),
	})
	if err != nil && !errors.Is(err, query.ErrNotFound) {
		return nil, err
	}
	for _, a := range list.Items {
		if !at.has(time.Time(a.At)) {
			return all, nil
		}
		all = append(all, activityShown{a, mask.address(a.URL), mask.title(a.Title), mask.address(a.Referrer)})
	}
	if list.NextCursor != "" {
		shown.Later = p.with("activity", list.NextCursor)
	}
	return all, nil
}

func (m masker) step(step query.Step, p *params, at eventstore.Revision) stepShown {
	revision := formatInt(int64(step.Revision))
	shown := stepShown{
		Step: step, Here: step.Revision == at, AsOf: p.with("revision", revision), Open: p.with("raw", revision),
	}
	shown.Released.Old = m.value(step.Released.Field, step.Released.Old)
	for _, c := range step.Changes {
		name := fieldName(c.Field)
		if c.Key != "" {
			name = c.Key
		}
		shown.Changes = append(shown.Changes, changeShown{name, m.value(c.Field, c.Old), m.value(c.Field, c.New)})
	}
	if p.text("raw") == revision {
		shown.Raw, shown.Open = m.raw(step.Data), p.with("raw", "")
	}
	return shown
}

// revision reads a revision of a stream; nil when it is missing or invalid.
func (p *params) revision(name string) *eventstore.Revision {
	n, err := strconv.ParseInt(p.text(name), 10, 64)
	if err != nil || n < 0 {
		return nil
	}
	return new(eventstore.Revision(n))
}

// missing replaces query.ErrNotFound by the error of the resource that was looked for.
func missing(err, as error) error {
	if errors.Is(err, query.ErrNotFound) {
		return as
	}
	return err
}
