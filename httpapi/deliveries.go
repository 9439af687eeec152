package httpapi

import (
	"errors"

	"github.com/go-chi/chi/v5"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/query"
)

var errNoDelivery = errors.New("no such delivery")

func (x *exchange) listDeliveries() (answer, error) {
	return part(x, webhook.ErrNotFound, x.Query.Deliveries, query.EndpointView)
}

func (x *exchange) showDelivery() (answer, error) {
	id, err := x.ulidID(webhook.ErrNotFound)
	if err != nil {
		return answer{}, err
	}
	if err := x.waitFor(x.params(), query.EndpointView); err != nil {
		return answer{}, err
	}
	if _, err := x.Query.Endpoint(x.ctx, x.caller.Account, id); err != nil {
		return answer{}, missing(err, webhook.ErrNotFound)
	}
	delivery, err := x.Query.Delivery(x.ctx, x.caller.Account, id, chi.URLParam(x.r, "deliveryId"))
	if err != nil {
		return answer{}, missing(err, errNoDelivery)
	}
	return found(delivery)
}
