package httpapi

import (
	"errors"

	"github.com/go-chi/chi/v5"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/query"
)

var errNoDelivery = errors.New("no such delivery")

func (x *exchange) listDeliveries() (answer, error) {
	return part(x, webhook.ErrNotFound, x.Query.Deliveries, query.EndpointView, query.DeliveryQueue)
}

func (x *exchange) showDelivery() (answer, error) {
	id, err := x.ulidID(webhook.ErrNotFound)
	if err != nil {
		return answer{}, err
	}
	if err := x.waitFor(x.params(), query.EndpointView, query.DeliveryQueue); err != nil {
		return answer{}, err
	}
	return found(x.delivery(id))
}

// delivery is the one of an endpoint that the path names.
func (x *exchange) delivery(webhookID string) (query.Delivery, error) {
	if _, err := x.endpoint(webhookID); err != nil {
		return query.Delivery{}, err
	}
	delivery, err := surely(x, func() (query.Delivery, error) {
		return x.Query.Delivery(x.ctx, x.caller.Account, webhookID, chi.URLParam(x.r, "deliveryId"))
	}, query.DeliveryQueue)
	return delivery, missing(err, errNoDelivery)
}
