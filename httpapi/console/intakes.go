package console

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/query"
)

// kindOfIntake describes a kind where one is chosen.
type kindOfIntake struct{ Kind, About string }

var kindsOfIntake = []kindOfIntake{
	{intake.Form, "A form on your page. Its address is public."},
	{intake.GoogleLeadForm, "Lead form assets of Google Ads."},
	{intake.MetaLeadAds, "Instant forms on Facebook and Instagram."},
	{intake.Typeform, "Answers to a typeform."},
	{intake.Razorpay, "Payments and payment pages of Razorpay."},
	{intake.StandardWebhooks, "Senders that follow the Standard Webhooks specification."},
	{intake.Webhook, "Any other sender that posts JSON or a form."},
	{intake.WhatsApp, "Messages to a number of the WhatsApp Cloud API."},
}

// intakeList is the page of intakes.
type intakeList struct {
	parts
	Intakes  []query.Intake
	Kinds    []kindOfIntake
	Most     int // of an account
	MayWrite bool
}

func (v *visit) intakes() (screen, error) {
	p := v.params()
	page := p.page()
	list, err := v.Query.Intakes(v.ctx, v.identity.Account, page)
	if err != nil {
		return screen{}, err
	}
	shown := intakeList{
		Intakes: list.Items, Kinds: kindsOfIntake, Most: intake.MaxPerAccount,
		MayWrite: v.identity.May("intakes:write"),
		parts:    p.parts(page, list.NextCursor),
	}
	these := v.get("intakes:read", "The intakes", "/api/v1/crm/intakes")
	return screen{name: "intakes", title: "Intakes", data: shown, live: v.reads(), calls: v.calls(these)}, nil
}

// intakeForm is the form of a new intake, or of changes of one.
type intakeForm struct {
	ID      string // empty: of a new one
	Kind    kindOfIntake
	Values  map[string]string // by field, as given
	Sources []string
	Default string // source of the kind
	Each    bool   // the kind has a list of arrivals
	Mapping []mappingField
	Wrong   field.Errors
}

// mappingField is a field of a lead, with the expression of the intake's owner and that of the kind.
type mappingField struct{ Name, Value, Default string }

func (v *visit) newIntake() (screen, error) {
	return v.intakeForm("", v.params().text("kind"), map[string]string{"enabled": "true"}, nil)
}

func (v *visit) intakeForm(id, kind string, values map[string]string, wrong field.Errors) (screen, error) {
	form := intakeForm{
		ID: id, Values: values, Each: intake.Splits(kind), Sources: lead.CanonicalSources(),
		Default: intake.DefaultSource(kind), Wrong: wrong,
	}
	for _, one := range kindsOfIntake {
		if one.Kind == kind {
			form.Kind = one
		}
	}
	if form.Kind.Kind == "" {
		return screen{}, errNoPage
	}
	defaults := intake.DefaultMapping(kind)
	for _, name := range intake.MappingFields() {
		form.Mapping = append(form.Mapping, mappingField{name, values["mapping."+name], defaults[name]})
	}
	title := "Create an intake"
	if id != "" {
		title = "Edit an intake"
	}
	shown := screen{name: "intakeform", title: title, data: form}
	if wrong != nil {
		shown.status = http.StatusBadRequest
	}
	return shown, nil
}

