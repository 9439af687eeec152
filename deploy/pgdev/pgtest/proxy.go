package pgtest

import (
	"bytes"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Proxy is a TCP proxy to a database that injects the faults of networks and failovers.
type Proxy struct {
	config          *pgx.ConnConfig
	network, target string
	address         string

	mu       sync.Mutex
	listener net.Listener // nil while connections are refused
	links    map[*link]struct{}
	delay    time.Duration
	halfOpen bool
	losses   []loss
}

// link is one connection through the proxy.
type link struct {
	client net.Conn
	server net.Conn
	mute   bool // it discards all bytes
	deaf   bool // the next answer is lost
}

// loss is a fault at the next message that contains a marker.
type loss struct {
	marker []byte
	answer bool // the message is forwarded, and its answer is lost
}

// NewProxy starts a proxy to the database of an address, until the test ends.
func NewProxy(t testing.TB, address string) *Proxy {
	t.Helper()
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal("not the address of a test's database")
	}
	p := &Proxy{config: config, address: "127.0.0.1:0", links: map[*link]struct{}{}}
	p.network, p.target = pgconn.NetworkAddress(config.Host, config.Port)
	p.Accept(t)
	p.address = p.listener.Addr().String()
	t.Cleanup(p.Refuse)
	return p
}

// URL is the database's address through the proxy, with the other proxies as further hosts.
func (p *Proxy) URL(others ...*Proxy) string {
	hosts := []string{p.address}
	for _, other := range others {
		hosts = append(hosts, other.address)
	}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(p.config.User, p.config.Password), Host: strings.Join(hosts, ","),
		Path: "/" + p.config.Database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Refuse resets every connection and refuses new ones, like a server that has died.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.resetAll()
}

// Accept ends Refuse.
func (p *Proxy) Accept(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	open := p.listener != nil
	p.mu.Unlock()
	if open {
		return
	}
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener = listener
	go p.serve(listener)
}

// Reset resets every connection.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resetAll()
}

// Slow delays every piece of an answer; 0 ends it.
func (p *Proxy) Slow(delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = delay
}

// HalfOpen makes all present and new connections half open: bytes that are sent are lost, without a reset.
func (p *Proxy) HalfOpen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.halfOpen = true
	for l := range p.links {
		l.mute = true
	}
}

// EndHalfOpen ends HalfOpen for new connections.
func (p *Proxy) EndHalfOpen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.halfOpen = false
}

// LoseRequest resets the connection of the next request that contains a marker, after half of it was forwarded.
func (p *Proxy) LoseRequest(marker string) { p.lose(loss{marker: []byte(marker)}) }

// LoseAnswer resets the connection of the next request that contains a marker, when it is answered.
func (p *Proxy) LoseAnswer(marker string) { p.lose(loss{marker: []byte(marker), answer: true}) }

// Losing is how many requests and answers are still to be lost.
func (p *Proxy) Losing() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.losses)
}

func (p *Proxy) lose(l loss) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losses = append(p.losses, l)
}

func (p *Proxy) resetAll() {
	for l := range p.links {
		l.reset()
	}
	clear(p.links)
}

func (p *Proxy) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(p.network, p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		l := &link{client: client, server: server, mute: p.halfOpen}
		if p.listener != listener { // Refuse was called
			l.reset()
			p.mu.Unlock()
			continue
		}
		p.links[l] = struct{}{}
		p.mu.Unlock()
		go p.pass(l, client, p.request)
		go p.pass(l, server, p.answer)
	}
}

// pass forwards one direction until a side closes.
func (p *Proxy) pass(l *link, from net.Conn, carry func(*link, []byte) error) {
	piece := make([]byte, 1<<20)
	for {
		n, err := from.Read(piece)
		if n > 0 && err == nil {
			err = carry(l, piece[:n])
		}
		if err != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.links, l)
			l.reset()
			return
		}
	}
}

func (p *Proxy) request(l *link, piece []byte) error {
	p.mu.Lock()
	mute := l.mute
	for i, loss := range p.losses {
		if mute || l.deaf || !bytes.Contains(piece, loss.marker) {
			continue
		}
		p.losses = append(p.losses[:i:i], p.losses[i+1:]...)
		if l.deaf = loss.answer; l.deaf {
			break
		}
		p.mu.Unlock()
		_, _ = l.server.Write(piece[:len(piece)/2])
		return net.ErrClosed
	}
	p.mu.Unlock()
	if mute {
		return nil
	}
	_, err := l.server.Write(piece)
	return err
}

func (p *Proxy) answer(l *link, piece []byte) error {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	time.Sleep(delay)
	p.mu.Lock()
	mute, deaf := l.mute, l.deaf
	p.mu.Unlock()
	switch {
	case mute:
		return nil
	case deaf:
		return net.ErrClosed
	}
	_, err := l.client.Write(piece)
	return err
}

// reset closes a connection with a TCP reset.
func (l *link) reset() {
	if tcp, ok := l.client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_, _ = l.client.Close(), l.server.Close()
}
