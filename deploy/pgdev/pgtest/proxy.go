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

// Proxy is a way to a database by TCP on which goes wrong, on demand, what goes wrong on networks and in failovers.
type Proxy struct {
	config          *pgx.ConnConfig
	network, target string
	address         string

	mu       sync.Mutex
	listener net.Listener // nil while connections are refused
	links    map[*link]struct{}
	delay    time.Duration
	vanished bool
	losses   []loss
}

// link is one connection through the proxy.
type link struct {
	client net.Conn
	server net.Conn
	mute   bool // nothing passes any more
	deaf   bool // the next answer is lost
}

// loss is what happens to the next message that holds a marker.
type loss struct {
	marker []byte
	answer bool // it comes through, and its answer does not
}

// NewProxy is a way to the database of an address. It ends with the test.
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

// URL is the database's address through the proxy and, where it does not answer, through the others.
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

// Refuse resets every connection and lets none in, as a server that has died.
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

// Slow has every piece of an answer come so much later; 0 ends it.
func (p *Proxy) Slow(delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = delay
}

// Vanish leaves every connection half open: what is sent is lost, and nobody says so. New ones come about and are no better.
func (p *Proxy) Vanish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.vanished = true
	for l := range p.links {
		l.mute = true
	}
}

// Return ends Vanish for connections to come. Those that were lost stay so.
func (p *Proxy) Return() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.vanished = false
}

// LoseRequest resets the connection of the next request that holds a marker, when half of it has come through.
func (p *Proxy) LoseRequest(marker string) { p.lose(loss{marker: []byte(marker)}) }

// LoseAnswer resets the connection of the next request that holds a marker, when it is answered.
func (p *Proxy) LoseAnswer(marker string) { p.lose(loss{marker: []byte(marker), answer: true}) }

// Losing is how many of the requests and answers that are to be lost have not come yet.
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
		l := &link{client: client, server: server, mute: p.vanished}
		if p.listener != listener { // it refuses meanwhile
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

// pass carries what comes from one side until one of them ends.
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

// reset ends a connection so that the client is told of a reset and not of an end.
func (l *link) reset() {
	if tcp, ok := l.client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_, _ = l.client.Close(), l.server.Close()
}