// readIntake reads the form of an intake. Fields that the form of the kind does not have stay as they are.
func (v *visit) readIntake() (kind string, c intake.Update, values map[string]string, err error) {
	form, err := v.form()
	if err != nil {
		return "", c, nil, err
	}
	values = map[string]string{}
	for name, given := range form {
		values[name] = given[0]
	}
	text := func(name string) *string {
		if !form.Has(name) {
			return nil
		}
		return new(strings.TrimSpace(form.Get(name)))
	}
	secret := func(name string) *string { // an empty one leaves the present one
		if form.Get(name) == "" {
			return nil
		}
		return new(form.Get(name))
	}
	c = intake.Update{
		Name: text("name"), Source: text("source"), Redirect: text("redirect"), Honeypot: text("honeypot"),
		ExpectEvery: text("expectEvery"), GraphURL: text("graphUrl"), Secret: secret("secret"),
		AppSecret: secret("appSecret"), VerifyToken: secret("verifyToken"),
		AccessToken: secret("accessToken"), Each: text("each"), Handshake: text("handshake"),
		OnInvalid: text("onInvalid"),
	}
	if form.Has("acceptGet") {
		c.AcceptGet = new(form.Get("acceptGet") == "true")
	}
	if form.Has("origins") {
		c.Origins = new(strings.Fields(form.Get("origins")))
	}
	if form.Has("challenge.provider") {
		c.Challenge = &intake.Challenge{Provider: form.Get("challenge.provider"), Secret: form.Get("challenge.secret")}
	}
	var wrong field.Errors
	if c.Challenge != nil && c.Challenge.Provider == "" && c.Challenge.Secret != "" {
		wrong.Add("challenge.provider", "is required with a secret")
	}
	if form.Has("rateLimit") {
		c.RateLimit = &intake.Rate{}
		if given := strings.TrimSpace(form.Get("rateLimit")); given != "" {
			rate, err := strconv.ParseFloat(given, 64)
			if err != nil {
				wrong.Add("rateLimit", "must be a number")
			}
			c.RateLimit.Limit = &rate
		}
	}
	if form.Has("signature.scheme") {
		c.Signature = new(intake.OfScheme(event.IntakeSignature{
			Scheme: form.Get("signature.scheme"), Header: form.Get("signature.header"),
			Algorithm: form.Get("signature.algorithm"), Encoding: form.Get("signature.encoding"),
			Prefix: form.Get("signature.prefix"), Format: form.Get("signature.format"),
			TimestampHeader: form.Get("signature.timestampHeader"), IDHeader: form.Get("signature.idHeader"),
			Signed: form.Get("signature.signed"), Tolerance: form.Get("signature.tolerance"),
			Name: form.Get("signature.name"),
		}))
	}
	mapping := map[string]string{}
	for _, name := range intake.MappingFields() {
		if given := strings.TrimSpace(form.Get("mapping." + name)); given != "" {
			mapping[name] = given
		}
	}
	c.Mapping = &mapping
	return form.Get("kind"), c, values, wrong.Err()
}

func (v *visit) createIntake() (screen, error) {
	kind, change, values, err := v.readIntake()
	if kind != "" {
		change.Kind = &kind
	}
	var created command.IntakeCreated
	if err == nil {
		created, err = v.Commands.CreateIntake(v.ctx, command.CreateIntake{Caller: v.caller, Intake: change})
	}
	if faults, ok := wrong(err); ok {
		return v.intakeForm("", kind, values, faults)
	}
	if err != nil {
		return screen{}, err
	}
	v.waitForViews(created.Position, query.IntakeView)
	return v.intakeScreen(created.ID, &shownIntake{Secret: created.Secret, New: true}, intakePreview{})
}

// intakePage shows an intake and its arrivals.
type intakePage struct {
	query.Intake
	Address  string // with the origin of this page
	Script   string // likewise, of leadlog.js
	Arrivals []query.Arrival
	MayWrite bool
	MayRead  bool // leads
	Shown    *shownIntake
	Preview  intakePreview
}

// shownIntake is shown once, after a creation or rotation.
type shownIntake struct {
	Secret string
	New    bool
}

// intakePreview is a sample post and its outcome.
type intakePreview struct {
	Body, ContentType string
	Done              bool
	Lead              []member
	Discarded         string // why a valid sample would not be captured
	Wrong             field.Errors
	Asked             bool // as in command.ArrivalPreview
}

// intake shows an intake, with the preview filled in with an arrival if the address names one.
func (v *visit) intake() (screen, error) {
	preview := intakePreview{}
	if id := v.params().text("arrival"); id != "" && v.caller.ReadsLeads && v.identity.May("intakes:write") {
		of, err := v.Query.Arrival(v.ctx, v.identity.Account, id)
		if err != nil {
			return screen{}, missing(err, arrival.ErrNotFound)
		}
		if of.Raw != nil && of.IntakeID != nil && *of.IntakeID == v.id("id") {
			reveal := command.Reveal{Caller: v.caller, What: command.RevealArrival, ArrivalID: of.ArrivalID}
			if err := v.Commands.Reveal(v.ctx, reveal); err != nil {
				return screen{}, err
			}
			preview.ContentType, _, _ = strings.Cut(of.Raw.ContentType, ";")
			preview.Body = of.Raw.Body
		}
	}
	return v.intakeScreen(v.id("id"), nil, preview)
}

