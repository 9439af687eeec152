package httpapi

import "net/http"

// Trace begins to follow a request. It returns the request with a context that carries the trace, the trace as a W3C
// traceparent, which goes into the metadata of whatever the request appends, and what to call when it is answered.
type Trace func(*http.Request) (followed *http.Request, traceParent string, end func(Traced))

// Traced is what a trace may hold of a request: as the access log, nothing of persons and no secret.
type Traced struct {
	Method, Route, RequestID, Account string
	Status                            int
}

// follow begins to follow a request, if anybody wants to.
func (a *api) follow(r *http.Request, note *record) (_ *http.Request, end func()) {
	if a.Trace == nil {
		return r, func() {}
	}
	followed, traceParent, done := a.Trace(r)
	note.trace = traceParent
	return followed, func() {
		done(Traced{methodLabel(r.Method), note.route, note.requestID, note.account, note.status})
	}
}

// traceID is the part of a traceparent that all of a trace shares.
func traceID(traceParent string) string {
	if parts := traceParentForm.FindStringSubmatch(traceParent); parts != nil {
		return parts[1]
	}
	return ""
}
