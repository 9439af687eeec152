package console

import (
	"net/http"

	"github.com/leadlog/leadlog/httpapi/quota"
)

// page is one page, one action of a form, or one export.
type page struct {
	method  string
	pattern string
	scope   string // required scopes, separated by spaces; empty: any session; public: no session
	kind    quota.Kind
	show    func(*visit) (screen, error)
}

// adminScope is the scope of the settings of accounts.
const adminScope = "admin"

// public is the scope of pages that need no session.
const public = "public"

// pages returns every page, below the console's path. A GET page also answers HEAD.
func pages() []page {
	const (
		get, post = http.MethodGet, http.MethodPost

		leads, leadsWrite       = "leads:read", "leads:write"
		tokens, tokensWrite     = "tokens:read", "tokens:write"
		webhooks, webhooksWrite = "webhooks:read", "webhooks:write"
		intakes, intakesWrite   = "intakes:read", "intakes:write"
		audit                   = "audit:read"
	)
	all := []page{
		{get, "/sign-in", public, quota.Free, (*visit).signInForm},
		{post, "/sign-in", public, quota.Free, (*visit).signIn},
		{get, "/sign-in/provider", public, quota.Free, (*visit).beginProvider},
		{get, "/sign-in/callback", public, quota.Free, (*visit).endProvider},
		{post, "/sign-out", public, quota.Free, (*visit).signOut},

		{get, "/", "", quota.Read, masking((*visit).overview)},
		{post, "/test-lead", leads + " " + leadsWrite, quota.Write, (*visit).sendTestLead},
		{get, "/demo", leads + " " + leadsWrite + " " + intakesWrite, quota.Read, (*visit).confirmDemo},
		{post, "/demo", leads + " " + leadsWrite + " " + intakesWrite, quota.Write, (*visit).addDemo},
		{get, "/demo/remove", leads + " " + leadsWrite + " " + intakesWrite, quota.Read, (*visit).confirmDemoRemoval},
		{post, "/demo/remove", leads + " " + leadsWrite + " " + intakesWrite, quota.Write, (*visit).removeDemo},

		{get, "/leads", leads, quota.Read, masking((*visit).leads)},
		{post, "/leads/reveal", leads, quota.Write, unmasking((*visit).leads)},
		{get, "/leads/{id}", leads, quota.Stream, masking((*visit).showLead)},
		{post, "/leads/{id}/reveal", leads, quota.StreamWrite, unmasking((*visit).showLead)},
		{post, "/leads/{id}/stage", leads + " " + leadsWrite, quota.StreamWrite, (*visit).changeStage},
		{get, "/leads/{id}/edit", leads + " " + leadsWrite, quota.StreamWrite, revealing((*visit).editLead)},
		{post, "/leads/{id}/edit", leads + " " + leadsWrite, quota.StreamWrite, revealing((*visit).saveLead)},
		{post, "/leads/{id}/release", leads + " " + leadsWrite, quota.StreamWrite, revealing((*visit).releaseContact)},
		{post, "/leads/{id}/join/preview", leads + " " + leadsWrite, quota.StreamWrite, revealing((*visit).previewJoin)},
		{post, "/leads/{id}/join", leads + " " + leadsWrite, quota.StreamWrite, (*visit).joinLeads},
		{post, "/leads/{id}/erase", leads + " " + leadsWrite, quota.StreamWrite, revealing((*visit).eraseLead)},
		{get, "/leads/{id}/split", leads + " " + leadsWrite, quota.Stream, masking((*visit).showSplit)},
		{post, "/leads/{id}/split", leads + " " + leadsWrite, quota.StreamWrite, (*visit).splitLead},
		{
			post, "/leads/{id}/split/reveal", leads + " " + leadsWrite, quota.StreamWrite,
			unmasking((*visit).showSplit),
		},

		{post, "/leads/{id}/consents", leadsWrite, quota.Write, (*visit).recordConsent},
		{get, "/leads/{id}/events/{event}/receipt.txt", leads, quota.Stream, (*visit).receipt},
		{get, "/leads/{id}/events/{event}/evidence.json", leads, quota.StreamWrite, revealing((*visit).evidence)},

		{get, "/pipeline", leads, quota.Stream, (*visit).pipeline},
		{get, "/sources", leads, quota.Read, (*visit).sources},
		{get, "/sources/attribution", leads, quota.Stream, (*visit).attribution},
		{get, "/sources/spend", leads, quota.Read, (*visit).spend},
		{post, "/sources/spend", leads + " " + leadsWrite, quota.StreamWrite, (*visit).setSpend},
		{post, "/sources/spend/file", leads + " " + leadsWrite, quota.StreamWrite, (*visit).uploadSpend},

		{get, "/audit", audit, quota.Read, (*visit).audit},
		{get, "/audit/trail", audit, quota.Read, (*visit).trail},

		{get, "/tokens", tokens, quota.Read, (*visit).tokens},
		{post, "/tokens", tokensWrite + " " + leadsWrite, quota.Write, (*visit).createToken},
		{get, "/tokens/{id}/rotate", tokensWrite + " " + leadsWrite, quota.Read, (*visit).confirmRotation},
		{post, "/tokens/{id}/rotate", tokensWrite + " " + leadsWrite, quota.Write, (*visit).rotateToken},
		{get, "/tokens/{id}/delete", tokensWrite, quota.Read, (*visit).confirmDeletion},
		{post, "/tokens/{id}/delete", tokensWrite, quota.Write, (*visit).deleteToken},

		{get, "/webhooks", webhooks, quota.Read, (*visit).webhooks},
		{post, "/webhooks", webhooksWrite, quota.Write, (*visit).registerEndpoint},
		{get, "/webhooks/{id}", webhooks, quota.Read, (*visit).webhook},
		{post, "/webhooks/{id}/test", webhooksWrite, quota.Write, (*visit).testEndpoint},
		{post, "/webhooks/{id}/switch", webhooksWrite, quota.Write, (*visit).switchEndpoint},
		{post, "/webhooks/{id}/settings", webhooksWrite, quota.Write, (*visit).changeEndpoint},
		{post, "/webhooks/{id}/filter", webhooksWrite, quota.Write, (*visit).tryFilter},
		{post, "/webhooks/{id}/replay", webhooksWrite + " " + leads, quota.StreamWrite, (*visit).replayEndpoint},
		{get, "/webhooks/{id}/secret", webhooksWrite, quota.Read, (*visit).confirmSecret},
		{post, "/webhooks/{id}/secret", webhooksWrite, quota.Write, (*visit).rotateSecret},
		{get, "/webhooks/{id}/delete", webhooksWrite, quota.Read, (*visit).confirmEndpointDeletion},
		{post, "/webhooks/{id}/delete", webhooksWrite, quota.Write, (*visit).deleteEndpoint},
		{get, "/webhooks/{id}/deliveries/{delivery}", webhooks, quota.Read, (*visit).delivery},
		{post, "/webhooks/{id}/retry-failed", webhooksWrite, quota.StreamWrite, (*visit).retryFailed},
		{post, "/webhooks/{id}/deliveries/{delivery}/retry", webhooksWrite, quota.Write, (*visit).retryDelivery},

		{get, "/intakes", intakes, quota.Read, (*visit).intakes},
		{get, "/intakes/new", intakesWrite, quota.Read, (*visit).newIntake},
		{post, "/intakes", intakesWrite, quota.Write, (*visit).createIntake},
		{get, "/intakes/{id}", intakes, quota.Read, (*visit).intake},
		{get, "/intakes/{id}/edit", intakes + " " + intakesWrite, quota.Read, (*visit).editIntake},
		{post, "/intakes/{id}/edit", intakesWrite, quota.Write, (*visit).changeIntake},
		{post, "/intakes/{id}/switch", intakesWrite, quota.Write, (*visit).switchIntake},
		{post, "/intakes/{id}/preview", intakes + " " + intakesWrite, quota.Write, (*visit).previewIntake},
		{get, "/intakes/{id}/secret", intakesWrite, quota.Read, (*visit).confirmIntakeSecret},
		{post, "/intakes/{id}/secret", intakesWrite, quota.Write, (*visit).rotateIntakeSecret},
		{get, "/intakes/{id}/delete", intakesWrite, quota.Read, (*visit).confirmIntakeDeletion},
		{post, "/intakes/{id}/delete", intakesWrite, quota.Write, (*visit).deleteIntake},

		{get, "/arrivals", leads, quota.Read, (*visit).arrivals},
		{post, "/arrivals/resubmit", leadsWrite, quota.Write, (*visit).resubmitArrivals},
		{get, "/arrivals/{id}", leads, quota.Read, (*visit).arrival},
		{post, "/arrivals/{id}/reveal", leads, quota.Write, (*visit).revealArrival},
		{post, "/arrivals/{id}/resubmit", leads + " " + leadsWrite, quota.Write, (*visit).resubmitArrival},
		{get, "/arrivals/{id}/discard", leads + " " + leadsWrite, quota.Read, (*visit).confirmDiscard},
		{post, "/arrivals/{id}/discard", leadsWrite, quota.Write, (*visit).discardArrival},

		{get, "/imports", leadsWrite, quota.Read, (*visit).imports},
		{post, "/imports", leadsWrite, quota.Write, (*visit).uploadImport},
		{get, "/imports/{id}", leadsWrite, quota.Read, (*visit).importOne},
		{post, "/imports/{id}", leadsWrite, quota.Write, (*visit).beginImport},
		{post, "/imports/{id}/discard", leadsWrite, quota.Write, (*visit).discardImport},
		{get, "/imports/{id}/outcome.csv", leadsWrite, quota.Read, (*visit).importOutcome},
		{get, "/imports/{id}/undo", leadsWrite, quota.Read, (*visit).confirmUndoImport},
		{post, "/imports/{id}/undo", leadsWrite, quota.Write, (*visit).undoImport},

		{get, "/settings", adminScope, quota.Read, (*visit).settingsPage},
		{post, "/settings", adminScope, quota.Write, (*visit).changeSettings},
		{post, "/settings/retention", adminScope, quota.Write, (*visit).changeRetention},
		{post, "/settings/preview", adminScope, quota.Write, (*visit).previewSettings},

		{get, "/projections", "", quota.Read, (*visit).projections},
		{get, "/usage", leads, quota.Read, (*visit).usage},
	}
	// An export is at the address of its page, with .csv, .ndjson or .parquet. One of personal data is recorded, and so
	// counts as a write.
	for _, e := range []page{
		{get, "/leads", leads, quota.Write, (*visit).exportLeads},
		{get, "/sources", leads, quota.Read, (*visit).exportReport},
		{get, "/sources/attribution", leads, quota.Read, (*visit).exportAttribution},
		{get, "/sources/spend", leads, quota.Read, (*visit).exportSpend},
		{get, "/sources/history", leads, quota.Write, (*visit).exportSources},
		{get, "/tokens", tokens, quota.Read, (*visit).exportTokens},
		{get, "/audit", audit, quota.Read, (*visit).exportAudit},
		{get, "/audit/trail", audit, quota.Read, (*visit).exportTrail},
		{get, "/webhooks", webhooks, quota.Read, (*visit).exportEndpoints},
		{get, "/webhooks/{id}/deliveries", webhooks, quota.Write, (*visit).exportDeliveries},
		{get, "/projections", "", quota.Read, (*visit).exportProjections},
		{get, "/usage", leads, quota.Read, (*visit).exportUsage},
	} {
		for _, extension := range []string{".csv", ".ndjson", ".parquet"} {
			all = append(all, page{e.method, e.pattern + extension, e.scope, e.kind, exporting(e.show)})
		}
	}
	return all
}

