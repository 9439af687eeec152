package console

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
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

// endpointForm is the form of a new endpoint, with its errors.
type endpointForm struct {
	URL, Description string
	Events           []choice
	Wrong            field.Errors
}

type choice struct {
	Name   string
	Chosen bool
}

// endpointPage shows an endpoint and its deliveries.
type endpointPage struct {
	query.Endpoint
	parts
	List       filtered
	States     []string
	Types      []string
	Deliveries []query.Delivery
	MayWrite   bool
	MayReplay  bool
	Secret     *shownSecret
	Replay     replayForm
	Retry      retryForm
	Settings   settingsForm
}

// settingsForm has the settings of an endpoint, stored or as posted, and the result of trying its filter.
type settingsForm struct {
	Filter, Ordering, RateLimit, Headers string
	Own                                  []string // names of its own headers
	NoHeaders                            bool
	Wrong                                field.Errors
	Trial                                *query.FilterPreview
}

func newSettingsForm(e query.Endpoint) settingsForm {
	return settingsForm{
		Filter: e.Filter, Ordering: e.Ordering, RateLimit: strconv.FormatFloat(e.RateLimit, 'f', -1, 64),
		Own: slices.Sorted(maps.Keys(e.Headers)),
	}
}

// settings reads the form, and sets Wrong to its errors.
func (v *visit) settings() (form settingsForm, change webhook.Change, err error) {
	values, err := v.form()
	if err != nil {
		return form, change, err
	}
	form = settingsForm{
		Filter: values.Get("filter"), Ordering: values.Get("ordering"),
		RateLimit: strings.TrimSpace(values.Get("rateLimit")), Headers: values.Get("headers"),
		NoHeaders: values.Get("noHeaders") != "",
	}
	change = webhook.Change{Filter: &form.Filter, Ordering: &form.Ordering, RateLimit: new(0.0)}
	if form.RateLimit != "" {
		if *change.RateLimit, err = strconv.ParseFloat(form.RateLimit, 64); err != nil {
			form.Wrong.Add("rateLimit", "must be a number")
		}
	}
	lines := strings.TrimSpace(form.Headers)
	if lines != "" || form.NoHeaders {
		change.Headers = map[string]string{}
	}
	for line := range strings.Lines(lines) {
		name, value, found := strings.Cut(strings.TrimSpace(line), ":")
		if _, twice := change.Headers[name]; !found || twice {
			form.Wrong.Add("headers", "must be one header on each line, such as Authorization: Bearer …")
			break
		}
		change.Headers[name] = value
	}
	if form.NoHeaders && lines != "" {
		form.Wrong.Add("headers", "must be empty to remove all")
	}
	return form, change, nil
}

// changeEndpoint changes how an endpoint is sent its deliveries.
func (v *visit) changeEndpoint() (screen, error) {
	form, change, err := v.settings()
	if err != nil {
		return screen{}, err
	}
	if err = form.Wrong.Err(); err == nil {
		var updated command.WebhookUpdated
		updated, err = v.Commands.UpdateWebhookEndpoint(v.ctx, command.UpdateWebhookEndpoint{
			Caller: v.caller, WebhookID: v.id("id"), Change: change,
		})
		if err == nil {
			v.waitForViews(updated.Position, query.EndpointView)
			return v.toEndpoint(nil)
		}
	}
	return v.settingsAgain(form, err)
}

// tryFilter shows how the form's filter decides on recent events. It changes nothing.
func (v *visit) tryFilter() (screen, error) {
	form, _, err := v.settings()
	if err != nil {
		return screen{}, err
	}
	endpoint, err := v.Query.Endpoint(v.ctx, v.identity.Account, v.id("id"))
	if err != nil {
		return screen{}, missing(err, webhook.ErrNotFound)
	}
	form.Wrong = nil
	trial, err := v.Gate.TryFilter(v.r, v.caller, endpoint, form.Filter)
	if err == nil {
		form.Trial = &trial
	}
	return v.settingsAgain(form, err)
}

