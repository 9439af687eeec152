package projectiontest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// History holds the ids of the subjects that WriteHistory wrote to the log, by account.
type History struct {
	Accounts                       []string
	Leads, Tokens, Endpoints, Gone map[string][]string // Gone: deleted endpoints
	Intakes                        map[string][]string // also deleted ones
	random                         *rand.Rand
	intakes                        *rand.Rand // only of intakes, so that the rest of the history stays the same
	world                          *World
}

// WriteHistory appends a history of so many events to the log, the same for the same seed: accounts, leads with
// repeated arrivals, tokens, endpoints, and claims that no view selects.
func (w *World) WriteHistory(t testing.TB, seed uint64, events int) *History {
	t.Helper()
	h := &History{
		Accounts: []string{"acme", "globex", "initech"}, world: w, random: rand.New(rand.NewPCG(seed, 1)),
		Leads: map[string][]string{}, Tokens: map[string][]string{}, Endpoints: map[string][]string{},
		Gone: map[string][]string{}, Intakes: map[string][]string{}, intakes: rand.New(rand.NewPCG(seed, 2)),
	}
	for range events {
		account := h.Accounts[h.random.IntN(len(h.Accounts))]
		switch n := h.random.IntN(100); {
		case n < 5:
			h.configure(t, account)
		case n < 40 || len(h.Leads[account]) == 0:
			h.createLead(t, account)
		case n < 42 && len(h.Leads[account]) > 1:
			h.joinLeads(t, account)
		case n < 70:
			h.mergeLead(t, account)
		case n < 90:
			h.token(t, account, n)
		case n < 94:
			h.endpoint(t, account)
		case n < 96:
			h.activity(t, account)
		case n < 97:
			for range 4 {
				h.arrival(t, account)
			}
		case n < 98:
			w.Append(t, account, event.RefusedStream(w.NewID()), event.LeadRefused{
				Source: pick(h, sources...), Code: "DUPLICATE_LEAD_SOURCE", LeadID: h.Leads[account][0],
			})
			w.Append(t, account, event.RecordStream(w.NewID()), event.DataRevealed{
				LeadID: h.Leads[account][0], What: "lead",
			})
		default:
			h.intake(t, account)
			w.Append(t, account, event.ClaimPrefix+w.NewID(), event.ClaimTaken{Kind: "phone", Holder: w.NewID()})
		}
	}
	for i, account := range h.Accounts {
		w.Append(t, account, event.SpendStream(account, "2026-01"), event.SpendSet{Rows: []event.SpendRow{
			{Day: "1999-12-31", SpendKey: event.SpendKey{UTMCampaign: "größe"}, Amount: "1.5"},
			{Day: "2026-01-31", SpendKey: event.SpendKey{Source: sources[i], UTMMedium: "cpc"}, Amount: "0"},
		}}, event.SpendSet{Rows: []event.SpendRow{
			{Day: "1999-12-31", SpendKey: event.SpendKey{UTMCampaign: "größe"}, Amount: "99999999999.9999"},
		}})
	}
	return h
}

func pick[T any](h *History, from ...T) T { return from[h.random.IntN(len(from))] }

func (h *History) configure(t testing.TB, account string) {
	facts := []event.Data{event.AccountConfigured{
		Name: pick(h, "", "A name"), Features: pick(h, nil, []string{"crm_api"}, []string{"crm_api", "x"}),
		Stages: pick(h, []string{"new", "won"}, []string{"Neu, \"frisch\"", "{won}"}), Region: pick(h, "IN", "DE"),
		Currency: "EUR", RateLimit: pick(h, nil, new(0.0), new(2.5)), RateBurst: pick(h, nil, new(7)),
		TokensSeeLeads: pick(h, nil, new(true), new(false)), VisitorDays: pick(h, 0, 30),
		Quarantine: pick(h, false, true), QuarantineDays: pick(h, 0, 90),
		WonStages:     pick(h, nil, []string{"won"}, []string{"{won}"}),
		RetentionDays: pick(h, 0, 60), KeepStages: pick(h, nil, []string{}, []string{"won"}),
		StoragePerDay:   []*int{nil, new(0), new(1 << 40)}[len(h.Leads[account])%3],
		IgnoredContacts: pick(h, nil, []string{"*@test.example", "+919999999999"}),
		SharedAfter:     pick(h, nil, new(0), new(3)),
		MaskInConsole:   []*bool{nil, new(true), new(false)}[len(h.Leads[account])%3],
	}}
	if leads := len(h.Leads[account]); leads%2 == 1 {
		facts = append(facts, event.JWTsRevoked{NotBefore: Start.Add(time.Duration(leads) * time.Second)})
	}
	h.world.Append(t, account, event.AccountStream(account), facts...)
}

