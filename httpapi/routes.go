package httpapi

import (
	"net/http"

	"github.com/go-chi/chi/v5"
)

// route is a method and path, who may use it, and the function that answers it.
type route struct {
	method  string
	pattern string
	access  access
	handle  func(*exchange) (answer, error)
}

// Routes that pages of other origins may be allowed to call.
const (
	capturePath  = "/api/v1/crm/leads"
	activityPath = "/api/v1/crm/visitors/{id}/activity"
)

// routes are all routes. A GET route answers HEAD too.
func (a *api) routes() []route {
	const (
		get, put, post, del = http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete
		patch               = http.MethodPatch

		leads    = capturePath
		tokens   = "/api/v1/crm/tokens"
		webhooks = "/webhooks/endpoints"
		accounts = "/api/v1/admin/accounts"
	)
	all := []route{
		{post, leads, capturing, (*exchange).captureLead},
		{post, leads + "/batch", capturingMany, (*exchange).captureBatch},
		{get, leads, scoped("leads:read"), (*exchange).listLeads},
		{get, leads + "/{id}", scoped("leads:read"), (*exchange).showLead},
		{patch, leads + "/{id}", scoped("leads:write"), (*exchange).updateLead},
		{del, leads + "/{id}", scoped("leads:write"), (*exchange).eraseLead},
		{post, leads + "/{id}/contacts/release", scoped("leads:write"), (*exchange).releaseContact},
		{post, leads + "/{id}/join", scoped("leads:write"), (*exchange).joinLeads},
		{get, leads + "/{id}/sources", scoped("leads:read"), (*exchange).listLeadSources},
		{get, leads + "/{id}/events", scoped("leads:read"), (*exchange).listLeadEvents},
		{get, leads + "/{id}/activity", scoped("leads:read"), (*exchange).listLeadActivity},
		{get, leads + "/refused", scoped("leads:read"), (*exchange).listRefused},
		{post, activityPath, tracking, (*exchange).recordActivity},

		{get, "/api/v1/crm/sources/history", scoped("leads:read"), (*exchange).sourceHistory},
		{get, "/api/v1/crm/sources/report", scoped("leads:read"), (*exchange).sourceReport},

		{post, tokens, scoped("tokens:write"), (*exchange).createToken},
		{get, tokens, scoped("tokens:read"), (*exchange).listTokens},
		{get, tokens + "/{id}", scoped("tokens:read"), (*exchange).showToken},
		{post, tokens + "/{id}/rotate", scoped("tokens:write"), (*exchange).rotateToken},
		{del, tokens + "/{id}", scoped("tokens:write"), (*exchange).deleteToken},
		{get, tokens + "/{id}/events", scoped("audit:read"), (*exchange).listTokenEvents},
		{get, "/api/v1/crm/audit/tokens", scoped("audit:read"), (*exchange).auditTokens},
		{get, "/api/v1/crm/audit/tree", scoped("audit:read"), (*exchange).showTreeHead},
		{get, "/api/v1/crm/audit/proof", scoped("audit:read"), (*exchange).proveTokenEvent},
		{get, "/api/v1/crm/audit/consistency", scoped("audit:read"), (*exchange).proveTree},

		{post, webhooks, scoped("webhooks:write"), (*exchange).registerEndpoint},
		{get, webhooks, scoped("webhooks:read"), (*exchange).listEndpoints},
		{get, webhooks + "/{id}", scoped("webhooks:read"), (*exchange).showEndpoint},
		{patch, webhooks + "/{id}", scoped("webhooks:write"), (*exchange).updateEndpoint},
		{del, webhooks + "/{id}", scoped("webhooks:write"), (*exchange).deleteEndpoint},
		{post, webhooks + "/{id}/secret/rotate", scoped("webhooks:write"), (*exchange).rotateEndpointSecret},
		{post, webhooks + "/{id}/test", scoped("webhooks:write"), (*exchange).testEndpoint},
		{post, webhooks + "/{id}/replay", scoped("webhooks:write"), (*exchange).replayEndpoint},
		{get, webhooks + "/{id}/deliveries", scoped("webhooks:read"), (*exchange).listDeliveries},
		{get, webhooks + "/{id}/deliveries/{deliveryId}", scoped("webhooks:read"), (*exchange).showDelivery},
		{post, webhooks + "/{id}/deliveries/{deliveryId}/retry", scoped("webhooks:write"), (*exchange).retryDelivery},

		{put, accounts + "/{id}", scoped(adminScope), (*exchange).configureAccount},
		{get, accounts + "/{id}", scoped(adminScope), (*exchange).showAccount},

		{get, "/healthz", anyone, (*exchange).health},
		{get, "/readyz", anyone, (*exchange).showReadiness},
		{get, "/openapi.json", anyone, (*exchange).showDocument},
		{get, "/docs", anyone, (*exchange).showPage},
	}
	if a.Metrics != nil {
		all = append(all, route{get, "/metrics", anyone, exposed(a.Metrics)})
	}
	return all
}

// methodsOf returns the methods of a path, for the Allow header. Routes with an id in their path count only if there is none for
// exactly this path.
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