// HeaderFault returns the errors of own headers, with their names.
func (f settingsForm) HeaderFault() string {
	var faults []string
	for _, e := range f.Wrong {
		if name, own := strings.CutPrefix(e.Field, "headers."); own {
			faults = append(faults, name+" "+e.Message)
		} else if e.Field == "headers" {
			faults = append(faults, e.Message)
		}
	}
	return strings.Join(faults, "; ")
}

// settingsAgain shows the endpoint with the submitted form.
func (v *visit) settingsAgain(form settingsForm, err error) (screen, error) {
	faults, is := wrong(err)
	if err != nil && !is {
		return screen{}, err
	}
	shown, err := v.endpoint(v.id("id"), replayForm{}, nil)
	if page, is := shown.data.(endpointPage); is {
		form.Own, form.Wrong = page.Settings.Own, faults
		page.Settings = form
		shown.data, shown.live = page, false
	}
	if faults != nil {
		shown.status = http.StatusBadRequest
	}
	return shown, err
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
	return screen{
		name: "webhooks", title: "Webhooks", data: shown, live: v.reads(), calls: v.calls(v.endpointsCall()),
	}, nil
}

func (v *visit) endpointsCall() call {
	return v.get("webhooks:read", "The webhook endpoints", "/webhooks/endpoints")
}

