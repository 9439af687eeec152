package console

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/query"
)

// endpointList is the page of webhook endpoints.
type endpointList struct {
	parts
	Endpoints []query.Endpoint
	Most      int // of an account
	MayWrite  bool
	Form      endpointForm
}

// endpointForm is what was asked for of a new endpoint, and what was wrong with it.
type endpointForm struct {
	URL, Description string
	Events           []choice
	Wrong            field.Errors
}

type choice struct {
	Name   string
	Chosen bool
}

// endpointPage is one endpoint and what was sent to it.
type endpointPage struct {
	query.Endpoint
	parts
	Deliveries []query.Delivery
	MayWrite   bool
	MayReplay  bool
	Secret     *shownSecret
	Replay     replayForm
	Retry      retryForm
}

// shownSecret is a signing secret, on the one page that shows it.
type shownSecret struct {
	Secret        string
	PreviousUntil query.Timestamp // of the one before; zero for the first
}

type retryForm struct {
	Since string
	Wrong field.Errors
}

type replayForm struct {
	Since, Until string
	Wrong        field.Errors
}

func (v *visit) webhooks() (screen, error) {
	return v.endpointScreen(endpointForm{Events: choices(nil)})
}

func (v *visit) endpointScreen(form endpointForm) (screen, error) {
	p := v.params()
	page := p.page()
	list, err := v.Query.Endpoints(v.ctx, v.identity.Account, page)
	if err != nil {
		return screen{}, err
	}
	shown := endpointList{
		Endpoints: list.Items, Most: webhook.MaxPerAccount, MayWrite: v.identity.May("webhooks:write"), Form: form,
		parts: p.parts(page, list.NextCursor),
	}
	return screen{name: "webhooks", title: "Webhooks", data: shown, live: v.reads()}, nil
}

func choices(asked []string) (all []choice) {
	for _, name := range webhook.EventTypes() {
		all = append(all, choice{name, len(asked) == 0 || slices.Contains(asked, "*") || slices.Contains(asked, name)})
	}
	return all
}

func (v *visit) registerEndpoint() (screen, error) {
	form, err := v.form()
	if err != nil {
		return screen{}, err
	}
	asked := form["events"]
	switch len(asked) {
	case 0:
		asked = []string{""} // the command refuses it: no selection does not mean all
	case len(webhook.EventTypes()):
		asked = []string{"*"} // those too that are yet to come
	}
	registered, err := v.Commands.RegisterWebhookEndpoint(v.ctx, command.RegisterWebhookEndpoint{
		Caller: v.caller, Registration: webhook.Registration{
			URL: strings.TrimSpace(form.Get("url")), Events: asked, Description: form.Get("description"),
		},
	})
	if faults, ok := wrong(err); ok {
		again := endpointForm{URL: form.Get("url"), Description: form.Get("description"), Events: choices(asked), Wrong: faults}
		shown, err := v.endpointScreen(again)
		shown.status = http.StatusBadRequest
		return shown, err
	}
	if err != nil {
		return screen{}, err
	}
	v.waitForViews(registered.Position, query.EndpointView)
	return v.endpoint(registered.ID, replayForm{}, &shownSecret{Secret: registered.Secret})
}

func (v *visit) webhook() (screen, error) { return v.endpoint(v.id("id"), replayForm{}, nil) }

func (v *visit) endpoint(id string, replay replayForm, secret *shownSecret) (screen, error) {
	p := v.params()
	endpoint, err := v.Query.Endpoint(v.ctx, v.identity.Account, id)
	if err != nil {
		return screen{}, missing(err, webhook.ErrNotFound)
	}
	page := p.page()
	list, err := v.Query.Deliveries(v.ctx, v.identity.Account, id, v.caller.ReadsLeads, page)
	if err != nil {
		return screen{}, missing(err, webhook.ErrNotFound)
	}
	shown := endpointPage{
		Endpoint: endpoint, Deliveries: list.Items, MayWrite: v.identity.May("webhooks:write"), Secret: secret, Replay: replay,
		MayReplay: v.identity.May("webhooks:write") && v.caller.ReadsLeads,
		parts:     p.parts(page, list.NextCursor),
	}
	return screen{name: "webhook", title: "Webhook endpoint", data: shown, live: v.reads() && page.Cursor == ""}, nil
}

// deliveryPage is one delivery and its attempts.
type deliveryPage struct {
	query.Delivery
	MayWrite     bool
	HasResponses bool // shown to those who may read leads
}

func (v *visit) delivery() (screen, error) {
	found, err := v.Query.Delivery(v.ctx, v.identity.Account, v.id("id"), v.id("delivery"), v.caller.ReadsLeads)
	if err != nil {
		return screen{}, missing(err, errNoDelivery)
	}
	shown := deliveryPage{found, v.identity.May("webhooks:write"), v.caller.ReadsLeads}
	return screen{name: "delivery", title: "Delivery", data: shown, live: true}, nil
}

// retryDelivery queues a delivery again. The endpoint and the delivery must be the account's.
func (v *visit) retryDelivery() (screen, error) {
	id, delivery := v.id("id"), v.id("delivery")
	if _, err := v.Query.Delivery(v.ctx, v.identity.Account, id, delivery, v.caller.ReadsLeads); err != nil {
		return screen{}, missing(err, errNoDelivery)
	}
	_, err := v.Commands.RetryDelivery(v.ctx, command.RetryDelivery{Caller: v.caller, WebhookID: id, DeliveryID: delivery})
	return screen{redirect: v.path("/webhooks/" + id + "/deliveries/" + delivery)}, err
}

