package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/query"
)

// demoNames are those of the people in demo data. Their addresses are at example.com, which RFC 2606 reserves.
var demoNames = strings.Split("Aarav Mehta,Ananya Rao,Ben Carter,Chloe Martin,Diego Alvarez,Divya Nair,Elena "+
	"Rossi,Farhan Khan,Grace Kim,"+
	"Hannah Weber,Ishaan Gupta,Jonas Berg,Kavya Iyer,Liam Murphy,Lucia Gomez,Maya Shah,Meera Pillai,Nadia "+
	"Haddad,Neha Verma,Noah Fischer,"+
	"Olivia Brown,Omar Aziz,Priya Menon,Rahul Das,Rohan Kapoor,Sara Lindberg,Sanjay Reddy,Sofia Costa,Tara "+
	"Singh,Theo Laurent,Uma Krishnan,"+
	"Victor Novak,Vikram Joshi,Wei Chen,Yara Santos,Yusuf Demir,Zara Ali,Zoe Adams,Arjun Bose,Amelia Clark", ",")

// demoSources are the sources of demo arrivals. Frequent ones are repeated.
var demoSources = []struct{ source, utmSource, medium, campaign string }{
	{"google_ad", "google", "cpc", "autumn sale"}, {"website", "", "", ""},
	{"facebook_ad", "facebook", "paid social", "lookalike"},
	{"landing", "newsletter", "email", "november news"}, {"google_ad", "google", "cpc", "brand"},
	{"whatsapp", "", "", ""},
	{"chatbot", "", "", ""}, {"website", "partner", "referral", "partner page"},
}

// demoPost is a made-up arrival.
type demoPost struct {
	at   time.Time
	key  string // delivery id, so that it arrives once however often demo data is made
	body map[string]jsontext.Value
}

// demoPosts returns made-up arrivals of the 30 days before now, oldest first. Every fourth person arrives again, from
// another source; the phone of the last one is wrong.
func demoPosts(now time.Time) (posts []demoPost) {
	add := func(i, touch, daysAgo int, fields map[string]any) {
		from := demoSources[(i*3+touch*5)%len(demoSources)]
		metadata := map[string]string{"source": from.source}
		for name, value := range map[string]string{
			"utm_source": from.utmSource, "utm_medium": from.medium, "utm_campaign": from.campaign,
		} {
			if value != "" {
				metadata[name] = value
			}
		}
		fields["metadata"] = metadata
		post := demoPost{key: fmt.Sprintf("%d-%d", i, touch), body: map[string]jsontext.Value{}}
		if post.at = now; daysAgo > 0 { // the last one comes after the intake was created
			post.at = now.AddDate(0, 0, -daysAgo).Add(-time.Duration(i*37%660) * time.Minute)
		}
		for name, value := range fields {
			post.body[name] = mustJSON(value)
		}
		posts = append(posts, post)
	}
	for i, name := range demoNames {
		first := 1 + (len(demoNames)-i)*28/len(demoNames)
		email := strings.ReplaceAll(strings.ToLower(name), " ", ".") + "@example.com"
		add(i, 0, first, map[string]any{
			"name": name, "email": email, "opportunityValue": 5000 + i*7919%90*1000,
			"leadTemperature": []string{"warm", "hot", "cold"}[i%3],
		})
		for touch := 1; touch <= 2 && i%(4*touch) == 0; touch++ {
			add(i, touch, first*(3-touch)/4, map[string]any{"email": email})
		}
	}
	add(len(demoNames), 0, 0, map[string]any{"name": "Wrong Number", "phone": "12345"})
	slices.SortStableFunc(posts, func(a, b demoPost) int { return a.at.Compare(b.at) })
	return posts
}

// demoStatus returns the stage of a demo lead, one of the account's.
func demoStatus(i int, stages, won []string) string {
	switch {
	case i%6 == 0 && len(won) > 0:
		return won[0]
	case i%3 == 0:
		return stages[min(2, len(stages)-1)]
	}
	return stages[min(i%2, len(stages)-1)]
}

func (v *visit) confirmDemo() (screen, error) {
	return screen{name: "confirm", title: "Add demo data", data: confirmation{
		Title: "Add demo data", Question: fmt.Sprintf("Add %d made-up leads to this account?", len(demoNames)),
		Consequence: "They come in through an intake named “Demo data”, from several sources, with touches over " +
			"the last 30 days, and some are won. " +
			"Webhook endpoints receive them like real leads. You can remove them later; counts by day keep them.",
		Verb: "Add demo data", Action: v.path("/demo"), Back: v.path("/"),
	}}, nil
}

