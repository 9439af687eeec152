package command_test

import (
	"errors"
	"fmt"
	"slices"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
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

// releases are of contacts that arrivals may come with meanwhile.
var releases = []asked{release("phone", 1, "+919876500001"), release("email", 1, "one@example.com"), release("phone", 2, "+919876500002")}

// release is of a value of the nth lead, which has an email address more by then. Of a value, or a lead, that is gone already it
// is refused, which is as good as done, unless it was this very request that released it.
func release(kind string, nth int, value string) asked {
	return asked{fmt.Sprintf("release %s %s", kind, value), func(w *world) func(process) error {
		of := w.arrived[nth-1].answer.Lead
		w.capture(w.process(nil), fmt.Sprintf(`{"phone":%q,"email":"more%d@example.com","metadata":{"source":"chatbot"}}`, of.Phone, nth), "")
		return func(p process) error {
			caller := w.asker()
			_, err := p.ReleaseContact(w.t.Context(), command.ReleaseContact{
				Caller: caller, LeadID: of.ID, Body: members(fmt.Sprintf(`{%q:%q}`, kind, value)),
			})
			own := func(r eventstore.Recorded) bool {
				return r.Metadata.RequestID == caller.RequestID && r.Type == event.LeadReleased{}.EventType()
			}
			_, gone := errors.AsType[*lead.DepartedError](err)
			gone = gone || errors.Is(err, lead.ErrNotFound)
			if (gone || errors.As(err, &field.Errors{})) && !slices.ContainsFunc(w.events(), own) {
				return nil
			}
			return err
		}
	}}
}

// joins are of leads that arrivals may come for meanwhile, in both directions and in a circle.
var joins = []asked{join(2, 1), join(1, 2), join(3, 1), join(2, 3)}

// join is of the nth lead into another. What somebody else joined elsewhere, or erased, meanwhile is refused, which is as good as done,
// unless it was this very request that let it depart.
func join(from, into int) asked {
	return asked{fmt.Sprintf("join %d into %d", from, into), func(w *world) func(process) error {
		leaves, stays := w.arrived[from-1].answer.Lead.ID, w.arrived[into-1].answer.Lead.ID
		return func(p process) error {
			caller := w.asker()
			_, err := p.JoinLeads(w.t.Context(), command.JoinLeads{
				Caller: caller, LeadID: stays, Body: members(fmt.Sprintf(`{"from":%q}`, leaves)),
			})
			own := func(r eventstore.Recorded) bool {
				return r.Metadata.RequestID == caller.RequestID && r.Type == event.LeadDeparted{}.EventType()
			}
			if errors.Is(err, lead.ErrNotFound) { // also when it departed just before: then it was erased with the other
				return nil
			}
			if _, gone := errors.AsType[*lead.DepartedError](err); gone && !slices.ContainsFunc(w.events(), own) {
				return nil
			}
			return err
		}
	}}
}

// erasures are of leads that arrivals may come for, and that others may be joined with, meanwhile.
var erasures = []asked{erase(1), erase(2), erase(3)}

// erase is of the nth lead. One that has departed is its heir's to be erased with.
func erase(nth int) asked {
	return asked{fmt.Sprint("erase ", nth), func(w *world) func(process) error {
		id := w.arrived[nth-1].answer.Lead.ID
		return func(p process) error {
			_, err := p.EraseLead(w.t.Context(), command.EraseLead{Caller: w.asker(), LeadID: id})
			if _, gone := errors.AsType[*lead.DepartedError](err); gone {
				return nil
			}
			return err
		}
	}}
}

// others are the commands that are no captures.
var others = append([]asked{
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
}, slices.Concat(releases, joins, erasures)...)