var sources = []string{"api", "website", "whatsapp", "facebook_ad", "webhook"}

// odd returns custom fields that a faulty store would change.
func (h *History) odd() map[string]jsontext.Value {
	return pick(h, nil, map[string]jsontext.Value{
		"number": jsontext.Value(pick(h, `1.0`, `1e5`, `1E-300`, `-0`, `12345678901234567890.10`)),
		"object": jsontext.Value(`{"b":1,"a":[true,null,{}]}`),
		"text":   jsontext.Value(pick(h, `"a\nb"`, `"<&>\u2028"`, `"ünï \"q\""`, `"100%_\\"`)),
	})
}

func (h *History) createLead(t testing.TB, account string) {
	id := h.world.NewID()
	n := h.random.IntN(1e9)
	created := event.LeadCreated{
		ContactUID: h.world.NewID(), LeadFields: event.LeadFields{
			Name: fmt.Sprintf("Person %d", n), Phone: fmt.Sprintf("+91%010d", n), Status: pick(h, "new", "Neu", "won"),
			Temperature: pick(h, "hot", "warm", "cold"), CustomFields: h.odd(),
		}, NameDerived: n%3 == 0,
		Source: pick(h, sources...), Metadata: h.odd(), IP: "198.51.100.1", UserAgent: "browser",
		VisitorID: pick(h, "", "visitor"), Changed: pick(h, nil, []string{"name", "phone"}),
	}
	created.Visitor, created.Campaign = visitorOf(account, created.VisitorID), h.campaign()
	if n%2 == 0 {
		created.Email = fmt.Sprintf("p%d@example.com", n)
		created.OpportunityID, created.OpportunityValue = h.world.NewID(), pick(h, "0", "1200.50")
	}
	h.world.Append(t, account, event.LeadStream(id), created)
	h.Leads[account] = append(h.Leads[account], id)
}

func (h *History) mergeLead(t testing.TB, account string) {
	merged := event.LeadMerged{
		Source: pick(h, sources...), LeadFields: event.LeadFields{
			Name: pick(h, "", "Renamed"), Email: pick(h, "", "renamed@example.com"),
			Status: pick(h, "", "lost"), CustomFields: h.odd(),
		}, Metadata: h.odd(), VisitorID: pick(h, "", "another"),
		Changed: pick(h, nil, []string{"status"}),
	}
	id := pick(h, h.Leads[account]...)
	merged.NewSource = !h.fold(t, id).HasSource(merged.Source)
	merged.Visitor, merged.Campaign = visitorOf(account, merged.VisitorID), h.campaign()
	facts := []event.Data{merged}
	if merged.Name != "" && merged.Status != "" { // an address that the lead may not have had
		facts = append(facts, event.LeadReleased{
			Field: "email", Email: "renamed@example.com", Current: "old@example.com", Name: "old",
		})
	}
	if merged.Status != "" {
		facts = append(facts, event.LeadConsented{
			Purposes: event.Purposes{
				Consents: map[string]bool{"whatsapp": merged.Name == ""}, ChangedConsents: []string{"whatsapp"},
			},
			Given: jsontext.Value(fmt.Sprintf(`{"purpose":"whatsapp","granted":%t}`, merged.Name == "")),
		})
	}
	h.world.Append(t, account, event.LeadStream(id), facts...)
}

func (h *History) campaign() event.Campaign {
	return event.Campaign{
		UTMSource: pick(h, "", "Google"), UTMMedium: pick(h, "", "cpc", "email"),
		UTMCampaign: pick(h, "", "diwali", "Größe"), UTMID: pick(h, "", "7"),
	}
}

// visitorOf returns a visitor's stream.
func visitorOf(account, id string) string {
	if id == "" {
		return ""
	}
	return event.VisitorStream(account, id)
}

// joinLeads joins two leads of an account, with shared and with different sources, visitors and fields.
func (h *History) joinLeads(t testing.TB, account string) {
	leads := h.Leads[account]
	i := h.random.IntN(len(leads))
	from := h.fold(t, leads[i])
	others := append(leads[:i:i], leads[i+1:]...)
	into := pick(h, others...)
	source, joined, err := h.fold(t, into).Join(account, from)
	if err != nil { // the joined lead would exceed a limit
		return
	}
	h.Leads[account] = others
	h.world.Append(t, account, event.LeadStream(from.ID), source)
	h.world.Append(t, account, event.LeadStream(into), joined)
}

