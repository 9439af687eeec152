package console

import "net/http"

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
		{get, "/sign-in", "", true, (*visit).signInForm},
		{post, "/sign-in", "", true, (*visit).signIn},
		{post, "/sign-out", "", true, (*visit).signOut},

		{get, "/", "", false, (*visit).overview},

		{get, "/leads", leads, false, (*visit).leads},
		{get, "/leads/{id}", leads, false, (*visit).lead},

		{post, "/leads/{id}/reveal", leads, false, (*visit).reveal},

		{get, "/sources", leads, false, (*visit).sources},

		{get, "/audit", audit, false, (*visit).audit},
		{get, "/audit/reveals", audit, false, (*visit).reveals},

		{get, "/tokens", tokens, false, (*visit).tokens},
		{post, "/tokens", tokensWrite, false, (*visit).createToken},
		{get, "/tokens/{id}/rotate", tokensWrite, false, (*visit).confirmRotation},
		{post, "/tokens/{id}/rotate", tokensWrite, false, (*visit).rotateToken},
		{get, "/tokens/{id}/delete", tokensWrite, false, (*visit).confirmDeletion},
		{post, "/tokens/{id}/delete", tokensWrite, false, (*visit).deleteToken},

		{get, "/webhooks", webhooks, false, (*visit).webhooks},
		{post, "/webhooks", webhooksWrite, false, (*visit).registerEndpoint},
		{get, "/webhooks/{id}", webhooks, false, (*visit).webhook},
		{post, "/webhooks/{id}/test", webhooksWrite, false, (*visit).testEndpoint},
		{post, "/webhooks/{id}/switch", webhooksWrite, false, (*visit).switchEndpoint},
		{post, "/webhooks/{id}/replay", webhooksWrite, false, (*visit).replayEndpoint},
		{get, "/webhooks/{id}/secret", webhooksWrite, false, (*visit).confirmSecret},
		{post, "/webhooks/{id}/secret", webhooksWrite, false, (*visit).rotateSecret},
		{get, "/webhooks/{id}/delete", webhooksWrite, false, (*visit).confirmEndpointDeletion},
		{post, "/webhooks/{id}/delete", webhooksWrite, false, (*visit).deleteEndpoint},
		{get, "/webhooks/{id}/deliveries/{delivery}", webhooks, false, (*visit).delivery},
		{post, "/webhooks/{id}/deliveries/{delivery}/retry", webhooksWrite, false, (*visit).retryDelivery},

		{get, "/projections", "", false, (*visit).projections},
		{get, "/usage", leads, false, (*visit).usage},
	}
}
