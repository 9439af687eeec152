package httpapi

import (
	"net/http"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/query"
)

// registeredEndpoint is what registration answers: the only place where a secret is shown.
type registeredEndpoint struct {
	query.Endpoint
	Secret string `json:"secret"`
}

func (x *exchange) registerEndpoint() (answer, error) {
	body, err := x.fields()
	if err != nil {
		return answer{}, err
	}
	registration := webhook.Registration{
		URL: body.text("url"), Events: body.texts("events"), Description: body.text("description"),
	}
	if body.wrong != nil {
		// The command would take an empty field for a good one. Only its judgement is asked for, and whether
		// private targets are allowed is its own to know.
		_, err := registration.Register(true)
		return answer{}, body.with(err)
	}
	registered, err := x.Commands.RegisterWebhookEndpoint(x.ctx, command.RegisterWebhookEndpoint{
		Caller: x.caller, Registration: registration,
	})
	if err != nil {
		return answer{}, err
	}
	return answer{
		status: http.StatusCreated, position: registered.Position, secret: true,
		body: envelope{Success: true, Data: registeredEndpoint{
			Secret: registered.Secret,
			Endpoint: query.Endpoint{
				WebhookID: registered.ID, URL: registered.Endpoint.URL, Events: registered.Endpoint.Events,
				Description: registered.Endpoint.Description, State: "enabled",
				CreatedAt: query.Timestamp(registered.Endpoint.UpdatedAt),
			},
		}},
	}, nil
}

func (x *exchange) deleteEndpoint() (answer, error) {
	position, err := x.Commands.DeleteWebhookEndpoint(x.ctx, command.DeleteWebhookEndpoint{
		Caller: x.caller, WebhookID: x.pathID(),
	})
	if err != nil {
		return answer{}, err
	}
	return answer{position: position, body: envelope{Success: true, Message: "Webhook endpoint deleted"}}, nil
}

func (x *exchange) listEndpoints() (answer, error) {
	p := x.params()
	page := p.page()
	if err := x.waitFor(p, query.EndpointView); err != nil {
		return answer{}, err
	}
	return listed(x.Query.Endpoints(x.ctx, x.caller.Account, page))
}

func (x *exchange) showEndpoint() (answer, error) {
	id, err := x.ulidID(webhook.ErrNotFound)
	if err != nil {
		return answer{}, err
	}
	if err := x.waitFor(x.params(), query.EndpointView); err != nil {
		return answer{}, err
	}
	endpoint, err := x.Query.Endpoint(x.ctx, x.caller.Account, id)
	if err != nil {
		return answer{}, missing(err, webhook.ErrNotFound)
	}
	return found(endpoint)
}
