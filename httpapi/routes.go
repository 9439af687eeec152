package httpapi

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/leadlog/leadlog/httpapi/quota"
)

// route is a method and path, its authorization, its kind for the account's quotas, and the function that answers it.
type route struct {
	method  string
	pattern string
	access  access
	kind    quota.Kind
	handle  func(*exchange) (answer, error)
}

// Routes that pages of other origins may be allowed to call.
const (
	capturePath  = "/api/v1/crm/leads"
	visitorPath  = "/api/v1/crm/visitors/{id}"
	activityPath = visitorPath + "/activity"
)

// scriptPath is beside the addresses of intakes, which the script derives from its own.
const scriptPath = "/in/leadlog.js"

// routes are all routes. A GET route answers HEAD too.
func (a *api) routes() []route {
	const (
		get, put, post, del = http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete
		patch, options      = http.MethodPatch, http.MethodOptions

		leads    = capturePath
		arrivals = "/api/v1/crm/arrivals"
		tokens   = "/api/v1/crm/tokens"
		webhooks = "/webhooks/endpoints"
		intakes  = "/api/v1/crm/intakes"
		accounts = "/api/v1/admin/accounts"
	)
	all := []route{
		{post, leads, capturing, quota.Capture, (*exchange).captureLead},
		{post, leads + "/batch", capturing, quota.Batch, (*exchange).captureBatch},
		{get, leads, scoped("leads:read"), quota.Read, searching("leads", (*exchange).listLeads)},
		{get, leads + "/{id}", scoped("leads:read"), quota.Read, revealing((*exchange).showLead)},
		{patch, leads + "/{id}", scoped("leads:write"), quota.Write, (*exchange).updateLead},
		{del, leads + "/{id}", scoped("leads:write"), quota.Write, (*exchange).eraseLead},
		{post, leads + "/{id}/contacts/release", scoped("leads:write"), quota.Write, (*exchange).releaseContact},
		{post, leads + "/{id}/join", scoped("leads:write"), quota.Write, (*exchange).joinLeads},
		{post, leads + "/{id}/split", scoped("leads:write"), quota.Write, (*exchange).splitLead},
		{get, leads + "/{id}/consents", scoped("leads:read"), quota.Stream, revealing((*exchange).listConsents)},
		{post, leads + "/{id}/consents", scoped("leads:write"), quota.Write, (*exchange).recordConsents},
		{get, leads + "/{id}/sources", scoped("leads:read"), quota.Read, revealing((*exchange).listLeadSources)},
		{get, leads + "/{id}/export", scoped("leads:read"), quota.Stream, revealing((*exchange).exportLead)},
		{get, leads + "/{id}/events", scoped("leads:read"), quota.Stream, revealing((*exchange).listLeadEvents)},
		{get, leads + "/{id}/events/{eventId}/receipt", verifying, quota.Stream, (*exchange).showReceipt},
		{get, leads + "/{id}/events/{eventId}/evidence", verifying, quota.Stream, revealing((*exchange).showEvidence)},
		{get, leads + "/{id}/erasure-certificate", certifying, quota.Stream, (*exchange).showCertificate},
		{get, leads + "/{id}/activity", scoped("leads:read"), quota.Read, revealing((*exchange).listLeadActivity)},
		{get, leads + "/refused", scoped("leads:read"), quota.Read, (*exchange).listRefused},
		{get, arrivals, scoped("leads:read"), quota.Read, (*exchange).listArrivals},
		{get, arrivals + "/{id}", scoped("leads:read"), quota.Stream, (*exchange).showArrival},
		{del, arrivals + "/{id}", scoped("leads:write"), quota.Write, (*exchange).discardArrival},
		{post, arrivals + "/{id}/resubmit", scoped("leads:write"), quota.Write, (*exchange).resubmitArrival},
		{post, arrivals + "/resubmit", scoped("leads:write"), quota.Write, (*exchange).resubmitArrivals},
		{post, activityPath, capturing, quota.Activity, (*exchange).recordActivity},
		{del, visitorPath, scoped("leads:write"), quota.Write, (*exchange).deleteVisitor},

		{get, "/api/v1/crm/events", scoped("leads:read"), quota.Read, (*exchange).listEvents},

		{
			get, "/api/v1/crm/sources/history", scoped("leads:read"), quota.Read,
			searching("sources", (*exchange).sourceHistory),
		},
		{get, "/api/v1/crm/touches", scoped("leads:read"), quota.Read, searching("touches", (*exchange).touches)},
		{get, "/api/v1/crm/sources/report", scoped("leads:read"), quota.Read, (*exchange).sourceReport},
		{get, "/api/v1/crm/attribution", scoped("leads:read"), quota.Stream, (*exchange).attribution},
		{get, "/api/v1/crm/spend", scoped("leads:read"), quota.Read, (*exchange).listSpend},
		{put, "/api/v1/crm/spend", scoped("leads:write"), quota.Write, (*exchange).setSpend},
		{get, "/api/v1/crm/pipeline/funnel", scoped("leads:read"), quota.Stream, (*exchange).funnel},
		{get, "/api/v1/crm/pipeline/arrivals", scoped("leads:read"), quota.Stream, (*exchange).pipelineArrivals},
		{get, "/api/v1/crm/pipeline/time-to-won", scoped("leads:read"), quota.Stream, (*exchange).timeToWon},
		{get, "/api/v1/crm/retention", scoped("leads:read"), quota.Stream, (*exchange).showRetention},
		{get, "/api/v1/crm/usage", scoped("leads:read"), quota.Read, (*exchange).listUsage},

		{post, tokens, scoped("tokens:write", "leads:write"), quota.Write, (*exchange).createToken},
		{get, tokens, scoped("tokens:read"), quota.Read, (*exchange).listTokens},
		{get, tokens + "/{id}", scoped("tokens:read"), quota.Read, (*exchange).showToken},
		{
			post, tokens + "/{id}/rotate", scoped("tokens:write", "leads:write"), quota.Write,
			withoutFields((*exchange).rotateToken),
		},
		{del, tokens + "/{id}", scoped("tokens:write"), quota.Write, (*exchange).deleteToken},
		{get, tokens + "/{id}/events", scoped("audit:read"), quota.Read, (*exchange).listTokenEvents},
		{get, "/api/v1/crm/audit/events", scoped("audit:read"), quota.Read, (*exchange).auditTrail},
		{get, "/api/v1/crm/audit/tokens", scoped("audit:read"), quota.Read, (*exchange).auditTokens},
		{get, "/api/v1/crm/audit/tree", scoped("audit:read"), quota.Read, (*exchange).showTreeHead},
		{get, "/api/v1/crm/audit/proof", scoped("audit:read"), quota.Read, (*exchange).proveTokenEvent},
		{get, "/api/v1/crm/audit/consistency", scoped("audit:read"), quota.Read, (*exchange).proveTree},
		{get, checkpointPath, public, quota.Free, (*exchange).showCheckpoint},
		{get, tilePath, public, quota.Free, (*exchange).showTile}, // the number of a tile has slashes

		{post, webhooks, scoped("webhooks:write"), quota.Write, (*exchange).registerEndpoint},
		{get, webhooks, scoped("webhooks:read"), quota.Read, (*exchange).listEndpoints},
		{get, webhooks + "/{id}", scoped("webhooks:read"), quota.Read, (*exchange).showEndpoint},
		{patch, webhooks + "/{id}", scoped("webhooks:write"), quota.Write, (*exchange).updateEndpoint},
		{del, webhooks + "/{id}", scoped("webhooks:write"), quota.Write, (*exchange).deleteEndpoint},
		{
			post, webhooks + "/{id}/secret/rotate", scoped("webhooks:write"), quota.Write,
			withoutFields((*exchange).rotateEndpointSecret),
		},
		{post, webhooks + "/{id}/test", scoped("webhooks:write"), quota.Write, withoutFields((*exchange).testEndpoint)},
		{
			post, webhooks + "/{id}/replay", scoped("webhooks:write", "leads:read"), quota.StreamWrite,
			(*exchange).replayEndpoint,
		},
		{post, webhooks + "/{id}/filter/preview", scoped("webhooks:write"), quota.Write, (*exchange).previewFilter},
		{post, webhooks + "/{id}/retry-failed", scoped("webhooks:write"), quota.StreamWrite, (*exchange).retryFailed},
		{get, webhooks + "/{id}/deliveries", scoped("webhooks:read"), quota.Read, (*exchange).listDeliveries},
		{
			get, webhooks + "/{id}/deliveries/{deliveryId}", scoped("webhooks:read"), quota.Read,
			(*exchange).showDelivery,
		},
		{
			post, webhooks + "/{id}/deliveries/{deliveryId}/retry", scoped("webhooks:write"), quota.Write,
			withoutFields((*exchange).retryDelivery),
		},

		{post, intakes, scoped("intakes:write"), quota.Write, (*exchange).createIntake},
		{get, intakes, scoped("intakes:read"), quota.Read, (*exchange).listIntakes},
		{get, intakes + "/{id}", scoped("intakes:read"), quota.Read, (*exchange).showIntake},
		{patch, intakes + "/{id}", scoped("intakes:write"), quota.Write, (*exchange).changeIntake},
		{del, intakes + "/{id}", scoped("intakes:write"), quota.Write, (*exchange).deleteIntake},
		{post, intakes + "/{id}/preview", scoped("intakes:write"), quota.Write, (*exchange).previewArrival},
		{post, intakes + "/{id}/secret/rotate", scoped("intakes:write"), quota.Write, (*exchange).rotateIntakeSecret},

		{put, accounts + "/{id}", scoped(adminScope), quota.Write, (*exchange).configureAccount},
		{get, accounts + "/{id}", scoped(adminScope), quota.Read, (*exchange).showAccount},

		{get, scriptPath, public, quota.Free, (*exchange).showScript},
		{post, arrivalPath, arriving, quota.Arrival, (*exchange).receiveArrival},
		{get, arrivalPath, arriving, quota.Arrival, (*exchange).receiveGet},
		{options, arrivalPath, arriving, quota.Arrival, (*exchange).answerPreflight},
		{post, pageViewPath, arriving, quota.PageView, (*exchange).recordPageView},
		{options, pageViewPath, arriving, quota.Arrival, (*exchange).answerPreflight},

		{get, "/healthz", public, quota.Free, (*exchange).health},
		{get, "/readyz", public, quota.Free, (*exchange).showReadiness},
		{get, "/openapi.json", public, quota.Free, (*exchange).showDocument},
		{get, "/docs", public, quota.Free, (*exchange).showPage},
	}
	if a.Metrics != nil {
		all = append(all, route{get, "/metrics", public, quota.Free, exposed(a.Metrics)})
	}
	return all
}

// methodsOf returns the methods of a path, for the Allow header. Routes with an id in their path count only if there is
// none for exactly this path.
func (a *api) methodsOf(path string) []string {
	var allowed, literal []string
	for _, method := range []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	} {
		switch a.router.Find(chi.NewRouteContext(), method, path) {
		case "":
		case path:
			literal = append(literal, method)
		default:
			allowed = append(allowed, method)
		}
	}
	if len(literal) > 0 {
		return literal
	}
	return allowed
}