func (h *History) fold(t testing.TB, id string) lead.State {
	state, _, err := eventstore.Load(t.Context(), h.world.Store, event.LeadStream(id), lead.Evolve)
	require.NoError(t, err)
	return state
}

func (h *History) token(t testing.TB, account string, n int) {
	expires := Start.Add(time.Duration(h.random.IntN(1000)) * time.Hour)
	tokens := h.Tokens[account]
	switch {
	case len(tokens) == 0 || n < 78:
		id := h.world.NewID()
		h.world.Append(t, account, event.TokenStream(id), event.TokenCreated{
			Name: "CI", Prefix: "leadlog_" + id[:4], Hash: []byte("hash-of-" + id), Days: 30, ExpiresAt: expires,
			Slot: 1,
		})
		h.Tokens[account] = append(tokens, id)
	case n < 82:
		at := Start.Add(time.Duration(h.random.IntN(100)) * time.Hour)
		h.world.Append(t, account, event.TokenUseStream(pick(h, tokens...), at), pick[event.Data](h,
			event.TokenUsed{}, event.TokenRefused{Reason: "rotated", Prefix: "leadlog_old"}))
	case n < 87:
		h.world.Append(t, account, event.TokenStream(pick(h, tokens...)), event.TokenRotated{
			Prefix: "leadlog_new", Hash: []byte("hash-rotated"), ExpiresAt: expires, PreviousExpiresAt: Start,
		})
	case n == 87:
		h.world.Append(t, account, event.TokenStream(pick(h, tokens...)), event.TokenExpiring{ExpiresAt: expires})
	default:
		h.world.Append(t, account, event.TokenStream(pick(h, tokens...)), event.TokenDeleted{})
	}
}

// arrival writes an arrival with its outcome, and sometimes a later change.
func (h *History) arrival(t testing.TB, account string) {
	stream := event.ArrivalStream(h.world.NewID())
	at := h.world.NewEvent().At
	intakeID := pick(h, append([]string{"", "intake of " + account}, h.Intakes[account]...)...)
	outcomes := []event.Data{
		event.ArrivalCaptured{LeadID: h.Leads[account][0], EventID: h.world.NewID(), Merged: true},
		event.ArrivalRefused{Code: "DUPLICATE_LEAD_EMAIL", LeadID: h.Leads[account][0], Other: h.world.NewID()},
		event.ArrivalQuarantined{
			IntakeID: intakeID, ReceivedAt: at, ExpiresAt: at.AddDate(0, 0, 30),
			Reasons: []event.ArrivalReason{{Field: "phone", Message: "must be a \"number\""}, {
				Field: "email", Message: "must be valid",
			}},
		},
		event.ArrivalDiscarded{Reason: event.DiscardedTest}, event.ArrivalDiscarded{Reason: event.DiscardedByOwner},
		event.ArrivalDiscarded{Reason: event.DiscardedErased}, event.ArrivalExpired{}, event.ArrivalResubmitted{},
		event.ArrivalResubmitted{Fetch: true},
		event.ArrivalFetched{Raw: event.ArrivalRaw{Body: "fetched"}},
	}
	facts := []event.Data{event.ArrivalReceived{
		IntakeID: intakeID, TokenID: pick(h, "", h.world.NewID()), ReceivedAt: at,
		ExpiresAt: at.AddDate(0, 0, 30),
		Raw:       event.ArrivalRaw{Body: "posted"},
	}}
	for range h.random.IntN(3) {
		facts = append(facts, pick(h, outcomes...))
	}
	h.world.Append(t, account, stream, facts...)
	for range h.random.IntN(3) {
		h.world.Append(t, account, stream, pick(h, outcomes...))
	}
}

func (h *History) activity(t testing.TB, account string) {
	visitor, touch := pick(h, "visitor", "another"), pick(h, false, true)
	campaign := event.Campaign{}
	if touch {
		campaign = h.campaign()
	}
	h.world.Append(t, account, event.VisitorStream(account, visitor), event.VisitorActed{
		VisitorID: visitor, Kind: pick(h, "page_view", "custom"), URL: pick(h, "", "https://example.com/?a=1&b=<2>"),
		Title: pick(h, "", "Größe"), Referrer: pick(h, "", "https://example.org/"),
		At: Start.Add(time.Duration(h.random.IntN(1000)) * time.Millisecond), Properties: h.odd(),
		Touch: touch, Campaign: campaign,
	})
}

