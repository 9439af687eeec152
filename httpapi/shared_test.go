package httpapi_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/projection/view"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(suite{m})) }

// suite is the tests of the package. After them, the shared processes end.
type suite struct{ *testing.M }

func (s suite) Run() int {
	defer shared.end()
	return s.M.Run()
}

// shared are two processes on one database with the log and all views. The first test that needs one starts it. Each
// test has accounts and a client address of its own.
var shared processes

type processes struct {
	starting sync.Mutex
	running  [2]*process
	ending   sync.Mutex
	ends     []func()
}

// first is the process that also keeps the views up to date.
func (all *processes) first(t testing.TB) *process {
	t.Helper()
	return all.start(t, 0, func(owner testing.TB) *connections {
		url := migrated(owner)
		c := connect(owner, url, url)
		c.project(view.All())
		c.awaitViews(t) // a view that starts empties its tables
		return c
	})
}

func (all *processes) second(t testing.TB) *process {
	t.Helper()
	first := all.first(t)
	return all.start(t, 1, func(owner testing.TB) *connections { return connect(owner, first.url, first.events) })
}

func (all *processes) start(t testing.TB, i int, open func(owner testing.TB) *connections) *process {
	t.Helper()
	all.starting.Lock()
	defer all.starting.Unlock()
	if all.running[i] == nil {
		owner := &lasting{TB: t, all: all}
		all.running[i] = open(owner).process(owner, withConsole)
	}
	return all.running[i]
}

// end closes what the processes have opened, last things first.
func (all *processes) end() {
	for _, end := range slices.Backward(all.ends) {
		end()
	}
}

// lasting is the test that starts a shared process. Its cleanups run when all tests have ended.
type lasting struct {
	testing.TB
	all *processes
}

func (l *lasting) Context() context.Context { return context.Background() }

func (l *lasting) Cleanup(end func()) {
	l.all.ending.Lock()
	defer l.all.ending.Unlock()
	l.all.ends = append(l.all.ends, end)
}

// names separate tests on a shared process.
type names struct {
	suffix  string // of the ids of accounts; none if the database is the test's own
	address string // of the client
}

const loopback = "127.0.0.1"

var used atomic.Uint32 // number of names

func newNames() names {
	n := used.Add(1)
	return names{fmt.Sprint("-", n), fmt.Sprintf("10.%d.%d.%d", byte(n>>16), byte(n>>8), byte(n))}
}

// id returns the id of an account, by its name in the test. It returns an id unchanged.
func (n names) id(account string) string { return strings.TrimSuffix(account, n.suffix) + n.suffix }

// from serves requests as if they came from an address.
func from(address string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, port, _ := net.SplitHostPort(r.RemoteAddr)
		r.RemoteAddr = net.JoinHostPort(address, port)
		next.ServeHTTP(w, r)
	})
}

// withConsole enables the console.
func withConsole(o *httpapi.Options) { o.ConsoleKey = []byte(jwtSecret) }
