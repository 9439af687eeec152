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

// showReadiness says whether requests make sense now. One look at the database answers all who ask meanwhile, for anybody may
// ask.
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
