package console

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/worker/resubmit"
	"github.com/leadlog/leadlog/query"
)

// arrivalList is the page of arrivals: posts to intakes, and captures by the API that were quarantined.
type arrivalList struct {
	filtered
	parts
	States      []string
	Intakes     []query.Intake // that can be chosen; none without the scope
	Names       namesOfIntakes
	Arrivals    []query.Arrival
	Quarantined []query.QuarantineReason
	Most        int // arrivals that Quarantined counts
	Resubmitted []resubmit.Progress
	MayWrite    bool
}

const resubmissionsShown = 5

func (v *visit) arrivals() (screen, error) {
	p := v.params()
	shown := arrivalList{
		filtered: p.filtered("state", "intakeId", "reason", "since", "until"), States: arrival.States(),
		Most:     query.MaxQuarantined,
		MayWrite: v.identity.May("leads:write"),
	}
	filter := query.ArrivalFilter{
		State: p.oneOf("state", arrival.States()...), IntakeID: p.text("intakeId"), Reason: p.text("reason"),
		Since: p.day("since"), Until: p.until("until"),
	}
	page := p.page()
	if shown.Wrong = p.wrong; shown.Wrong != nil {
		return screen{name: "arrivals", title: "Arrivals", status: http.StatusBadRequest, data: shown}, nil
	}
	var err error
	if shown.Intakes, shown.Names, err = v.intakeNames(); err != nil {
		return screen{}, err
	}
	shown.show("intakeId", shown.Names.Of)
	shown.show("state", words)
	list, err := v.Query.LatestArrivals(v.ctx, v.identity.Account, filter, page)
	if err != nil {
		return screen{}, err
	}
	shown.Arrivals, shown.parts = list.Items, p.parts(page, list.NextCursor)
	if shown.Quarantined, err = v.Query.QuarantineReasons(v.ctx, v.identity.Account); err != nil {
		return screen{}, err
	}
	if shown.Resubmitted, err = v.Resubmissions.Latest(v.ctx, v.identity.Account, resubmissionsShown); err != nil {
		return screen{}, err
	}
	these := v.get("leads:read", "These arrivals", "/api/v1/crm/arrivals", "state", filter.State, "intakeId",
		filter.IntakeID, "reason", filter.Reason,
		"since", stamp(filter.Since), "until", stamp(filter.Until))
	return screen{
		name: "arrivals", title: "Arrivals", data: shown, live: page.Cursor == "",
		calls: v.calls(these.withNote(oldestFirst)),
	}, nil
}

// namesOfIntakes are those of an account's intakes, by id.
type namesOfIntakes map[string]string

// Of returns the display name of an intake. Captures of the API have none.
func (n namesOfIntakes) Of(id string) string {
	if id == "" {
		return "API"
	}
	return cmp.Or(n[id], id)
}

// intakeNames returns the intakes of the account and their names by id, if the user may see them.
func (v *visit) intakeNames() (all []query.Intake, names namesOfIntakes, err error) {
	names = namesOfIntakes{}
	if !v.identity.May("intakes:read") {
		return nil, names, nil
	}
	list, err := v.Query.Intakes(v.ctx, v.identity.Account, query.Page{Limit: intake.MaxPerAccount})
	for _, one := range list.Items {
		names[one.IntakeID] = one.Name
	}
	return list.Items, names, err
}

// resubmitArrivals has all quarantined arrivals of an intake captured again, in the background.
func (v *visit) resubmitArrivals() (screen, error) {
	form, err := v.form()
	if err != nil {
		return screen{}, err
	}
	id := form.Get("intakeId")
	if _, err := v.Directory.Admit(v.ctx, v.caller); err != nil {
		return screen{}, err
	}
	if err := v.Commands.OwnsIntake(v.ctx, v.identity.Account, id); err != nil {
		return screen{}, err
	}
	err = v.Resubmissions.Add(v.ctx, resubmit.Request{
		Account: v.identity.Account, IntakeID: id, Actor: v.caller.Actor, Credential: v.caller.Credential,
		RequestID: v.caller.Correlation,
	})
	return screen{redirect: v.path("/arrivals") + "?intakeId=" + id}, err
}

// arrivalPage is one arrival.
type arrivalPage struct {
	query.Arrival
	IntakeName string
	Kept       bool // the raw body is stored
	Raw        *query.ArrivalRaw
	Revealed   bool           // Raw is shown, which the account does not do by itself
	Fields     []arrivalField // to correct
	Wrong      field.Errors   // with the corrected ones
	Fetching   bool
	MayWrite   bool
}

// Waiting reports whether something can be done to have the arrival captured.
func (a arrivalPage) Waiting() bool {
	return a.Kept && (a.State == arrival.Quarantined || a.State == arrival.Refused)
}

// arrivalField is a field of a lead that can be set instead of the posted one.
type arrivalField struct{ Name, Value, Wrong string }

