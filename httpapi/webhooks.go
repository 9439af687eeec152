package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/query"
)

// registeredEndpoint is the answer of registration. Only this one and that of a rotation show a secret.
type registeredEndpoint struct {
	query.Endpoint
	Secret string `json:"secret"`
}

func (ex *exchange) registerEndpoint() (answer, error) {
	body, err := ex.fields("url", "events", "description", "filter", "ordering", "rateLimit", "headers")
	if err != nil {
		return answer{}, err
	}
	registration := webhook.Registration{
		URL: body.text("url"), Events: body.texts("events"), Description: body.text("description"),
		Filter: body.text("filter"), Ordering: body.text("ordering"), Headers: body.mapping("headers"),
	}
	if rate := body.number("rateLimit"); rate != nil {
		registration.RateLimit = *rate
	}
	if body.wrong != nil {
		// Fields of the wrong type are empty here: only validate the others. Whether private targets are allowed is up
		// to the command.
		_, _, err := registration.Register(true)
		return answer{}, body.with(err)
	}
	registered, err := ex.Commands.RegisterWebhookEndpoint(ex.ctx, command.RegisterWebhookEndpoint{
		Caller: ex.caller, Registration: registration,
	})
	return answer{
		status: http.StatusCreated, position: registered.Position,
		body: envelope{Success: true, Data: registeredEndpoint{
			Secret:   registered.Secret,
			Endpoint: query.NewEndpoint(registered.ID, registered.Endpoint),
		}},
	}, err
}

var endpointFields = recordFields[query.Endpoint]("enabled")

// updateEndpoint changes the given settings; null counts as not given, and an empty object changes nothing.
func (ex *exchange) updateEndpoint() (answer, error) {
	id, body, err := ex.idAndFields(webhook.ErrNotFound, endpointFields...)
	if err != nil {
		return answer{}, err
	}
	body.someOf("url", "events", "description", "filter", "ordering", "rateLimit", "headers", "enabled")
	change := webhook.Change{
		URL: body.textOrNil("url"), Description: body.textOrNil("description"), Filter: body.textOrNil("filter"),
		Ordering: body.textOrNil("ordering"), RateLimit: body.number("rateLimit"), Enabled: body.boolean("enabled"),
	}
	if body.has("events") {
		change.Events = body.texts("events")
	}
	if body.has("headers") {
		change.Headers = body.mapping("headers")
	}
	if body.wrong != nil {
		return answer{}, body.wrong
	}
	updated, err := ex.Commands.UpdateWebhookEndpoint(ex.ctx, command.UpdateWebhookEndpoint{
		Caller: ex.caller, WebhookID: id, Change: change,
	})
	if err != nil {
		return answer{}, err
	}
	endpoint, err := ex.Query.EndpointAfter(ex.ctx, id, updated.Endpoint)
	return answer{
		position: updated.Position, body: envelope{Success: true, Data: endpoint, Warnings: updated.Warnings},
	}, err
}

// rotatedSecret is the answer of a rotation.
type rotatedSecret struct {
	WebhookID     string          `json:"webhookId"`
	Secret        string          `json:"secret"`
	PreviousUntil query.Timestamp `json:"previousUntil"` // the secret before signs, too, until then
}

func (ex *exchange) rotateEndpointSecret() (answer, error) {
	rotated, err := ex.Commands.RotateWebhookSecret(ex.ctx, command.RotateWebhookSecret{
		Caller: ex.caller, WebhookID: ex.pathID(),
	})
	return answer{
		position: rotated.Position,
		body: envelope{Success: true, Data: rotatedSecret{
			WebhookID: ex.pathID(), Secret: rotated.Secret,
			PreviousUntil: query.Timestamp(rotated.Rotated.PreviousUntil),
		}},
	}, err
}

func (ex *exchange) deleteEndpoint() (answer, error) {
	position, err := ex.Commands.DeleteWebhookEndpoint(ex.ctx, command.DeleteWebhookEndpoint{
		Caller: ex.caller, WebhookID: ex.pathID(),
	})
	return done("Webhook endpoint deleted", position, err)
}

