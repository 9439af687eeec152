package main

import (
	"net/http"
	"time"
)

// drain says through /readyz that no more requests should come, and takes those that come nevertheless, until whoever
// balances between processes has noticed. Views and deliveries are another process's from its beginning on.
func (a *app) drain() {
	a.draining.Store(true)
	if a.config.drain > 0 {
		a.log.Info("draining", "for", a.config.drain.String())
		time.Sleep(a.config.drain)
	}
}

// parting has clients leave with their answer while the service drains. Connections that are idle stay open until its
// end: a request may be on its way on one of them, and whoever sent it could not know whether it was carried out.
func (a *app) parting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