// masking shows a page masked, or unmasked if the account's maskInConsole is off.
func masking(show func(*visit, masker) (screen, error)) func(*visit) (screen, error) {
	return func(v *visit) (screen, error) {
		mask, err := v.masker()
		if err != nil {
			return screen{}, err
		}
		return v.reveal(show(v, mask))
	}
}

// unmasking shows a page unmasked.
func unmasking(show func(*visit, masker) (screen, error)) func(*visit) (screen, error) {
	return revealing(func(v *visit) (screen, error) { return show(v, masker{revealed: true}) })
}

// revealing is for a page that shows personal data of leads, by default of the one in its path.
func revealing(show func(*visit) (screen, error)) func(*visit) (screen, error) {
	return func(v *visit) (screen, error) {
		shown, err := show(v)
		if shown.reveals == nil && shown.redirect == "" {
			shown.reveals = []string{v.id("id")}
		}
		return v.reveal(shown, err)
	}
}

// masker masks as the account has set it.
func (v *visit) masker() (masker, error) {
	settings, err := v.Directory.Account(v.ctx, v.identity.Account)
	return masker{revealed: settings.State.UnmaskedInConsole}, err
}

// reveal records on the log that a page shows leads unmasked, before any of it is sent. A page that is kept up to date
// is recorded once for each lead.
func (v *visit) reveal(shown screen, err error) (screen, error) {
	if err != nil || v.r.Method == http.MethodHead { // it shows nothing
		return shown, err
	}
	var unseen []string
	for _, id := range shown.reveals {
		if !v.revealed[id] {
			unseen = append(unseen, id)
		}
	}
	if err := v.Commands.RevealLeads(v.ctx, v.caller, unseen...); err != nil {
		return screen{}, err
	}
	for _, id := range unseen {
		v.revealed[id] = true
	}
	return shown, nil
}

// exporting counts an export among those in flight and sends it.
func exporting(show func(*visit) (screen, error)) func(*visit) (screen, error) {
	return func(v *visit) (screen, error) {
		leave, err := v.Gate.Export(v.identity.Account)
		if err != nil {
			return screen{}, err
		}
		defer leave()
		shown, err := show(v)
		if err != nil {
			return screen{}, err
		}
		return screen{sent: true}, shown.send()
	}
}
