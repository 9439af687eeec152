package console

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/query"
)

// scene is an entry of a lead's story: an event of the lead, a touch of a lead that was joined into it, or an activity
// of its visitors.
type scene struct {
	ID       string // on the page
	At       query.Timestamp
	NewDay   bool   // its day, UTC, is not that of the entry before it
	Text     string // in one phrase
	Worth    string // the value that the lead was won for; empty: it was not won by this, or has no value
	Step     *stepShown
	Touch    *touchShown
	Activity *activityShown
}

// story merges the events of a page with the touches and activities between them. Events stay in their order, whatever
// their times.
func (v *visit) story(shown *leadPage, activity []activityShown, at storySpan) (story []scene, err error) {
	settings, err := v.Directory.Account(v.ctx, v.identity.Account)
	if err != nil {
		return nil, err
	}
	t := teller{v: v, won: settings.State.WonStages, names: map[string]string{}}
	var others []scene
	steps, campaigns := map[eventstore.Position]bool{}, map[string]string{}
	for _, s := range shown.Steps {
		steps[s.Position] = true
	}
	for i, touch := range shown.Touches {
		switch {
		case touch.Kind == "visit":
			campaigns[touch.TouchID] = campaign(touch.UTMCampaign)
		case len(shown.Lead.Joined) > 0 && !steps[touch.Position] && at.has(time.Time(touch.At)):
			// the lead's own are events
			others = append(others, scene{
				ID: "touch-" + formatInt(int64(touch.Position)), At: touch.At, Touch: &shown.Touches[i],
				Text: t.touch(touch.Touch),
			})
		}
	}
	for i, a := range activity {
		others = append(others, scene{
			ID: "activity-" + a.ActivityID, At: a.At, Activity: &activity[i], Text: did(a) + campaigns[a.ActivityID],
		})
	}
	slices.SortStableFunc(others, func(a, b scene) int { return time.Time(a.At).Compare(time.Time(b.At)) })
	for i := range shown.Steps {
		step := &shown.Steps[i]
		for len(others) > 0 && time.Time(others[0].At).Before(time.Time(step.At)) {
			story, others = append(story, others[0]), others[1:]
		}
		one := scene{ID: "event-" + formatInt(int64(step.Revision)), At: step.At, Step: step}
		var won bool
		one.Text, won = t.event(*step)
		if won && shown.Won != nil && time.Time(shown.Won.At).Equal(time.Time(step.At).Truncate(time.Millisecond)) &&
			shown.Won.Value != "0.0000" {
			one.Worth = shown.Won.Value
		}
		story = append(story, one)
	}
	story = append(story, others...)
	if shown.Newest {
		slices.Reverse(story)
	}
	day := ""
	for i, one := range story {
		on := time.Time(one.At).UTC().Format(time.DateOnly)
		story[i].NewDay, day = on != day, on
	}
	return story, nil
}

// teller makes sentences. It has none of a person's data: of fields it names those that changed, and of pages the site.
type teller struct {
	v     *visit
	won   []string          // stages that count
	names map[string]string // of intakes, by id
}

// event returns the text of an event of a lead, and whether it won the lead.
func (t teller) event(s stepShown) (text string, won bool) {
	for _, c := range s.Step.Changes {
		won = won || c.Field == "status" && slices.Contains(t.won, c.New) && !slices.Contains(t.won, c.Old)
	}
	changes := summary(s.Step.Changes)
	switch s.Type {
	case "lead.created":
		text = "Captured through " + t.cameBy(s)
		if won {
			text += " and was won"
		}
	case "lead.merged":
		text = "Captured again through " + t.cameBy(s) + ": " + orNothing(changes)
	case "lead.released":
		text = "The " + s.Released.Field + " " + s.Released.Old + " was released"
	case "lead.consented":
		text = consentsSaid(s.Consents)
	case "lead.joined":
		text = "Another lead was joined into this one: " + orNothing(changes)
	case "lead.split":
		text = "Split: arrivals of another person became a lead of their own"
	case "lead.joinedinto":
		text = "Joined into another lead"
	default:
		if text = "Changed: " + orNothing(changes); won {
			text = "Won"
			if rest := summary(slices.DeleteFunc(slices.Clone(s.Step.Changes), func(c query.Change) bool {
				return c.Field == "status"
			})); rest != "" {
				text += " (" + rest + ")"
			}
		}
	}
	return text, won
}