// addDemo adds demo data. A repeated call, for example after a killed process, adds the missing part.
func (v *visit) addDemo() (screen, error) {
	created, err := v.Commands.CreateIntake(v.ctx,
		command.CreateIntake{Caller: v.caller, Demo: true, Intake: intake.Update{
			Name: new("Demo data"), Kind: new(intake.Webhook), Signature: &event.IntakeSignature{Scheme: "bearer"},
		}})
	if err != nil {
		return screen{}, err
	}
	for _, post := range demoPosts(v.Now().UTC().Truncate(time.Minute)) {
		body, err := event.AppendJSON(nil, post.body)
		if err != nil {
			return screen{}, err
		}
		if _, err := v.arrive(created.ID, command.ReceiveArrival{
			DeliveryID: "demo " + post.key, ReceivedAt: post.at, Mapped: command.Mapped{Body: post.body},
			Raw: event.ArrivalRaw{ContentType: "application/json"}.WithBody(body),
		}); err != nil {
			return screen{}, err
		}
	}
	data, err := v.demoData()
	if err != nil {
		return screen{}, err
	}
	settings, err := v.Directory.Account(v.ctx, v.identity.Account)
	if err != nil {
		return screen{}, err
	}
	stages := settings.State.Stages
	for i, lead := range data.Leads {
		if lead.Status != strings.ToLower(stages[0]) {
			continue // its status was set already, here or by a user
		}
		_, err := v.Commands.UpdateLead(v.ctx, command.UpdateLead{
			Caller: v.caller, LeadID: lead.LeadID,
			Body: map[string]jsontext.Value{"status": mustJSON(demoStatus(i, stages, settings.State.WonStages))},
		})
		if err != nil {
			return screen{}, err
		}
	}
	return v.toStart(query.LeadView, query.IntakeView)
}

// demoData returns the account's demo data, when the views have all that has been appended.
func (v *visit) demoData() (query.DemoData, error) {
	if err := v.Query.CatchUp(v.ctx, query.IntakeView, query.LeadView, query.ArrivalView, query.TouchView); err != nil {
		return query.DemoData{}, err
	}
	return v.Query.DemoData(v.ctx, v.identity.Account)
}

func (v *visit) confirmDemoRemoval() (screen, error) {
	return screen{name: "confirm", title: "Remove demo data", data: confirmation{
		Title: "Remove demo data", Question: "Remove the demo data of this account?",
		Consequence: "This deletes the intake “Demo data” and erases every lead that came only through it. Leads " +
			"that also arrived another way stay, " +
			"and so do leads that others were joined into, and the daily counts. This cannot be undone.",
		Verb: "Remove", Action: v.path("/demo/remove"), Back: v.path("/"), Grave: true,
	}}, nil
}

// removalTime bounds for how long one request begins erasures. The overview shows how many leads are left.
const removalTime = 5 * time.Second

// removeDemo deletes the intake, so that it gets no further arrivals, and then erases its leads.
func (v *visit) removeDemo() (screen, error) {
	data, err := v.demoData()
	if err != nil {
		return screen{}, err
	}
	if data.IntakeID != "" {
		if err := v.closeDemo(data.IntakeID); err != nil {
			return screen{}, err
		}
		if data, err = v.demoData(); err != nil {
			return screen{}, err
		}
	}
	var erasing errgroup.Group
	erasing.SetLimit(8) // an erasure mostly waits for the views
	for begun, leads := time.Now(), data.Leads; len(leads) > 0 && time.Since(begun) < removalTime; leads = leads[1:] {
		id := leads[0].LeadID
		erasing.Go(func() error {
			_, err := v.Eraser.EraseLead(v.ctx, v.Commands.Erasure(v.caller), id)
			return err
		})
	}
	if err := erasing.Wait(); err != nil {
		return screen{}, err
	}
	return v.toStart(query.LeadView, query.IntakeView)
}

// closeDemo discards quarantined arrivals of the intake of demo data, and deletes the intake.
func (v *visit) closeDemo(intakeID string) error {
	waiting, err := v.Query.LatestArrivals(v.ctx, v.identity.Account, query.ArrivalFilter{
		IntakeID: intakeID, State: arrival.Quarantined,
	}, query.Page{Limit: rows})
	if err != nil {
		return err
	}
	for _, one := range waiting.Items {
		if _, err := v.Eraser.DiscardArrival(v.ctx, v.Commands.Erasure(v.caller), one.ArrivalID); err != nil {
			return err
		}
	}
	_, err = v.Commands.DeleteIntake(v.ctx, command.DeleteIntake{Caller: v.caller, IntakeID: intakeID})
	if errors.Is(err, intake.ErrNotFound) {
		return nil // another request has deleted it
	}
	return err
}

// toStart redirects to the overview once the views show the change.
func (v *visit) toStart(views ...string) (screen, error) {
	ctx, cancel := context.WithTimeout(v.ctx, viewTimeout)
	defer cancel()
	_ = v.Query.CatchUp(ctx, views...) // the page is shown in any case
	return screen{redirect: v.path("/")}, nil
}
