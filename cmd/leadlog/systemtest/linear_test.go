package systemtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

// TestCapturesAreLinearizable has callers of two processes bring in the same few people, erase them and join them, while a
// process or its connections die, and wants their answers to be those of one caller after the other.
func TestCapturesAreLinearizable(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	jwt := provisioned(t, p.settings)
	p.start(t)
	for round := range p.rounds(len(p.disturbances)) {
		h := newHistory()
		var known [4]knownLeads
		h.record(t, p, 30, func(int) (any, request, func(answer) any) {
			n := rand.IntN(len(known))
			in := known[n].ask(len(known)*round + n)
			return in, in.request(), func(got answer) any {
				out := in.outcome(got)
				known[n].learn(out)
				return out
			}
		}, captured{unknown: true}, func(any) string { return jwt }, p.disturbances[round%len(p.disturbances)])
		h.check(t, leadModel)
	}
	launch(t, p.settings, "verify").ends(t, 0)
}

// TestTokensAreLinearizable has callers of two processes create, rotate, delete and use the same few tokens.
func TestTokensAreLinearizable(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	provisioned(t, p.settings)
	p.start(t)
	for round := range p.rounds(len(p.disturbances)) {
		jwts := map[string]string{}
		known := map[string]*knownTokens{}
		for n := range 2 {
			account := fmt.Sprintf("account-%d-%d", round, n)
			jwts[account], known[account] = newAccount(t, p.settings, account), &knownTokens{}
		}
		h := newHistory()
		h.record(t, p, 30, func(n int) (any, request, func(answer) any) {
			account := fmt.Sprintf("account-%d-%d", round, n%2)
			in := known[account].ask(account)
			return in, in.request(), func(got answer) any {
				out := in.outcome(got)
				known[account].learn(out)
				return out
			}
		}, tokenTold{unknown: true}, func(in any) string { return jwts[in.(tokenAsk).account] }, p.disturbances[round%len(p.disturbances)])
		h.check(t, tokenModel)
	}
	launch(t, p.settings, "verify").ends(t, 0)
}

// knownTokens are what the callers of an account have heard of, dead or alive.
type knownTokens struct {
	mu          sync.Mutex
	ids, values []string
}

func (k *knownTokens) learn(out tokenTold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if out.status == 201 {
		k.ids = append(k.ids, out.token)
	}
	if out.value != "" {
		k.values = append(k.values, out.value)
	}
}

func (k *knownTokens) ask(account string) tokenAsk {
	k.mu.Lock()
	defer k.mu.Unlock()
	among := func(of []string) string { return of[max(0, len(of)-8)+rand.IntN(min(8, len(of)))] }
	switch n := rand.IntN(20); {
	case len(k.ids) == 0 || n < 3:
		return tokenAsk{account: account, do: "create"}
	case n < 5:
		return tokenAsk{account: account, do: "delete", token: among(k.ids)}
	case n < 9:
		return tokenAsk{account: account, do: "rotate", token: among(k.ids)}
	}
	return tokenAsk{account: account, do: "use", value: among(k.values)}
}

// pair is two processes on one log.
type pair struct {
	settings     map[string]string
	processes    [2]*program
	bases        [2]atomic.Value
	disturbances []func(*testing.T)
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{settings: production(t)}
	p.settings["LEADLOG_TRUSTED_PROXIES"] = "127.0.0.0/8" // callers whose credentials fail have addresses of their own
	p.disturbances = []func(*testing.T){func(*testing.T) {}, p.killOne}
	if strings.HasPrefix(t.Name(), "TestOnEventStoreDB/") {
		server := esdbtest.Start(t) // one whose faults are at hand
		p.settings["LEADLOG_EVENTSTORE_URL"] = server.URL()
		p.disturbances = append(p.disturbances, func(*testing.T) { server.Drop() }, func(*testing.T) { server.LoseReplies(3) })
		return p
	}
	p.disturbances = append(p.disturbances, func(t *testing.T) {
		ask(t, p.settings, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`)
	})
	return p
}

func (p *pair) start(t *testing.T) {
	t.Helper()
	for i := range p.processes {
		program, base := serve(t, p.settings)
		p.processes[i] = program
		p.bases[i].Store(base)
	}
}

func (p *pair) killOne(t *testing.T) {
	i := rand.IntN(len(p.processes))
	require.NoError(t, kill(p.processes[i]))
	p.processes[i].finish(t)
	program, base := serve(t, p.settings)
	p.processes[i] = program
	p.bases[i].Store(base)
}

// rounds is how many there are: more of them in make chaos.
func (p *pair) rounds(few int) int {
	if rounds, err := strconv.Atoi(os.Getenv(chaosRounds)); err == nil {
		return rounds
	}
	return few
}

// history is what concurrent callers asked and were told, and when.
type history struct {
	began      time.Time
	mu         sync.Mutex
	operations []porcupine.Operation
	count      atomic.Int64
}

func newHistory() *history { return &history{began: time.Now()} }

// record has eight callers ask each so many times, and something happen in the midst of it.
func (h *history) record(t *testing.T, p *pair, each int, next func(n int) (in any, r request, read func(answer) any), unknown any,
	jwt func(in any) string, disturb func(*testing.T),
) {
	t.Helper()
	const callers = 8
	var calling sync.WaitGroup
	for caller := range callers {
		calling.Go(func() {
			for n := 0; n < each && t.Context().Err() == nil; {
				in, r, read := next(caller)
				r.from = fmt.Sprintf("192.0.%d.%d", rand.IntN(255), rand.IntN(255))
				base := p.bases[(caller+n)%len(p.bases)].Load().(string)
				if h.call(t.Context(), caller, in, r, read, unknown, base, jwt(in)) {
					n++
				}
			}
		})
	}
	for h.count.Load() < int64(callers*each)/4 && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	disturb(t)
	calling.Wait()
}

// call asks once, and tells whether that is part of the history.
func (h *history) call(ctx context.Context, caller int, in any, r request, read func(answer) any, unknown any, base, jwt string) bool {
	called := time.Since(h.began)
	got, err := r.send(ctx, base, jwt)
	operation := porcupine.Operation{ClientId: caller, Input: in, Output: unknown, Call: int64(called), Return: math.MaxInt64}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		time.Sleep(time.Millisecond)
		return false // nobody has heard of it
	case err == nil && got.status != 503:
		operation.Return = int64(time.Since(h.began))
		operation.Output = read(got)
	}
	h.count.Add(1)
	if operation.Output == nil {
		return true // it says nothing of the order
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, operation)
	return true
}

// check wants an order of the operations, each between its call and its return, in which the model gives these answers.
func (h *history) check(t *testing.T, model porcupine.Model) {
	t.Helper()
	unknown := 0
	for _, o := range h.operations {
		if o.Return == math.MaxInt64 {
			unknown++
		}
	}
	result, info := porcupine.CheckOperationsVerbose(model, h.operations, time.Minute)
	t.Logf("%d operations, %d of them of unknown outcome: %s", len(h.operations), unknown, result)
	if result == porcupine.Ok {
		return
	}
	drawn, err := os.CreateTemp("", "leadlog-history-*.html")
	require.NoError(t, err)
	defer drawn.Close()
	require.NoError(t, porcupine.Visualize(model, info, drawn))
	require.Equal(t, porcupine.Ok, result, "drawn in %s", drawn.Name())
}