// latestArrivals is how many arrivals the page of an intake shows.
const latestArrivals = 20

func (v *visit) intakeScreen(id string, once *shownIntake, preview intakePreview) (screen, error) {
	record, err := v.Query.Intake(v.ctx, v.identity.Account, id)
	if err != nil {
		return screen{}, missing(err, intake.ErrNotFound)
	}
	base := v.service()
	shown := intakePage{
		Intake: record, Address: base + record.URL, Script: base + "/in/leadlog.js", Shown: once, Preview: preview,
		MayWrite: v.identity.May("intakes:write"), MayRead: v.caller.ReadsLeads,
	}
	if shown.MayRead {
		latest, err := v.Query.LatestArrivals(v.ctx, v.identity.Account, query.ArrivalFilter{IntakeID: id},
			query.Page{Limit: latestArrivals})
		if err != nil {
			return screen{}, err
		}
		shown.Arrivals = latest.Items
	}
	calls := v.calls(
		v.get("intakes:read", "This intake", "/api/v1/crm/intakes/"+record.IntakeID),
		v.get("leads:read", "Its arrivals", "/api/v1/crm/arrivals", "intakeId", record.IntakeID).withNote(oldestFirst))
	return screen{name: "intake", title: record.Name, data: shown, live: v.reads(), calls: calls}, nil
}

func (v *visit) editIntake() (screen, error) {
	record, err := v.Query.Intake(v.ctx, v.identity.Account, v.id("id"))
	if err != nil {
		return screen{}, missing(err, intake.ErrNotFound)
	}
	text := func(value *string) string {
		if value == nil {
			return ""
		}
		return *value
	}
	values := map[string]string{
		"name": record.Name, "source": record.Source, "origins": strings.Join(record.Origins, "\n"),
		"redirect": text(record.Redirect), "honeypot": text(record.Honeypot), "expectEvery": text(record.ExpectEvery),
		"graphUrl": text(record.GraphURL), "each": text(record.Each), "handshake": record.Handshake,
		"onInvalid": text(record.OnInvalid),
		"acceptGet": strconv.FormatBool(record.AcceptGet),
	}
	if record.RateLimit != nil {
		values["rateLimit"] = strconv.FormatFloat(*record.RateLimit, 'f', -1, 64)
	}
	if record.Challenge != nil {
		values["challenge.provider"] = record.Challenge.Provider
	}
	if s := record.Signature; s != nil {
		values["signature.scheme"], values["signature.header"], values["signature.algorithm"] = s.Scheme,
			text(s.Header), text(s.Algorithm)
		values["signature.encoding"], values["signature.prefix"], values["signature.format"] = text(s.Encoding),
			text(s.Prefix), text(s.Format)
		values["signature.timestampHeader"], values["signature.idHeader"] = text(s.TimestampHeader), text(s.IDHeader)
		values["signature.signed"], values["signature.tolerance"], values["signature.name"] = text(s.Signed),
			text(s.Tolerance), text(s.Name)
	}
	for name, source := range record.Mapping {
		values["mapping."+name] = source
	}
	return v.intakeForm(record.IntakeID, record.Kind, values, nil)
}

func (v *visit) changeIntake() (screen, error) {
	id := v.id("id")
	kind, change, values, err := v.readIntake()
	var changed command.IntakeChanged
	if err == nil {
		changed, err = v.Commands.ChangeIntake(v.ctx, command.ChangeIntake{
			Caller: v.caller, IntakeID: id, Change: change,
		})
	}
	if faults, ok := wrong(err); ok {
		return v.intakeForm(id, kind, values, faults)
	}
	if err == nil {
		v.waitForViews(changed.Position, query.IntakeView)
	}
	return v.toIntake(err)
}

// Every form of an intake's page leads back to it.
func (v *visit) toIntake(err error) (screen, error) {
	return screen{redirect: v.path("/intakes/" + v.id("id"))}, err
}

