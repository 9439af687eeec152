package console

import (
	"net/http"

	"github.com/leadlog/leadlog/httpapi/quota"
)

// pages are all of them, below the console's path. A GET page answers HEAD too.
func pages() []page { return append(exports(), shown()...) }

// shown are the pages that people look at, and what their forms do.
func shown() []page {
	const (
		get, post = http.MethodGet, http.MethodPost

		leads, leadsWrite       = "leads:read", "leads:write"
		tokens, tokensWrite     = "tokens:read", "tokens:write"
		webhooks, webhooksWrite = "webhooks:read", "webhooks:write"
		audit                   = "audit:read"
	)
	return []page{
		{get, "/sign-in", "", true, quota.Free, (*visit).signInForm},
		{post, "/sign-in", "", true, quota.Free, (*visit).signIn},
		{post, "/sign-out", "", true, quota.Free, (*visit).signOut},

		{get, "/", "", false, quota.Read, (*visit).overview},

		{get, "/leads", leads, false, quota.Read, (*visit).leads},
		{get, "/leads/{id}", leads, false, quota.Stream, (*visit).lead},

		{post, "/leads/{id}/reveal", leads, false, quota.StreamWrite, (*visit).reveal},

		{get, "/sources", leads, false, quota.Read, (*visit).sources},

		{get, "/audit", audit, false, quota.Read, (*visit).audit},
		{get, "/audit/reveals", audit, false, quota.Read, (*visit).reveals},

		{get, "/tokens", tokens, false, quota.Read, (*visit).tokens},
		{post, "/tokens", tokensWrite, false, quota.Write, (*visit).createToken},
		{get, "/tokens/{id}/rotate", tokensWrite, false, quota.Read, (*visit).confirmRotation},
		{post, "/tokens/{id}/rotate", tokensWrite, false, quota.Write, (*visit).rotateToken},
		{get, "/tokens/{id}/delete", tokensWrite, false, quota.Read, (*visit).confirmDeletion},
		{post, "/tokens/{id}/delete", tokensWrite, false, quota.Write, (*visit).deleteToken},

		{get, "/webhooks", webhooks, false, quota.Read, (*visit).webhooks},
		{post, "/webhooks", webhooksWrite, false, quota.Write, (*visit).registerEndpoint},
		{get, "/webhooks/{id}", webhooks, false, quota.Read, (*visit).webhook},
		{post, "/webhooks/{id}/test", webhooksWrite, false, quota.Write, (*visit).testEndpoint},
		{post, "/webhooks/{id}/switch", webhooksWrite, false, quota.Write, (*visit).switchEndpoint},
		{post, "/webhooks/{id}/replay", webhooksWrite + " " + leads, false, quota.StreamWrite, (*visit).replayEndpoint},
		{get, "/webhooks/{id}/secret", webhooksWrite, false, quota.Read, (*visit).confirmSecret},
		{post, "/webhooks/{id}/secret", webhooksWrite, false, quota.Write, (*visit).rotateSecret},
		{get, "/webhooks/{id}/delete", webhooksWrite, false, quota.Read, (*visit).confirmEndpointDeletion},
		{post, "/webhooks/{id}/delete", webhooksWrite, false, quota.Write, (*visit).deleteEndpoint},
		{get, "/webhooks/{id}/deliveries/{delivery}", webhooks, false, quota.Read, (*visit).delivery},
		{post, "/webhooks/{id}/deliveries/{delivery}/retry", webhooksWrite, false, quota.Write, (*visit).retryDelivery},

		{get, "/projections", "", false, quota.Read, (*visit).projections},
		{get, "/usage", leads, false, quota.Read, (*visit).usage},
	}
}
