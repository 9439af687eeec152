package httpapi_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/httpapi"
)

// TestMonitoring_SharesConcurrentChecks: whoever asks for readiness or metrics needs no credential, and each look asks
// the database, which others wait for.
func TestMonitoring_SharesConcurrentChecks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int32
		goOn := make(chan struct{})
		defer close(goOn)
		look := func() {
			looks.Add(1)
			<-goOn
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "looked_at"}, func() float64 { look(); return 7 }))
		api := httpapi.New(httpapi.Options{
			Log: slog.New(slog.DiscardHandler), Metrics: registry,
			Ready: func(context.Context) []httpapi.Component {
				look()
				return []httpapi.Component{{Name: "database", Ready: true}}
			},
		})
		for path, says := range map[string]string{"/readyz": `"database"`, "/metrics": "\nlooked_at 7\n"} {
			looks.Store(0)
			var answers [8]*httptest.ResponseRecorder
			for i := range answers {
				answers[i] = httptest.NewRecorder()
				go api.ServeHTTP(answers[i], httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			}
			synctest.Wait()
			require.EqualValues(t, 1, looks.Load(), path)
			goOn <- struct{}{}
			synctest.Wait()
			for _, answer := range answers {
				require.Equal(t, http.StatusOK, answer.Code)
				require.Contains(t, answer.Body.String(), says)
			}
			go api.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			goOn <- struct{}{}
			synctest.Wait()
			require.EqualValues(t, 2, looks.Load(), "who asks later is told of later")
		}
	})
}
