package service

import (
	"net/http"
	"time"
)

// drain makes /readyz fail, and returns when the load balancer has had time to notice. Requests that still come are answered.
// Views and deliveries are not drained: another process takes them over at once.
func (a *App) drain() {
	a.draining.Store(true)
	if a.config.drain > 0 {
		a.log.Info("draining", "for", a.config.drain.String())
		time.Sleep(a.config.drain)
	}
}

// closeWhileDraining closes each connection with its answer while the service drains. Idle connections stay open until the
// end: a request may be on its way on one of them, and its sender could not know whether it was carried out.
func (a *App) closeWhileDraining(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
