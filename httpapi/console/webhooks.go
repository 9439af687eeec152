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
}

// shownSecret is a signing secret, on the one page that shows it.
type shownSecret struct {
	Secret        string
	PreviousUntil query.Timestamp // of the one before; zero for the first
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
		asked = []string{""} // which the command refuses: nobody means all by choosing none
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
	v.settle(registered.Position, query.EndpointView)
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
	return screen{goTo: v.path("/webhooks/" + id + "/deliveries/" + delivery)}, err
}

var errNoDelivery = errors.New("no such delivery")
