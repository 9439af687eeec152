package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
)

// arrivals counts what a receiver of webhooks gets.
type arrivals struct {
	*httptest.Server
	mu         sync.Mutex
	deliveries map[string]int  // by webhook-id
	events     map[string]bool // by their position on the log
}

func receiveWebhooks(t *testing.T) *arrivals {
	t.Helper()
	a := &arrivals{deliveries: map[string]int{}, events: map[string]bool{}}
	a.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct {
			Sequence uint64 `json:"sequence"`
		}
		raw, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(raw, &body) != nil {
			return // its sender was killed: that was no arrival
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.deliveries[r.Header.Get("webhook-id")]++
		a.events[strconv.FormatUint(body.Sequence, 10)] = true
	}))
	t.Cleanup(a.Close)
	return a
}

// missing are those of the events that have not come.
func (a *arrivals) missing(events []string) (positions []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, position := range events {
		if !a.events[position] {
			positions = append(positions, position)
		}
	}
	return positions
}

// different is how many deliveries came, each counted once.
func (a *arrivals) different() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.deliveries)
}

// twice is how many deliveries were not the first of their webhook-id.
func (a *arrivals) twice() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, times := range a.deliveries {
		n += times - 1
	}
	return n
}
