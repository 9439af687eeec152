package console

import (
	"cmp"
	"errors"
	"strconv"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/query"
)

// leadPage is one lead, as it is or was, and what happened to it.
type leadPage struct {
	Lead     leadShown
	Revision eventstore.Revision // that the lead is shown as of
	Latest   eventstore.Revision
	Steps    []stepShown
	Newer    string // query strings of other parts of the timeline, if there are
	Older    string
	Sources  []query.SourceEntry
	Activity []activityShown
	Later    string // query string of the activity that follows
	Query    string // of this page
	Revealed bool
}

// Past reports whether the lead is shown as it was earlier.
func (l leadPage) Past() bool { return l.Revision != l.Latest }

// stepShown is an event of the timeline as a page shows it, masked or not.
type stepShown struct {
	query.Step
	Changes []changeShown
	AsOf    string // query string of the lead as of it
	Here    bool
	Open    string // query string that shows the event as it stands on the log
	Raw     string
}

type changeShown struct{ Field, Old, New string }

type activityShown struct {
	query.Activity
	URL, Title, Referrer string
}

// timelineSteps is how many events of a timeline are on a page.
const timelineSteps = 50

func (v *visit) lead() (screen, error) { return v.showLead(masker{}) }

func (v *visit) showLead(mask masker) (screen, error) {
	p, id := v.params(), v.id("id")
	moment := query.Moment{Limit: timelineSteps, AsOf: p.revision("revision")}
	if before := p.revision("before"); before != nil {
		moment.Before = *before
	}
	timeline, err := v.Query.LeadTimeline(v.ctx, v.identity.Account, id, moment)
	if err != nil {
		return screen{}, missing(err, lead.ErrNotFound)
	}
	shown := leadPage{
		Lead: mask.lead(timeline.Lead), Revision: timeline.Revision, Latest: timeline.Latest, Revealed: mask.revealed,
		Query: p.with("", ""),
	}
	for _, step := range timeline.Steps {
		shown.Steps = append(shown.Steps, mask.step(step, p, timeline.Revision))
	}
	if n := len(timeline.Steps); n > 0 && timeline.Steps[n-1].Revision > 0 {
		shown.Older = p.with("before", formatInt(int64(timeline.Steps[n-1].Revision)))
	}
	if moment.Before != 0 {
		shown.Newer = cmp.Or(p.with("before", ""), "?")
	}
	if err := v.addOrigins(&shown, mask, p, id); err != nil {
		return screen{}, err
	}
	return screen{name: "lead", title: "Lead " + id, data: shown, live: !mask.revealed && !shown.Past()}, nil
}

// addOrigins adds where the lead came from, and what it did before and since as a visitor.
func (v *visit) addOrigins(shown *leadPage, mask masker, p *params, id string) error {
	sources, err := v.Query.LeadSources(v.ctx, v.identity.Account, id, query.Page{Limit: rows})
	if err != nil && !errors.Is(err, query.ErrNotFound) { // a view that has not seen the lead yet shows nothing of it
		return err
	}
	shown.Sources = sources.Items
	activity, err := v.Query.LeadActivity(v.ctx, v.identity.Account, id, query.Page{Limit: rows, Cursor: p.text("activity")})
	if err != nil && !errors.Is(err, query.ErrNotFound) {
		return err
	}
	for _, a := range activity.Items {
		one := activityShown{a, mask.address(a.URL), mask.title(a.Title), mask.address(a.Referrer)}
		shown.Activity = append(shown.Activity, one)
	}
	if activity.NextCursor != "" {
		shown.Later = p.with("activity", activity.NextCursor)
	}
	return nil
}

func (m masker) step(step query.Step, p *params, at eventstore.Revision) stepShown {
	revision := formatInt(int64(step.Revision))
	shown := stepShown{
		Step: step, Here: step.Revision == at, AsOf: p.with("revision", revision), Open: p.with("raw", revision),
	}
	shown.Released.Old = m.value(step.Released.Field, step.Released.Old)
	for _, c := range step.Changes {
		name := c.Field
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

// revision reads a place in a stream; nil when none is given, or what is given is none.
func (p *params) revision(name string) *eventstore.Revision {
	n, err := strconv.ParseInt(p.text(name), 10, 64)
	if err != nil || n < 0 {
		return nil
	}
	return new(eventstore.Revision(n))
}

// missing gives what is not found the name of what was looked for.
func missing(err, as error) error {
	if errors.Is(err, query.ErrNotFound) {
		return as
	}
	return err
}

// reveal shows a lead unmasked. This is recorded on the log before anything is shown, and again whenever the page is loaded again.
func (v *visit) reveal() (screen, error) {
	if err := v.noteReveal(command.RevealOne, v.id("id")); err != nil {
		return screen{}, err
	}
	return v.showLead(masker{revealed: true})
}

func (v *visit) noteReveal(what, leadID string) error {
	_, err := v.Commands.Reveal(v.ctx, command.Reveal{Caller: v.caller, What: what, LeadID: leadID})
	return err
}
