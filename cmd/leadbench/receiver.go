package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// receiver is the server of webhook endpoints. It answers 200 under /take, and under /hang nothing.
type receiver struct {
	base   string
	server *http.Server
	closed chan struct{}

	mu       sync.Mutex
	ids      map[string]struct{}
	twice    int
	byName   map[string][]time.Time // when deliveries came that are about a lead of this name
	newest   time.Time
	distinct *sync.Cond
}

func receive() (*receiver, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{base: "http://" + listener.Addr().String(), closed: make(chan struct{})}
	r.distinct = sync.NewCond(&r.mu)
	r.reset()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /take", r.take)
	mux.HandleFunc("POST /hang", func(_ http.ResponseWriter, request *http.Request) {
		select {
		case <-request.Context().Done():
		case <-r.closed:
		}
	})
	r.server = &http.Server{Handler: mux}
	go func() { _ = r.server.Serve(listener) }() // until it is closed
	return r, nil
}

func (r *receiver) close() {
	close(r.closed)
	_ = r.server.Close()
}

func (r *receiver) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids, r.byName, r.twice = map[string]struct{}{}, map[string][]time.Time{}, 0
}

func (r *receiver) take(_ http.ResponseWriter, request *http.Request) {
	at := time.Now()
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return
	}
	id, name := request.Header.Get("webhook-id"), nameIn(body)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, seen := r.ids[id]; seen {
		r.twice++
		return
	}
	r.ids[id] = struct{}{}
	r.byName[name] = append(r.byName[name], at)
	r.newest = at
	r.distinct.Broadcast()
}

// nameIn finds the lead's name without decoding: the receiver works on the processors that are measured.
func nameIn(body []byte) string {
	_, rest, _ := bytes.Cut(body, []byte(`"name":"`))
	name, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(name)
}

// await waits until so many different deliveries have come, and says when the last of them did.
func (r *receiver) await(ctx context.Context, n int) (time.Time, error) {
	stop := context.AfterFunc(ctx, r.distinct.Broadcast)
	defer stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.ids) < n {
		if ctx.Err() != nil {
			return time.Time{}, ctx.Err()
		}
		r.distinct.Wait()
	}
	return r.newest, nil
}

// count is how many different deliveries have come, and how many came again.
func (r *receiver) count() (different, again int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ids), r.twice
}

// came returns when the deliveries about a lead of this name came.
func (r *receiver) came(name string) []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byName[name]
}
