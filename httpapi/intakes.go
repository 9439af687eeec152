package httpapi

import (
	"cmp"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/query"
)

// withSecret is an intake's record with a secret that was just made. Only the answers of creation and rotation show it.
type withSecret struct {
	query.Intake
	Secret string `json:"secret,omitzero"`
}

// intakeSettings are the fields that set something, intakeFields all that a request may have.
var intakeSettings = []string{
	"name", "kind", "source", "enabled", "origins", "redirect", "honeypot", "challenge", "rateLimit", "expectEvery",
	"mapping", "signature", "graphUrl", "each", "acceptGet", "handshake", "onInvalid", "secret", "appSecret",
	"verifyToken", "accessToken",
}

var intakeFields = recordFields[query.Intake](intakeSettings...)

// signatureFields are the members of a signature.
var signatureFields = []string{
	"scheme", "header", "algorithm", "encoding", "prefix", "format", "timestampHeader", "idHeader", "signed",
	"tolerance", "name",
}

// intakeChange parses the settings of an intake in a request. Null sets the default.
func (f *fields) intakeChange() intake.Update {
	c := intake.Update{
		Name: f.textOrEmpty("name"), Kind: f.textOrNil("kind"), Source: f.textOrEmpty("source"),
		Redirect: f.textOrEmpty("redirect"), Honeypot: f.textOrEmpty("honeypot"),
		ExpectEvery: f.textOrEmpty("expectEvery"), GraphURL: f.textOrEmpty("graphUrl"), Secret: f.textOrEmpty("secret"),
		AppSecret: f.textOrEmpty("appSecret"), VerifyToken: f.textOrEmpty("verifyToken"),
		AccessToken: f.textOrEmpty("accessToken"), Each: f.textOrEmpty("each"),
		Handshake: f.textOrEmpty("handshake"), OnInvalid: f.textOrEmpty("onInvalid"),
	}
	if f.includes("enabled") {
		enabled := f.boolean("enabled")
		c.Enabled = new(enabled == nil || *enabled)
	}
	if f.includes("acceptGet") {
		accept := f.boolean("acceptGet")
		c.AcceptGet = new(accept != nil && *accept)
	}
	if f.includes("origins") {
		c.Origins = new(f.texts("origins"))
	}
	if f.includes("rateLimit") {
		c.RateLimit = &intake.Rate{Limit: f.number("rateLimit")}
	}
	if f.includes("challenge") {
		inner := f.object("challenge")
		c.Challenge = &intake.Challenge{Provider: inner.text("provider"), Secret: inner.text("secret")}
		f.within("challenge", inner, "provider", "secret")
		if f.has("challenge") && c.Challenge.Provider == "" && inner.wrong == nil {
			f.wrong.Add("challenge.provider", "is required")
		}
	}
	if f.includes("mapping") {
		c.Mapping = new(f.mapping("mapping"))
	}
	if f.includes("signature") {
		c.Signature = &event.IntakeSignature{}
	}
	if f.has("signature") {
		inner := f.object("signature")
		c.Signature = &event.IntakeSignature{ // never the zero value, which is that of null
			Header: inner.text("header"), Algorithm: inner.text("algorithm"), Encoding: inner.text("encoding"),
			Prefix: inner.text("prefix"), Format: inner.text("format"), Scheme: cmp.Or(inner.text("scheme"), intake.SchemeHMAC),
			TimestampHeader: inner.text("timestampHeader"), IDHeader: inner.text("idHeader"),
			Signed: inner.text("signed"), Tolerance: inner.text("tolerance"), Name: inner.text("name"),
		}
		f.within("signature", inner, signatureFields...)
	}
	return c
}

// includes reports whether a field is there, also as null.
func (f *fields) includes(name string) bool {
	_, given := f.members[name]
	return given
}

// textOrEmpty reads a text; empty when it is null, and nil when it is absent.
func (f *fields) textOrEmpty(name string) *string {
	if !f.includes(name) {
		return nil
	}
	return new(f.text(name))
}

// object reads the fields of a field.
func (f *fields) object(name string) *fields {
	members, _ := member[map[string]jsontext.Value](f, name, "must be an object", jsontext.KindBeginObject)
	return &fields{members: members}
}

// within adds the errors of a member's fields, of which these are known.
func (f *fields) within(name string, inner *fields, known ...string) {
	inner.only(known...)
	for _, wrong := range inner.wrong {
		f.wrong.Add(name+"."+wrong.Field, wrong.Message)
	}
}

// mapping reads an object of texts. A null is left out.
func (f *fields) mapping(name string) map[string]string {
	inner := f.object(name)
	texts := map[string]string{}
	for key := range inner.members {
		if text := inner.textOrNil(key); text != nil {
			texts[key] = *text
		}
	}
	f.within(name, &fields{wrong: inner.wrong})
	return texts
}