// switchIntake enables or disables an intake.
func (v *visit) switchIntake() (screen, error) {
	enabled, err := v.switchForm()
	if err != nil {
		return screen{}, err
	}
	changed, err := v.Commands.ChangeIntake(v.ctx, command.ChangeIntake{
		Caller: v.caller, IntakeID: v.id("id"), Change: intake.Update{Enabled: &enabled},
	})
	if err == nil {
		v.waitForViews(changed.Position, query.IntakeView)
	}
	return v.toIntake(err)
}

// previewIntake shows the outcome of a pasted sample.
func (v *visit) previewIntake() (screen, error) {
	form, err := v.form()
	if err != nil {
		return screen{}, err
	}
	id := v.id("id")
	preview := intakePreview{
		Body: form.Get("body"), ContentType: cmp.Or(form.Get("contentType"), "application/json"), Done: true,
	}
	would, err := v.Commands.PreviewArrival(v.ctx, command.PreviewArrival{
		Account: v.identity.Account, IntakeID: id,
		Request: intake.Request{ContentType: preview.ContentType, Body: []byte(preview.Body)},
	})
	if err != nil {
		return screen{}, err
	}
	preview.Wrong, preview.Asked = would.Wrong, would.Asked
	switch {
	case len(would.Fetched) > 0:
		preview.Discarded = fmt.Sprintf("It only announces leads (%s). Each is fetched from Meta and then captured. "+
			"To see what becomes of one, paste the Graph API's answer.", strings.Join(would.Fetched, ", "))
	case would.Mapped.Test:
		preview.Discarded = "The sender marked it as a test."
	case would.Mapped.Skip:
		preview.Discarded = "The mapping skips it."
	case would.Mapped.Honeypot:
		preview.Discarded = "The honeypot field is filled in, which suggests a bot."
	}
	if members := would.Lead(); members != nil {
		object, err := event.AppendJSON(nil, members)
		if err != nil {
			return screen{}, err
		}
		preview.Lead = masker{revealed: true}.object(jsontext.Value(object))
	}
	return v.intakeScreen(id, nil, preview)
}

func (v *visit) rotateIntakeSecret() (screen, error) {
	form, err := v.form()
	if err != nil {
		return screen{}, err
	}
	id := v.id("id")
	rotated, err := v.Commands.RotateIntakeSecret(v.ctx, command.RotateIntakeSecret{
		Caller: v.caller, IntakeID: id, Secret: new(form.Get("secret")),
	})
	if err != nil {
		return screen{}, err
	}
	return v.intakeScreen(id, &shownIntake{Secret: rotated.Secret}, intakePreview{})
}

func (v *visit) deleteIntake() (screen, error) {
	position, err := v.Commands.DeleteIntake(v.ctx, command.DeleteIntake{Caller: v.caller, IntakeID: v.id("id")})
	if err != nil {
		return screen{}, err
	}
	v.waitForViews(position, query.IntakeView)
	return screen{redirect: v.path("/intakes")}, nil
}

func (v *visit) confirmIntakeSecret() (screen, error) {
	return v.confirmIntake("secret", "Rotate the secret of", "Rotate",
		"The new secret is shown once. The current secret is refused at once, so the sender cannot deliver until it "+
			"has the new one.")
}

func (v *visit) confirmIntakeDeletion() (screen, error) {
	return v.confirmIntake("delete", "Delete", "Delete",
		"Its address no longer answers, and its secrets are destroyed. Arrivals and leads are kept. This "+
			"cannot be undone.")
}

func (v *visit) confirmIntake(action, question, verb, consequence string) (screen, error) {
	record, err := v.Query.Intake(v.ctx, v.identity.Account, v.id("id"))
	if err != nil {
		return screen{}, missing(err, intake.ErrNotFound)
	}
	at := v.path("/intakes/" + record.IntakeID)
	return screen{name: "confirm", title: question + " an intake", data: confirmation{
		Title: question + " an intake", Question: question + " the intake " + record.Name + "?",
		Consequence: consequence, Verb: verb, Action: at + "/" + action, Back: at, Grave: action == "delete",
	}}, nil
}