// retryFailed queues deliveries again that have failed since a time.
func (v *visit) retryFailed() (screen, error) {
	form, err := v.form()
	if err != nil {
		return screen{}, err
	}
	p := &params{values: form}
	cmd := command.RetryFailedDeliveries{Caller: v.caller, WebhookID: v.id("id"), Since: p.moment("since")}
	if err = p.wrong.Err(); err == nil {
		cmd.DeliveryIDs, _, err = v.Query.FailedDeliveries(v.ctx, v.identity.Account, cmd.WebhookID, cmd.Since)
		err = missing(err, webhook.ErrNotFound)
	}
	if err == nil {
		_, err = v.Commands.RetryFailedDeliveries(v.ctx, cmd)
	}
	if faults, ok := wrong(err); ok {
		shown, err := v.endpoint(cmd.WebhookID, replayForm{}, nil)
		if page, is := shown.data.(endpointPage); is {
			page.Retry = retryForm{p.text("since"), faults}
			shown.data = page
		}
		shown.status = http.StatusBadRequest
		return shown, err
	}
	return v.toEndpoint(err)
}

var errNoDelivery = errors.New("no such delivery")

// Every form of an endpoint's page leads back to it.
func (v *visit) toEndpoint(err error) (screen, error) {
	return screen{redirect: v.path("/webhooks/" + v.id("id"))}, err
}

func (v *visit) testEndpoint() (screen, error) {
	_, err := v.Commands.TestWebhookEndpoint(v.ctx, command.TestWebhookEndpoint{Caller: v.caller, WebhookID: v.id("id")})
	return v.toEndpoint(err)
}

// switchEndpoint turns an endpoint on or off.
func (v *visit) switchEndpoint() (screen, error) {
	form, err := v.form()
	if err != nil {
		return screen{}, err
	}
	updated, err := v.Commands.UpdateWebhookEndpoint(v.ctx, command.UpdateWebhookEndpoint{
		Caller: v.caller, WebhookID: v.id("id"), Change: webhook.Change{Enabled: new(form.Get("enabled") == "true")},
	})
	if err == nil {
		v.waitForViews(updated.Position, query.EndpointView)
	}
	return v.toEndpoint(err)
}

// replayEndpoint queues again what happened in a span of time.
func (v *visit) replayEndpoint() (screen, error) {
	form, err := v.form()
	if err != nil {
		return screen{}, err
	}
	p := &params{values: form}
	asked := replayForm{Since: p.text("since"), Until: p.text("until")}
	cmd := command.ReplayWebhookEndpoint{Caller: v.caller, WebhookID: v.id("id"), Since: p.moment("since"), Until: p.moment("until")}
	if err = p.wrong.Err(); err == nil {
		_, err = v.Commands.ReplayWebhookEndpoint(v.ctx, cmd)
	}
	if faults, ok := wrong(err); ok {
		asked.Wrong = faults
		shown, err := v.endpoint(cmd.WebhookID, asked, nil)
		shown.status = http.StatusBadRequest
		return shown, err
	}
	return v.toEndpoint(err)
}

func (v *visit) rotateSecret() (screen, error) {
	id := v.id("id")
	rotated, err := v.Commands.RotateWebhookSecret(v.ctx, command.RotateWebhookSecret{Caller: v.caller, WebhookID: id})
	if err != nil {
		return screen{}, err
	}
	return v.endpoint(id, replayForm{}, &shownSecret{rotated.Secret, query.Timestamp(rotated.Rotated.PreviousUntil)})
}

func (v *visit) deleteEndpoint() (screen, error) {
	position, err := v.Commands.DeleteWebhookEndpoint(v.ctx, command.DeleteWebhookEndpoint{Caller: v.caller, WebhookID: v.id("id")})
	if err != nil {
		return screen{}, err
	}
	v.waitForViews(position, query.EndpointView)
	return screen{redirect: v.path("/webhooks")}, nil
}

func (v *visit) confirmSecret() (screen, error) {
	return v.confirmEndpoint("secret", "Rotate the secret of", "Rotate", "The new secret is shown once. The current secret also signs for 24 hours, so that receivers can switch.")
}

func (v *visit) confirmEndpointDeletion() (screen, error) {
	return v.confirmEndpoint("delete", "Delete", "Delete", "Nothing more is sent to it, queued deliveries are cancelled, and its secret is destroyed. This cannot be undone.")
}

func (v *visit) confirmEndpoint(action, question, verb, consequence string) (screen, error) {
	endpoint, err := v.Query.Endpoint(v.ctx, v.identity.Account, v.id("id"))
	if err != nil {
		return screen{}, missing(err, webhook.ErrNotFound)
	}
	at := v.path("/webhooks/" + endpoint.WebhookID)
	return screen{name: "confirm", title: question + " an endpoint", data: confirmation{
		Title: question + " an endpoint", Question: question + " the endpoint " + endpoint.URL + "?", Consequence: consequence, Verb: verb,
		Action: at + "/" + action, Back: at, Grave: action == "delete",
	}}, nil
}
