package httpapi

// Scopes are what a JWT can be limited to. One without a scope claim has all of them but admin.
func Scopes() []string {
	return []string{
		"leads:read", "leads:write", "tokens:read", "tokens:write", "webhooks:read", "webhooks:write", "audit:read", adminScope,
	}
}
