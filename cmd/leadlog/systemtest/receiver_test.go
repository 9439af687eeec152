package systemtest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
)

// arrivals counts what a receiver of webhooks gets. While its status is another than 200, it takes nothing.
type arrivals struct {
	*httptest.Server
	status     atomic.Int64
	mu         sync.Mutex
	header     http.Header // of the latest
	body       []byte
	deliveries map[string]int // by webhook-id
	events     map[string]int // by their position on the log
}

func receiveWebhooks(t *testing.T) *arrivals {
	t.Helper()
	a := &arrivals{deliveries: map[string]int{}, events: map[string]int{}}
	a.status.Store(http.StatusOK)
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Sequence uint64 `json:"sequence"`
		}
		raw, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(raw, &body) != nil {
			return // its sender was killed: that was no arrival
		}
		if status := int(a.status.Load()); status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.header, a.body = r.Header.Clone(), raw
		a.deliveries[r.Header.Get("webhook-id")]++
		a.events[strconv.FormatUint(body.Sequence, 10)]++
	}))
	t.Cleanup(a.Close)
	return a
}

// got waits for so many events that came so many times each.
func (a *arrivals) got(t *testing.T, n, times int) {
	t.Helper()
	require.Eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		enough := 0
		for _, count := range a.events {
			if count >= times {
				enough++
			}
		}
		return enough >= n
	}, time.Minute, 10*time.Millisecond)
}

// latest is what came last.
func (a *arrivals) latest() (http.Header, []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.header, a.body
}

// missing are those of the events that have not come.
func (a *arrivals) missing(events []string) (positions []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, position := range events {
		if a.events[position] == 0 {
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
