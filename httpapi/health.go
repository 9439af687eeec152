package httpapi

import "net/http"

// Component is a part that the service needs, as /readyz shows it. Anybody may read this, so the detail must not contain addresses.
type Component struct {
	Name   string `json:"name"`
	Ready  bool   `json:"ready"`
	Detail string `json:"detail,omitzero"`
}

type healthStatus struct {
	Status string `json:"status"`
}

// health answers that the process is alive, whatever else is down.
func (x *exchange) health() (answer, error) { return found(healthStatus{"alive"}, nil) }

type readyStatus struct {
	Status     string      `json:"status"`
	Components []Component `json:"components"`
}

// showReadiness answers whether the service can do its work. One check of the database answers all concurrent requests, because
// anybody may send them.
func (x *exchange) showReadiness() (answer, error) {
	ready := readyStatus{Status: "ready"}
	if x.Ready != nil {
		components, _, _ := x.readiness.Do("", func() (any, error) { return x.Ready(x.ctx), nil })
		ready.Components = components.([]Component)
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
