package systemtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// restarts names the variable with the number of restarts; make restart-test sets it.
const restarts = "LEADLOG_TEST_RESTARTS"

// balancer forwards requests to the ready processes, round-robin.
type balancer struct {
	*httptest.Server
	mu    sync.Mutex
	ready []*url.URL
	turn  int
}

func balance(t *testing.T) *balancer {
	t.Helper()
	b := &balancer{}
	transport := &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Second} // see httpClient
	t.Cleanup(transport.CloseIdleConnections)
	b.Server = httptest.NewServer(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(b.next()) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, `{"message":"balancer: `+strings.ReplaceAll(err.Error(), `"`, "'")+`"}`,
				http.StatusBadGateway)
		},
	})
	t.Cleanup(b.Close)
	return b
}

// watch polls the readiness of a process, as a balancer does, until the process has ended.
func (b *balancer) watch(p *program, target *url.URL) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for ended := false; !ended; {
		response, err := client.Get(target.String() + "/readyz")
		ready := err == nil && response.StatusCode == http.StatusOK
		if err == nil {
			_ = response.Body.Close() // not read
		}
		b.mu.Lock()
		i := slices.Index(b.ready, target)
		if ready && i < 0 {
			b.ready = append(b.ready, target)
		} else if !ready && i >= 0 {
			b.ready = slices.Delete(b.ready, i, i+1)
		}
		b.mu.Unlock()
		select {
		case <-time.After(20 * time.Millisecond):
		case <-p.exited:
			ended = true
		}
	}
}

func (b *balancer) next() *url.URL {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ready) == 0 {
		return &url.URL{Scheme: "http", Host: "127.0.0.1:1"} // answered by ErrorHandler
	}
	b.turn++
	return b.ready[b.turn%len(b.ready)]
}

func (b *balancer) has(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ready) == n
}

// Two processes behind a balancer are restarted alternately under load. No request may fail, and no delivery may be
// repeated.
func TestRestart_Rolling(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	rounds, err := strconv.Atoi(os.Getenv(restarts))
	if err != nil {
		rounds = 2
	}
	settings := serveSettings(t)
	settings["LEADLOG_DRAIN"] = "5s"
	jwt := provision(t, settings)
	front := balance(t)
	start := func() *program {
		p, base := serve(t, settings)
		target, err := url.Parse(base)
		require.NoError(t, err)
		go front.watch(p, target)
		return p
	}
	processes := []*program{start(), start()}
	ready := func(n int) {
		require.Eventually(t, func() bool { return front.has(n) }, soon, 10*time.Millisecond)
	}
	ready(2)
	receiver := newReceiver(t)
	mustCall(t, "POST", front.URL+"/webhooks/endpoints", jwt, `{"url":"`+receiver.URL+`","events":["lead.created"]}`).
		is(t, 201)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var person, acknowledged atomic.Int64
	events := make([][]string, 8) // positions
	failures := make(chan error, len(events))
	var calling sync.WaitGroup
	for i := range events {
		calling.Go(func() {
			for ctx.Err() == nil {
				body := fmt.Sprintf(`{"email":"person%d@example.com"}`, person.Add(1))
				got, err := call(t.Context(), "POST", front.URL+"/api/v1/crm/leads", jwt, body)
				if err == nil && got.status != 201 {
					err = fmt.Errorf("status %d: %v", got.status, got.body)
				}
				if err != nil {
					failures <- err
					return
				}
				events[i] = append(events[i], got.header.Get("X-Log-Position"))
				acknowledged.Add(1)
				time.Sleep(10 * time.Millisecond) // a restart takes seconds
			}
		})
	}
	for round := range rounds {
		before := acknowledged.Load()
		require.Eventually(t, func() bool {
			return acknowledged.Load() > before+300 || len(failures) > 0
		}, soon, time.Millisecond)
		i := round % 2
		processes[i].stop(t)
		ready(1)
		processes[i] = start()
		ready(2)
	}
	stop()
	calling.Wait()
	close(failures)
	var failed error
	for err := range failures {
		failed = errors.Join(failed, err)
	}
	require.NoError(t, failed)
	all := slices.Concat(events...)
	require.Eventually(t, func() bool { return len(receiver.missing(all)) == 0 }, soon, 20*time.Millisecond)
	t.Logf("%d restarts: %d leads acknowledged, none refused, %d deliveries repeated", rounds,
		len(all), receiver.repeated())
	require.Zero(t, receiver.repeated(), "a stopping process stores the results of its deliveries")
}
