package command_test

import (
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/webhook"
)

// asked is one command that a test stops, or lets others come into.
type asked struct {
	name string
	with func(w *world) func(p process) error // prepares, and returns what is asked; its error is what the caller got
}

// shapes are arrivals, by what they mean to the leads of a new world.
var shapes = []struct{ name, body string }{
	{"new phone", `{"phone":"+919876500009"}`},
	{"new email", `{"email":"nine@example.com"}`},
	{"new phone and email", `{"phone":"+919876500009","email":"nine@example.com"}`},
	{"new phone, other new email", `{"phone":"+919876500009","email":"ten@example.com"}`},
	{"known phone, new email", `{"phone":"+919876500002","email":"nine@example.com"}`},
	{"known email, new phone", `{"phone":"+919876500009","email":"three@example.com","metadata":{"source":"website"}}`},
	{"known email, new phone, to be refused", `{"phone":"+919876500009","email":"three@example.com"}`},
	{"other known email, new phone", `{"phone":"+919876500009","email":"one@example.com","metadata":{"source":"google_ad"}}`},
	{"curated repeat", `{"phone":"+919876500001"}`},
	{"self-service repeat", `{"phone":"+919876500002","metadata":{"source":"website"}}`},
	{"of two leads, refused", `{"phone":"+919876500002","email":"three@example.com"}`},
	{"of two leads, self-service", `{"phone":"+919876500002","email":"three@example.com","metadata":{"source":"chatbot"}}`},
}

func captures(key string) []asked {
	var all []asked
	for _, shape := range shapes {
		all = append(all, asked{shape.name, func(w *world) func(process) error {
			return func(p process) error {
				return w.capture(p, shape.body, key).failure()
			}
		}})
	}
	return all
}

var createFirst = asked{"create the first token", func(w *world) func(process) error {
	return func(p process) error { _, err := p.CreateToken(w.t.Context(), w.newToken()); return err }
}}

var healing = asked{"heal", func(w *world) func(process) error {
	return func(p process) error { _, err := w.heal(p); return err }
}}

// others are the commands that are no captures.
var others = []asked{
	healing, createFirst,
	{"create a token", func(w *world) func(process) error {
		w.tokens(4)
		return func(p process) error { _, err := p.CreateToken(w.t.Context(), w.newToken()); return err }
	}},
	{"rotate a token", func(w *world) func(process) error {
		id := w.tokens(5)[2].ID
		return func(p process) error {
			_, err := p.RotateToken(w.t.Context(), command.RotateToken{Caller: w.asker(), TokenID: id})
			return err
		}
	}},
	{"delete a token", func(w *world) func(process) error {
		id := w.tokens(5)[2].ID
		return func(p process) error {
			_, err := p.DeleteToken(w.t.Context(), command.DeleteToken{Caller: w.asker(), TokenID: id})
			return err
		}
	}},
	{"register an endpoint", func(w *world) func(process) error {
		w.endpoints(webhook.MaxPerAccount - 1)
		return func(p process) error { _, err := p.RegisterWebhookEndpoint(w.t.Context(), w.newEndpoint()); return err }
	}},
	{"delete an endpoint", func(w *world) func(process) error {
		id := w.endpoints(webhook.MaxPerAccount)[0].ID
		return func(p process) error {
			_, err := p.DeleteWebhookEndpoint(w.t.Context(), command.DeleteWebhookEndpoint{Caller: w.asker(), WebhookID: id})
			return err
		}
	}},
	{"configure the account", func(w *world) func(process) error {
		return func(p process) error {
			_, _, err := p.ConfigureAccount(w.t.Context(), command.ConfigureAccount{Caller: w.asker(), AccountID: "acme",
				Settings: account.Settings{Features: []string{account.FeatureAPI}, Stages: []string{"one"}}})
			return err
		}
	}},
	{"update a lead", func(w *world) func(process) error {
		id := w.arrived[0].answer.Lead.ID
		return func(p process) error {
			_, err := p.UpdateLead(w.t.Context(), command.UpdateLead{Caller: w.asker(), LeadID: id, Body: members(`{"name":"Asha"}`)})
			return err
		}
	}},
}