func choices(asked []string) (all []choice) {
	for _, name := range webhook.EventTypes() {
		all = append(all, choice{name, len(asked) == 0 || webhook.Subscribes(asked, name)})
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
		asked = []string{"*"} // future types too
	}
	registered, err := v.Commands.RegisterWebhookEndpoint(v.ctx, command.RegisterWebhookEndpoint{
		Caller: v.caller, Registration: webhook.Registration{
			URL: strings.TrimSpace(form.Get("url")), Events: asked, Description: form.Get("description"),
		},
	})
	if faults, ok := wrong(err); ok {
		for i := range faults {
			if faults[i].Field == "events" {
				faults[i].Message = "select at least one" // the command names all types, which the form offers
			}
		}
		again := endpointForm{
			URL: form.Get("url"), Description: form.Get("description"), Events: choices(asked), Wrong: faults,
		}
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
	filter := deliveryFilter(p)
	var list query.List[query.Delivery]
	status := http.StatusBadRequest
	if p.wrong == nil {
		status = http.StatusOK
		if list, err = v.Query.Deliveries(v.ctx, v.identity.Account, id, v.caller.ReadsLeads,
			filter, page); err != nil {
			return screen{}, missing(err, webhook.ErrNotFound)
		}
	}
	shown := endpointPage{
		Endpoint: endpoint, Deliveries: list.Items, MayWrite: v.identity.May("webhooks:write"), Secret: secret,
		Replay:    replay,
		Settings:  newSettingsForm(endpoint),
		MayReplay: v.identity.May("webhooks:write") && v.caller.ReadsLeads,
		parts:     p.parts(page, list.NextCursor),
		List:      p.filtered("state", "type"), States: query.DeliveryStates(), Types: query.DeliveryTypes(),
	}
	shown.List.Wrong = p.wrong
	shown.List.show("state", words)
	shown.List.show("type", words)
	at := "/webhooks/endpoints/" + endpoint.WebhookID
	calls := v.calls(v.get("webhooks:read", "This endpoint", at),
		v.get("webhooks:read", "Its deliveries", at+"/deliveries", "state", filter.State, "type", filter.Type))
	return screen{
		name: "webhook", title: "Webhook endpoint", status: status, data: shown, live: v.reads() && page.Cursor == "",
		calls: calls,
	}, nil
}

func deliveryFilter(p *params) query.DeliveryFilter {
	return query.DeliveryFilter{
		State: p.oneOf("state", query.DeliveryStates()...), Type: p.oneOf("type", query.DeliveryTypes()...),
	}
}

// deliveryPage is one delivery and its attempts.
type deliveryPage struct {
	query.Delivery
	MayWrite     bool
	HasResponses bool // responses are shown to users with leads:read
}

func (v *visit) delivery() (screen, error) {
	found, err := v.Query.Delivery(v.ctx, v.identity.Account, v.id("id"), v.id("delivery"), v.caller.ReadsLeads)
	if err != nil {
		return screen{}, missing(err, errNoDelivery)
	}
	shown := deliveryPage{found, v.identity.May("webhooks:write"), v.caller.ReadsLeads}
	one := v.get("webhooks:read", "This delivery",
		"/webhooks/endpoints/"+found.WebhookID+"/deliveries/"+found.DeliveryID)
	return screen{name: "delivery", title: "Delivery", data: shown, live: true, calls: v.calls(one)}, nil
}

// retryDelivery queues a delivery again. The endpoint and the delivery must be the account's.
func (v *visit) retryDelivery() (screen, error) {
	id := v.id("id")
	delivery, err := v.Query.Delivery(v.ctx, v.identity.Account, id, v.id("delivery"), v.caller.ReadsLeads)
	if err != nil {
		return screen{}, missing(err, errNoDelivery)
	}
	_, err = v.Commands.RetryDelivery(v.ctx, command.RetryDelivery{
		Caller: v.caller, WebhookID: id, DeliveryID: delivery.DeliveryID, Type: delivery.Type,
	})
	return screen{redirect: v.path("/webhooks/" + id + "/deliveries/" + delivery.DeliveryID)}, err
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
	_, err := v.Commands.TestWebhookEndpoint(v.ctx, command.TestWebhookEndpoint{
		Caller: v.caller, WebhookID: v.id("id"),
	})
	return v.toEndpoint(err)
}

// switchEndpoint turns an endpoint on or off.
func (v *visit) switchEndpoint() (screen, error) {
	enabled, err := v.switchForm()
	if err != nil {
		return screen{}, err
	}
	updated, err := v.Commands.UpdateWebhookEndpoint(v.ctx, command.UpdateWebhookEndpoint{
		Caller: v.caller, WebhookID: v.id("id"), Change: webhook.Change{Enabled: &enabled},
	})
	if err == nil {
		v.waitForViews(updated.Position, query.EndpointView)
	}
	return v.toEndpoint(err)
}

// replayEndpoint queues the deliveries of a span of time again.
func (v *visit) replayEndpoint() (screen, error) {
	form, err := v.form()
	if err != nil {
		return screen{}, err
	}
	p := &params{values: form}
	asked := replayForm{Since: p.text("since"), Until: p.text("until")}
	cmd := command.ReplayWebhookEndpoint{
		Caller: v.caller, WebhookID: v.id("id"), Since: p.moment("since"), Until: p.moment("until"),
	}
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
	position, err := v.Commands.DeleteWebhookEndpoint(v.ctx, command.DeleteWebhookEndpoint{
		Caller: v.caller, WebhookID: v.id("id"),
	})
	if err != nil {
		return screen{}, err
	}
	v.waitForViews(position, query.EndpointView)
	return screen{redirect: v.path("/webhooks")}, nil
}

func (v *visit) confirmSecret() (screen, error) {
	return v.confirmEndpoint("secret", "Rotate the secret of", "Rotate",
		"The new secret is shown once. Requests are also signed with the current secret for 24 hours, so that "+
			"receivers can switch.")
}

func (v *visit) confirmEndpointDeletion() (screen, error) {
	return v.confirmEndpoint("delete", "Delete", "Delete",
		"No more events are sent to it, queued deliveries are cancelled, and its secret is deleted. This "+
			"cannot be undone.")
}

func (v *visit) confirmEndpoint(action, question, verb, consequence string) (screen, error) {
	endpoint, err := v.Query.Endpoint(v.ctx, v.identity.Account, v.id("id"))
	if err != nil {
		return screen{}, missing(err, webhook.ErrNotFound)
	}
	at := v.path("/webhooks/" + endpoint.WebhookID)
	return screen{name: "confirm", title: question + " an endpoint", data: confirmation{
		Title: question + " an endpoint", Question: question + " the endpoint " + endpoint.URL + "?",
		Consequence: consequence, Verb: verb, Action: at + "/" + action, Back: at, Grave: action == "delete",
	}}, nil
}
