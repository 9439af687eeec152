package console

import (
	"net/http"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/query"
)

// Every form of an endpoint's page leads back to it.
func (v *visit) toEndpoint(err error) (screen, error) {
	return screen{goTo: v.path("/webhooks/" + v.id("id"))}, err
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
		v.settle(updated.Position, query.EndpointView)
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
	v.settle(position, query.EndpointView)
	return screen{goTo: v.path("/webhooks")}, nil
}

func (v *visit) confirmSecret() (screen, error) {
	return v.confirmEndpoint("secret", "Rotate the secret of", "Rotate", "A new secret is shown to you once. The one that is in use signs too for 24 hours, so that receivers can change over.")
}

func (v *visit) confirmEndpointDeletion() (screen, error) {
	return v.confirmEndpoint("delete", "Delete", "Delete", "Nothing more is sent to it, what is queued is cancelled, and its secret is destroyed. This cannot be taken back.")
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
