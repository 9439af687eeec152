package httpapi

import (
	"net/http"
	"slices"
	"strings"
)

// cors lets pages of the listed origins capture leads and record visitors' activity. No other route can be used from another
// origin, nor can these when the list is empty. Neither * nor null, which any page can have as its origin, can be listed.
func (a *api) cors(next http.Handler) http.Handler {
	allowed := slices.DeleteFunc(slices.Clone(a.CORSOrigins), func(o string) bool { return o == "*" || o == "null" })
	if len(allowed) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route := a.openRoute(r.URL.Path)
		if route == "" {
			next.ServeHTTP(w, r)
			return
		}
		header := w.Header()
		header.Add("Vary", "Origin")
		origin, method := r.Header.Get("Origin"), r.Method
		preflight := method == http.MethodOptions
		if preflight {
			method = r.Header.Get("Access-Control-Request-Method")
		}
		if method != http.MethodPost || !slices.Contains(allowed, origin) { // leads are listed under the path of a capture
			next.ServeHTTP(w, r)
			return
		}
		header.Set("Access-Control-Allow-Origin", origin)
		if !preflight {
			header.Set("Access-Control-Expose-Headers",
				requestIDHeader+", "+positionHeader+", "+replayedHeader+", Retry-After, RateLimit, RateLimit-Policy")
			next.ServeHTTP(w, r)
			return
		}
		header.Set("Access-Control-Allow-Methods", http.MethodPost)
		header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Traceparent, "+idempotencyHeader+", "+requestIDHeader)
		header.Set("Access-Control-Max-Age", "600") // seconds
		w.(*record).route = route
		w.WriteHeader(http.StatusNoContent)
	})
}

// openRoute is the route of a path, if it is one that pages may be let to.
func (a *api) openRoute(path string) string {
	path, ours := strings.CutPrefix(path, a.BasePath)
	before, after, _ := strings.Cut(activityPath, "{id}")
	switch {
	case !ours:
	case path == capturePath:
		return capturePath
	case strings.HasPrefix(path, before) && strings.HasSuffix(path, after):
		return activityPath
	}
	return ""
}