func (ex *exchange) createIntake() (answer, error) {
	body, err := ex.fields(intakeFields...)
	if err != nil {
		return answer{}, err
	}
	change := body.intakeChange()
	if body.wrong != nil {
		// Fields of the wrong type are empty here: only validate the others. Whether private targets are allowed is up
		// to the command.
		_, _, _, err := intake.Create(change, func() (string, error) { return "", nil }, true)
		return answer{}, body.with(err)
	}
	created, err := ex.Commands.CreateIntake(ex.ctx, command.CreateIntake{Caller: ex.caller, Intake: change})
	return answer{
		status: http.StatusCreated, position: created.Position,
		body: envelope{
			Success: true,
			Data:    withSecret{query.NewIntake(created.ID, created.Intake, created.Intake.ArrivedAt), created.Secret},
		},
	}, err
}

func (ex *exchange) changeIntake() (answer, error) {
	id, body, err := ex.idAndFields(intake.ErrNotFound, intakeFields...)
	if err != nil {
		return answer{}, err
	}
	body.someOf(intakeSettings...)
	change := body.intakeChange()
	if body.wrong != nil {
		return answer{}, body.wrong
	}
	changed, err := ex.Commands.ChangeIntake(ex.ctx, command.ChangeIntake{Caller: ex.caller, IntakeID: id, Change: change})
	if err != nil {
		return answer{}, err
	}
	record, err := ex.Query.IntakeAfter(ex.ctx, id, changed.Intake)
	return answer{
		position: changed.Position, body: envelope{Success: true, Data: record, Warnings: changed.Warnings},
	}, err
}

// rotateIntakeSecret replaces a secret by the body's, or else by a random one.
func (ex *exchange) rotateIntakeSecret() (answer, error) {
	id, body, err := ex.idAndFields(intake.ErrNotFound, "secret", "overlap")
	if err != nil {
		return answer{}, err
	}
	rotation := command.RotateIntakeSecret{Caller: ex.caller, IntakeID: id, Secret: body.textOrNil("secret")}
	if text := body.text("overlap"); text != "" {
		if rotation.Overlap, err = time.ParseDuration(text); err != nil {
			body.wrong.Add("overlap", "must be a duration from 0 to 168h, such as 24h")
		}
	}
	if body.wrong != nil {
		return answer{}, body.wrong
	}
	rotated, err := ex.Commands.RotateIntakeSecret(ex.ctx, rotation)
	if err != nil {
		return answer{}, err
	}
	record, err := ex.Query.IntakeAfter(ex.ctx, id, rotated.Intake)
	return answer{
		position: rotated.Position, body: envelope{Success: true, Data: withSecret{record, rotated.Secret}},
	}, err
}

func (ex *exchange) deleteIntake() (answer, error) {
	position, err := ex.Commands.DeleteIntake(ex.ctx, command.DeleteIntake{Caller: ex.caller, IntakeID: ex.pathID()})
	return done("Intake deleted", position, err)
}

func (ex *exchange) listIntakes() (answer, error) {
	return accountList(ex, ex.params(), func(page query.Page) (query.List[query.Intake], error) {
		return ex.Query.Intakes(ex.ctx, ex.caller.Account, page)
	}, query.IntakeView)
}

func (ex *exchange) showIntake() (answer, error) {
	return one(ex, ex.params(), intake.ErrNotFound, ex.Query.Intake, query.IntakeView)
}

// arrivalPreview is the outcome that a post would have.
type arrivalPreview struct {
	Lead       any      `json:"lead"` // null: it would not be captured
	DeliveryID *string  `json:"deliveryId"`
	Test       bool     `json:"test"`
	Skip       bool     `json:"skip"`
	Fetched    []string `json:"fetched,omitempty"` // ids of leads that would be fetched first
	Arrivals   int      `json:"arrivals,omitzero"` // of a post that has several; lead is the first
}

func (ex *exchange) previewArrival() (answer, error) {
	id, body, err := ex.idAndFields(intake.ErrNotFound, "contentType", "body", "headers", "query", "mapping")
	if err != nil {
		return answer{}, err
	}
	preview := command.PreviewArrival{Account: ex.caller.Account, IntakeID: id, Request: intake.Request{
		ContentType: cmp.Or(body.text("contentType"), "application/json"), Body: []byte(body.text("body")),
		Headers: body.mapping("headers"), Query: body.mapping("query"),
	}}
	if body.has("mapping") {
		preview.Mapping = new(body.mapping("mapping"))
	}
	if body.wrong != nil {
		return answer{}, body.wrong
	}
	would, err := ex.Commands.PreviewArrival(ex.ctx, preview)
	if err != nil {
		return answer{}, err
	}
	data := arrivalPreview{
		Test: would.Mapped.Test, Skip: would.Mapped.Skip || would.Mapped.Honeypot, Fetched: would.Fetched,
		Arrivals: would.Elements,
	}
	if members := would.Lead(); members != nil {
		data.Lead = members
	}
	if would.Mapped.DeliveryID != "" {
		data.DeliveryID = &would.Mapped.DeliveryID
	}
	return answer{body: envelope{Success: true, Errors: would.Wrong, Warnings: would.Warnings, Data: data}}, nil
}