func (v *visit) arrival() (screen, error) { return v.arrivalScreen(false, nil, nil) }

// revealArrival shows the raw body of an arrival.
func (v *visit) revealArrival() (screen, error) { return v.arrivalScreen(true, nil, nil) }

// arrivalScreen shows the raw body of an arrival if it is revealed, or if the account's maskInConsole is off. The
// access is recorded before the answer.
func (v *visit) arrivalScreen(reveal bool, values map[string]string, faults field.Errors) (screen, error) {
	mask, err := v.masker()
	if err != nil {
		return screen{}, err
	}
	of, err := v.Query.Arrival(v.ctx, v.identity.Account, v.id("id"))
	if err != nil {
		return screen{}, missing(err, arrival.ErrNotFound)
	}
	shown := arrivalPage{
		Arrival: of.Arrival, Kept: of.Raw != nil, Wrong: faults, Fetching: of.State == arrival.Received,
		MayWrite: v.identity.May("leads:write"),
	}
	if of.IntakeID != nil {
		_, names, err := v.intakeNames()
		if err != nil {
			return screen{}, err
		}
		shown.IntakeName = names.Of(*of.IntakeID)
	}
	reasons := faults
	if reasons == nil {
		for _, reason := range of.Reasons {
			reasons = append(reasons, field.Error(reason))
		}
	}
	for _, name := range lead.FieldNames() {
		shown.Fields = append(shown.Fields, arrivalField{name, values[name], fault(reasons, name)})
	}
	// an update of the page has no body, nor has an answer to HEAD
	if of.Raw != nil && (reveal || mask.revealed) && !wantsStream(v.r) && v.r.Method != http.MethodHead {
		shown.Raw, shown.Revealed = of.Raw, !mask.revealed
		err := v.Commands.Reveal(v.ctx, command.Reveal{
			Caller: v.caller, What: command.RevealArrival, ArrivalID: of.ArrivalID,
		})
		if err != nil {
			return screen{}, err
		}
	}
	page := screen{name: "arrival", title: "Arrival", data: shown, live: v.reads()}
	page.calls = v.calls(
		v.get("leads:read", "This arrival",
			"/api/v1/crm/arrivals/"+
				of.ArrivalID).withNote("The answer has the received data, unmasked, and is recorded in the audit log."),
	)
	if faults != nil {
		page.status = http.StatusBadRequest
	}
	return page, nil
}

// resubmitArrival captures an arrival again, with the fields that the form sets. The arrival's page shows the outcome.
func (v *visit) resubmitArrival() (screen, error) {
	form, err := v.form()
	if err != nil {
		return screen{}, err
	}
	values, set := map[string]string{}, map[string]jsontext.Value{}
	for _, name := range lead.FieldNames() {
		if given := strings.TrimSpace(form.Get(name)); given != "" {
			text, err := jsontext.AppendQuote(nil, given)
			if err != nil {
				return screen{}, errBadForm
			}
			values[name], set[name] = given, text
		}
	}
	cmd := command.ResubmitArrival{ArrivalID: v.id("id"), Set: set}
	if cmd.Admission, err = v.Directory.Admit(v.ctx, v.caller); err != nil {
		return screen{}, err
	}
	captured, err := v.Commands.ResubmitArrival(v.ctx, cmd)
	if faults, ok := wrong(err); ok {
		return v.arrivalScreen(false, values, faults)
	}
	refused, isRefused := errors.AsType[*command.LeadRefused](err)
	switch {
	case isRefused:
		captured.Position = refused.Position
	case errors.Is(err, arrival.ErrPending): // it is fetched again
	case err != nil:
		return screen{}, err
	}
	v.waitForViews(captured.Position, query.ArrivalView)
	return screen{redirect: v.path("/arrivals/" + v.id("id"))}, nil
}

func (v *visit) confirmDiscard() (screen, error) {
	of, err := v.Query.Arrival(v.ctx, v.identity.Account, v.id("id"))
	if err != nil {
		return screen{}, missing(err, arrival.ErrNotFound)
	}
	at := v.path("/arrivals/" + of.ArrivalID)
	return screen{name: "confirm", title: "Discard an arrival", data: confirmation{
		Title:       "Discard an arrival",
		Question:    "Discard the arrival of " + time.Time(of.ReceivedAt).UTC().Format("2006-01-02 15:04:05") + "?",
		Consequence: "The received data is deleted and never becomes a lead. This cannot be undone.", Verb: "Discard",
		Action: at + "/discard", Back: at, Grave: true,
	}}, nil
}

func (v *visit) discardArrival() (screen, error) {
	position, err := v.Eraser.DiscardArrival(v.ctx, v.Commands.Erasure(v.caller), v.id("id"))
	if err != nil {
		return screen{}, err
	}
	v.waitForViews(position, query.ArrivalView)
	return screen{redirect: v.path("/arrivals/" + v.id("id"))}, nil
}