func (h *History) endpoint(t testing.TB, account string) {
	if live := h.Endpoints[account]; len(live) > 0 && h.random.IntN(3) == 0 {
		h.world.Append(t, account, event.WebhookStream(live[0]), event.WebhookDeleted{})
		h.Endpoints[account], h.Gone[account] = live[1:], append(h.Gone[account], live[0])
		return
	}
	id := h.world.NewID()
	h.world.Append(t, account, event.WebhookStream(id), event.WebhookRegistered{
		WebhookSettings: event.WebhookSettings{
			URL:         "https://example.com/" + id,
			Events:      pick(h, []string{"*"}, []string{"lead.*"}, []string{"lead.created", "lead.merged"}),
			Description: pick(h, "", "Ours"), Ordering: pick(h, "", "lead"), RateLimit: pick(h, 0, 2.5),
		},
		Slot: 1,
	})
	h.Endpoints[account] = append(h.Endpoints[account], id)
	if h.random.IntN(2) == 0 {
		h.world.Append(t, account, event.WebhookStream(pick(h, h.Endpoints[account]...)), pick[event.Data](h,
			event.WebhookUpdated{
				WebhookSettings: event.WebhookSettings{
					URL: "https://example.com/moved", Events: []string{"lead.merged"},
					Description: pick(h, "", "Moved"), Filter: pick(h, "", "type == 'lead.merged'"),
					Ordering: pick(h, "", "endpoint"), HeaderNames: pick(h, nil, []string{"X-Shop"}),
				},
				Changed: []string{"url"},
			},
			event.WebhookDisabled{Reason: "failing"}, event.WebhookDisabled{Reason: "owner"}, event.WebhookEnabled{},
			event.WebhookRotated{PreviousUntil: Start}, event.WebhookTested{},
			event.WebhookReplayed{Since: Start, Until: Start.Add(time.Hour), Generation: 1},
			event.WebhookReplayEnded{Generation: 1},
		))
	}
}

func (h *History) intake(t testing.TB, account string) {
	random := h.random
	defer func() { h.random = random }()
	h.random = h.intakes
	settings := event.IntakeSettings{
		Name: pick(h, "Site", "Größe <2>"), Kind: pick(h, "form", "webhook"), Source: pick(h, "website", "webhook"),
		Enabled: pick(h, true, true, false), Origins: pick(h, nil, []string{"https://example.com"}),
		Redirect: pick(h, "", "https://example.com/?a=1&b=<2>"), Honeypot: pick(h, "", "url"),
		Challenge: pick(h, "", "turnstile"), RateLimit: pick(h, nil, new(0.0), new(2.5)),
		ExpectEvery: pick(h, "", "1m", "36h0m0.5s"),
		Mapping:     pick(h, nil, map[string]string{"name": `body.first + " " + body.last`, "email": "body.mail"}),
		Signature: pick(h, nil, &event.IntakeSignature{
			Header: "X-Signature", Algorithm: "sha256", Encoding: "hex", Scheme: "hmac",
		}),
		GraphURL: pick(h, "", "https://graph.example.com"),
	}
	id := h.world.NewID()
	if live := h.Intakes[account]; len(live) > 0 && h.random.IntN(3) > 0 {
		h.world.Append(t, account, event.IntakeStream(live[len(live)-1]), pick[event.Data](h,
			event.IntakeChanged{
				IntakeSettings: settings, Changed: []string{"name"},
			}, event.IntakeChanged{IntakeSettings: settings, Changed: []string{"enabled", "secret"}},
			event.IntakeRotated{}, event.IntakeSilent{Since: Start},
			event.IntakeResumed{ArrivedAt: Start.Add(time.Hour)}, event.IntakeDeleted{},
			event.IntakeFailing{Since: Start, ArrivalID: id, Error: "phone or email is required"},
			event.IntakeRecovered{CapturedAt: Start.Add(time.Hour)},
		))
		return
	}
	h.world.Append(t, account, event.IntakeStream(id), event.IntakeCreated{IntakeSettings: settings, Slot: 1})
	h.Intakes[account] = append(h.Intakes[account], id)
}
