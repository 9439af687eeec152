package httpapi

import "net/http"

// Component is a part that the service needs, as /readyz tells of it. Anybody may read that, so the detail holds
// nothing of how the parts are reached.
type Component struct {
	Name   string `json:"name"`
	Ready  bool   `json:"ready"`
	Detail string `json:"detail,omitzero"`
}

type healthStatus struct {
	Status string `json:"status"`
}

// health says that the process answers, whatever else is down.
func (x *exchange) health() (answer, error) { return found(healthStatus{"alive"}, nil) }

type readyStatus struct {
	Status     string      `json:"status"`
	Components []Component `json:"components"`
}

// readiness says whether requests make sense now.
func (x *exchange) readiness() (answer, error) {
	ready := readyStatus{Status: "ready"}
	if x.Ready != nil {
		ready.Components = x.Ready(x.ctx)
	}
	for _, component := range ready.Components {
		if !component.Ready {
			ready.Status = "not ready"
			x.w.Header().Set("Retry-After", "2")
			return answer{
				status: http.StatusServiceUnavailable, body: envelope{Message: unavailable, Data: ready},
			}, nil
		}
	}
	return found(ready, nil)
}