// consentsSaid returns the text of recorded consents.
func consentsSaid(consents map[string]bool) string {
	var given, withdrawn []string
	for _, purpose := range slices.Sorted(maps.Keys(consents)) {
		if consents[purpose] {
			given = append(given, purpose)
		} else {
			withdrawn = append(withdrawn, purpose)
		}
	}
	var said []string
	if len(given) > 0 {
		said = append(said, "Consent recorded: "+strings.Join(given, ", "))
	}
	if len(withdrawn) > 0 {
		said = append(said, "Consent withdrawn: "+strings.Join(withdrawn, ", "))
	}
	return strings.Join(said, ". ")
}

func orNothing(changes string) string {
	if changes == "" {
		return "no field changed"
	}
	return changes
}

// cameBy returns how an arrival came: by which intake or source, from which site and by which campaign.
func (t teller) cameBy(s stepShown) string {
	var data struct {
		event.Campaign
		Metadata map[string]jsontext.Value `json:"metadata"`
		IntakeID string                    `json:"intakeId"`
	}
	_ = json.Unmarshal(s.Data, &data) // members that cannot be read are left out
	origin := lead.NewOrigin(data.Campaign, data.Metadata)
	text := t.through(data.IntakeID, s.Source)
	for _, page := range []*string{origin.LandingPage, origin.Referrer} {
		if page == nil {
			continue
		}
		if host := site(*page); host != "" && page == origin.LandingPage {
			return text + " on " + host + campaign(lead.NewOrigin(data.Campaign, nil).UTMCampaign)
		} else if host != "" {
			text += " from " + host
		}
	}
	return text + campaign(lead.NewOrigin(data.Campaign, nil).UTMCampaign)
}

// through names the intake of an arrival, or else its source.
func (t teller) through(intakeID, source string) string {
	if intakeID == "" {
		return channel(source)
	}
	name, known := t.names[intakeID]
	if !known {
		// a deleted intake is not found
		if of, err := t.v.Query.Intake(t.v.ctx, t.v.identity.Account, intakeID); err == nil {
			name = "the intake “" + of.Name + "”"
			if of.Kind == intake.Form {
				name = "the form “" + of.Name + "”"
			}
		}
		t.names[intakeID] = name
	}
	if name == "" {
		return channel(source)
	}
	return name
}

// touch returns the text of a touch whose event is not the lead's.
func (t teller) touch(of query.Touch) string {
	source, intakeID := "", ""
	if of.Source != nil {
		source = *of.Source
	}
	if of.IntakeID != nil {
		intakeID = *of.IntakeID
	}
	return "Captured through " + t.through(intakeID, source) + campaign(of.UTMCampaign) + ", as a lead that was " +
		"joined later"
}

// channel names a source in a sentence.
func channel(source string) string {
	switch source {
	case "api":
		return "the API"
	case "website":
		return "the website"
	case "whatsapp":
		return "WhatsApp"
	case "chatbot", "landing", "webhook":
		return map[string]string{"chatbot": "the chatbot", "landing": "a landing page", "webhook": "a webhook"}[source]
	case "google_form", "google_ad":
		return "a Google " + strings.TrimPrefix(source, "google_")
	case "facebook_ad":
		return "a Facebook ad"
	case "payment_page_drop":
		return "an abandoned payment page"
	case "csv_import":
		return "a CSV import"
	case "manual":
		return "manual entry"
	}
	return words(source)
}

func campaign(name *string) string {
	if name == nil {
		return ""
	}
	return ", campaign " + *name
}

// site is the host of an address.
func site(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return parsed.Hostname()
}

// mostChanges is how many changes a sentence has.
const mostChanges = 4

// summary names the changed fields, without personal values. Metadata and ids are only in the details.
func summary(changes []query.Change) string {
	var all []string
	for _, c := range changes {
		name := strings.ToLower(fieldNames[c.Field])
		if c.Field == "customFields" {
			name = c.Key
		}
		switch {
		case name == "":
		case c.Field == "status" || c.Field == "leadTemperature":
			all = append(all, name+" "+stage(c.New))
		case c.Old == "":
			all = append(all, name+" added")
		case c.New == "":
			all = append(all, name+" removed")
		default:
			all = append(all, name+" changed")
		}
	}
	if more := len(all) - mostChanges; more > 0 {
		all = append(all[:mostChanges], formatInt(int64(more))+" more")
	}
	return strings.Join(all, ", ")
}

// did returns the text of an activity, with the site.
func did(a activityShown) string {
	text := "Did something"
	switch a.Type {
	case "page_view":
		text = "Viewed a page"
	case "form_view":
		text = "Viewed a form"
	case "click":
		text = "Clicked"
	}
	if host := site(a.Activity.URL); host != "" {
		text += " on " + host
	}
	return text
}