func (ex *exchange) listEndpoints() (answer, error) {
	p := ex.params()
	return accountList(ex, p, func(page query.Page) (query.List[query.Endpoint], error) {
		return ex.Query.Endpoints(ex.ctx, ex.caller.Account, page)
	}, query.EndpointView)
}

func (ex *exchange) showEndpoint() (answer, error) {
	return one(ex, ex.params(), webhook.ErrNotFound, ex.Query.Endpoint, query.EndpointView)
}

func (ex *exchange) endpoint(id string) (query.Endpoint, error) {
	endpoint, err := withCatchUp(ex, func() (query.Endpoint, error) {
		return ex.Query.Endpoint(ex.ctx, ex.caller.Account, id)
	}, query.EndpointView)
	return endpoint, missing(err, webhook.ErrNotFound)
}

var errNoDelivery = errors.New("no such delivery")

func (ex *exchange) listDeliveries() (answer, error) {
	p := ex.params()
	filter := query.DeliveryFilter{
		State: p.oneOf("state", query.DeliveryStates()...), Type: p.oneOf("type", query.DeliveryTypes()...),
	}
	deliveries := func(
		ctx context.Context, account, webhookID string, page query.Page,
	) (query.List[query.Delivery], error) {
		return ex.Query.Deliveries(ctx, account, webhookID, ex.caller.ReadsLeads, filter, page)
	}
	return listOf(ex, p, webhook.ErrNotFound, deliveries, query.EndpointView, query.DeliveryQueue)
}

func (ex *exchange) showDelivery() (answer, error) {
	id, err := ex.ulidID(webhook.ErrNotFound)
	if err != nil {
		return answer{}, err
	}
	if err := ex.waitFor(ex.params(), query.EndpointView, query.DeliveryQueue); err != nil {
		return answer{}, err
	}
	return found(ex.delivery(id))
}

// delivery returns the delivery that the path names.
func (ex *exchange) delivery(webhookID string) (query.Delivery, error) {
	if _, err := ex.endpoint(webhookID); err != nil {
		return query.Delivery{}, err
	}
	delivery, err := withCatchUp(ex, func() (query.Delivery, error) {
		return ex.Query.Delivery(ex.ctx, ex.caller.Account, webhookID, ex.pathParam("deliveryId"), ex.caller.ReadsLeads)
	}, query.DeliveryQueue)
	return delivery, missing(err, errNoDelivery)
}

// acceptedSending answers a request to queue deliveries. They appear in the endpoint's list.
type acceptedSending struct {
	WebhookID  string          `json:"webhookId"`
	DeliveryID string          `json:"deliveryId,omitzero"` // of a test or a retry
	Since      query.Timestamp `json:"since,omitzero"`
	Until      query.Timestamp `json:"until,omitzero"`
	Generation int             `json:"generation,omitzero"` // of a replay: the endpoint's first is 1
}

// testEndpoint queues a webhook.test.
func (ex *exchange) testEndpoint() (answer, error) {
	id := ex.pathID()
	accepted, err := ex.Commands.TestWebhookEndpoint(ex.ctx, command.TestWebhookEndpoint{Caller: ex.caller, WebhookID: id})
	return sendingAnswer(accepted, acceptedSending{WebhookID: id, DeliveryID: accepted.DeliveryID}, err)
}

// retryDelivery queues a delivery again.
func (ex *exchange) retryDelivery() (answer, error) {
	id, err := ex.ulidID(webhook.ErrNotFound)
	if err != nil {
		return answer{}, err
	}
	delivery, err := ex.delivery(id)
	if err != nil {
		return answer{}, err
	}
	accepted, err := ex.Commands.RetryDelivery(ex.ctx, command.RetryDelivery{
		Caller: ex.caller, WebhookID: id, DeliveryID: delivery.DeliveryID, Type: delivery.Type,
	})
	return sendingAnswer(accepted, acceptedSending{WebhookID: id, DeliveryID: delivery.DeliveryID}, err)
}

// acceptedRetries is the answer to a request to retry failed deliveries.
type acceptedRetries struct {
	WebhookID string          `json:"webhookId"`
	Since     query.Timestamp `json:"since"`
	Queued    int             `json:"queued"`
	More      bool            `json:"more"` // failed since, and not queued by this request
}

// retryFailed queues deliveries again that have failed since a time.
func (ex *exchange) retryFailed() (answer, error) {
	id, body, err := ex.idAndFields(webhook.ErrNotFound, "since")
	if err != nil {
		return answer{}, err
	}
	since := body.time("since")
	if body.wrong != nil {
		return answer{}, body.wrong
	}
	if _, err := ex.endpoint(id); err != nil {
		return answer{}, err
	}
	ids, more, err := ex.Query.FailedDeliveries(ex.ctx, ex.caller.Account, id, since)
	if err != nil {
		return answer{}, missing(err, webhook.ErrNotFound)
	}
	accepted, err := ex.Commands.RetryFailedDeliveries(ex.ctx, command.RetryFailedDeliveries{
		Caller: ex.caller, WebhookID: id, Since: since, DeliveryIDs: ids,
	})
	return answer{status: http.StatusAccepted, position: accepted.Position,
		body: envelope{Success: true, Data: acceptedRetries{
			WebhookID: id, Since: query.Timestamp(since.UTC()), Queued: len(ids), More: more,
		}}}, err
}

// previewedEvents is the number of an account's last events on which a filter is tried.
const previewedEvents = 1000

// previewFilter tries a filter on the last events that the endpoint asks for.
func (ex *exchange) previewFilter() (answer, error) {
	id, body, err := ex.idAndFields(webhook.ErrNotFound, "filter", "since")
	if err != nil {
		return answer{}, err
	}
	filter, since := body.text("filter"), body.time("since")
	if filter == "" && body.wrong == nil {
		body.wrong.Add("filter", "is required")
	}
	if body.wrong != nil {
		return answer{}, body.wrong
	}
	endpoint, err := ex.endpoint(id)
	if err != nil {
		return answer{}, err
	}
	preview, err := ex.tryFilter(endpoint, filter, since)
	return answer{body: envelope{Success: true, Data: preview}}, err
}

// tryFilter previews a filter for an endpoint. The errors are field.Errors, on filter, command.ErrLeadsHidden and those
// of reading.
func (ex *exchange) tryFilter(
	endpoint query.Endpoint, filter string, since time.Time,
) (preview query.FilterPreview, err error) {
	if _, err := webhook.CompileFilter(filter); err != nil {
		return preview, bad("filter", err.Error())
	}
	if webhook.SubscribesToLeads(endpoint.Events) && !ex.caller.ReadsLeads {
		return preview, command.ErrLeadsHidden
	}
	ctx, cancel := context.WithTimeout(ex.ctx, requestTimeout) // a page of the console has no timeout of its own
	defer cancel()
	types := webhook.SentTypes(endpoint.Events)
	events, err := ex.Query.RecentEvents(ctx, ex.caller.Account, types, since, previewedEvents)
	if err != nil {
		return preview, err
	}
	turn := func(ctx context.Context) (func(), error) { return ex.Commands.Turns().Acquire(ctx, ex.caller.Account) }
	if preview, err = ex.PreviewFilter(ctx, events, endpoint.Events, filter, turn); len(preview.Sample) > 0 {
		ex.Commands.Search(ex.ctx, ex.caller, "events")
	}
	return preview, err
}

// replayEndpoint queues the events of a span of time again.
func (ex *exchange) replayEndpoint() (answer, error) {
	id, body, err := ex.idAndFields(webhook.ErrNotFound, "since", "until")
	if err != nil {
		return answer{}, err
	}
	since, until := body.time("since"), body.time("until")
	if body.wrong != nil {
		return answer{}, body.wrong
	}
	accepted, err := ex.Commands.ReplayWebhookEndpoint(ex.ctx, command.ReplayWebhookEndpoint{
		Caller: ex.caller, WebhookID: id, Since: since, Until: until,
	})
	replayed, _ := accepted.Fact.(event.WebhookReplayed) // nil with an error
	return sendingAnswer(accepted, acceptedSending{
		WebhookID: id, Since: query.Timestamp(replayed.Since), Until: query.Timestamp(replayed.Until),
		Generation: replayed.Generation,
	}, err)
}

func sendingAnswer(accepted command.SendingAccepted, data acceptedSending, err error) (answer, error) {
	return answer{
		status: http.StatusAccepted, position: accepted.Position, body: envelope{Success: true, Data: data},
	}, err
}
