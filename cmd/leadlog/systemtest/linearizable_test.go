package systemtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

// Callers of two processes capture, erase and join the same few people, while a process is killed or loses its
// connections. The answers must be linearizable.
func TestLinearizable_Captures(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	p := newPair(t)
	jwt := provision(t, p.settings)
	p.start(t)
	for round := range p.rounds(len(p.faults)) {
		h := newHistory()
		var known [4]knownLeads
		h.record(t, p, 30, func(int) (any, request, func(answer) any) {
			n := rand.IntN(len(known))
			in := known[n].next(len(known)*round + n)
			return in, in.request(), func(got answer) any {
				out := in.outcome(got)
				known[n].add(out)
				return out
			}
		}, leadOutput{unknown: true}, func(any) string { return jwt }, p.faults[round%len(p.faults)])
		h.check(t, leadModel)
	}
	launch(t, p.settings, "verify").exits(t, 0)
}

// Callers of two processes create, rotate, delete and use the same few tokens.
func TestLinearizable_Tokens(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	p := newPair(t)
	provision(t, p.settings)
	p.start(t)
	for round := range p.rounds(len(p.faults)) {
		jwts := map[string]string{}
		known := map[string]*knownTokens{}
		for n := range 2 {
			account := fmt.Sprintf("account-%d-%d", round, n)
			jwts[account], known[account] = newAccount(t, p.settings, account), &knownTokens{}
		}
		h := newHistory()
		h.record(t, p, 30, func(n int) (any, request, func(answer) any) {
			account := fmt.Sprintf("account-%d-%d", round, n%2)
			in := known[account].next(account)
			return in, in.request(), func(got answer) any {
				out := in.outcome(got)
				known[account].add(out)
				return out
			}
		}, tokenOutput{unknown: true}, func(in any) string { return jwts[in.(tokenInput).account] },
			p.faults[round%len(p.faults)])
		h.check(t, tokenModel)
	}
	launch(t, p.settings, "verify").exits(t, 0)
}

// knownTokens are the tokens in the answers of an account, including revoked ones.
type knownTokens struct {
	mu          sync.Mutex
	ids, values []string
}

func (k *knownTokens) add(out tokenOutput) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if out.status == 201 {
		k.ids = append(k.ids, out.token)
	}
	if out.value != "" {
		k.values = append(k.values, out.value)
	}
}

func (k *knownTokens) next(account string) tokenInput {
	k.mu.Lock()
	defer k.mu.Unlock()
	recent := func(of []string) string { return of[max(0, len(of)-8)+rand.IntN(min(8, len(of)))] }
	switch n := rand.IntN(20); {
	case len(k.ids) == 0 || n < 3:
		return tokenInput{account: account, do: "create"}
	case n < 5:
		return tokenInput{account: account, do: "delete", token: recent(k.ids)}
	case n < 9:
		return tokenInput{account: account, do: "rotate", token: recent(k.ids)}
	}
	return tokenInput{account: account, do: "use", value: recent(k.values)}
}

// pair is two processes on one log.
type pair struct {
	settings  map[string]string
	processes [2]*program
	bases     [2]atomic.Value
	faults    []func(*testing.T)
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{settings: serveSettings(t)}
	// failed credentials are limited by address, so callers have different ones
	p.settings["LEADLOG_TRUSTED_PROXIES"] = "127.0.0.0/8"
	p.faults = []func(*testing.T){func(*testing.T) {}, p.killOne}
	if onEventStoreDB(t) {
		server := esdbtest.Start(t) // the test double, which can inject faults
		p.settings["LEADLOG_EVENTSTORE_URL"] = server.URL()
		p.faults = append(p.faults, func(*testing.T) { server.Drop() }, func(*testing.T) { server.LoseReplies(3) })
		return p
	}
	p.faults = append(p.faults, func(t *testing.T) {
		queryInt(t, p.settings,
			`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database()
				AND backend_type = 'client backend' AND pid <> pg_backend_pid()`)
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
	p.processes[i].wait(t)
	program, base := serve(t, p.settings)
	p.processes[i] = program
	p.bases[i].Store(base)
}

// rounds returns the number of rounds, which make chaos sets.
func (p *pair) rounds(defaultRounds int) int {
	if rounds, err := strconv.Atoi(os.Getenv(chaosRounds)); err == nil {
		return rounds
	}
	return defaultRounds
}

// history has the requests of concurrent callers and their answers, with times.
type history struct {
	began      time.Time
	mu         sync.Mutex
	operations []porcupine.Operation
	count      atomic.Int64
}

func newHistory() *history { return &history{began: time.Now()} }

// record runs eight callers, each with a number of requests, and injects a fault during their requests.
func (h *history) record(t *testing.T, p *pair, each int, next func(n int) (in any, r request, read func(answer) any),
	unknown any,
	jwt func(in any) string, injectFault func(*testing.T),
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
	injectFault(t)
	calling.Wait()
}

// call sends one request, and reports whether it is part of the history.
func (h *history) call(
	ctx context.Context, caller int, in any, r request, read func(answer) any, unknown any, base, jwt string,
) bool {
	called := time.Since(h.began)
	got, err := r.send(ctx, base, jwt)
	operation := porcupine.Operation{
		ClientId: caller, Input: in, Output: unknown, Call: int64(called), Return: math.MaxInt64,
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		time.Sleep(time.Millisecond)
		return false // the request was not received
	case err == nil && got.status != 503:
		operation.Return = int64(time.Since(h.began))
		operation.Output = read(got)
	}
	h.count.Add(1)
	if operation.Output == nil {
		return true // the operation constrains no order
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, operation)
	return true
}

// check requires that the operations have an order, each between its call and its return, in which the model yields
// these answers.
func (h *history) check(t *testing.T, model porcupine.Model) {
	t.Helper()
	unknown := 0
	for _, o := range h.operations {
		if o.Return == math.MaxInt64 {
			unknown++
		}
	}
	result, info := porcupine.CheckOperationsVerbose(model, h.operations, 0)
	t.Logf("%d operations, %d of them of unknown outcome: %s", len(h.operations), unknown, result)
	if result == porcupine.Ok {
		return
	}
	visualization, err := os.CreateTemp("", "leadlog-history-*.html")
	require.NoError(t, err)
	defer visualization.Close()
	require.NoError(t, porcupine.Visualize(model, info, visualization))
	require.Equal(t, porcupine.Ok, result, "visualization in %s", visualization.Name())
}

// operation returns an operation of a constructed history.
func operation(from, until int64, in, out any) porcupine.Operation {
	return porcupine.Operation{Input: in, Output: out, Call: from, Return: until}
}

const pending = int64(1 << 62)

func TestLeadModel_RejectsViolations(t *testing.T) {
	t.Parallel()
	const api, webhook, website, whatsapp, facebook = 0, 1, 2, 3, 4
	phone1 := func(source int) leadInput { return leadInput{phone: 1, source: source} }
	created := func(lead string) leadOutput { return leadOutput{status: 201, lead: lead, phone: 1} }
	merged := func(lead string) leadOutput { return leadOutput{status: 200, lead: lead, phone: 1} }
	both := leadOutput{status: 200, lead: "A", phone: 1, email: 1}
	duplicate := leadOutput{status: 409, code: "DUPLICATE_LEAD_SOURCE", lead: "A"}
	otherEmail := leadOutput{status: 409, code: "DUPLICATE_LEAD_EMAIL", lead: "B"}
	email2 := operation(3, 4, leadInput{email: 2, source: api}, leadOutput{status: 201, lead: "B", email: 2})
	erase := func(at int64, lead string, status int) porcupine.Operation {
		return operation(at, at+1, leadInput{do: "erase", lead: lead}, leadOutput{status: status})
	}
	join, joinedLead := leadInput{
		do: "join", lead: "A", from: "B",
	}, leadOutput{status: 200, lead: "A", phone: 1, email: 2}
	joined := func(then ...porcupine.Operation) []porcupine.Operation {
		return append(
			[]porcupine.Operation{
				operation(1, 2, phone1(api), created("A")), email2, operation(5, 6, join, joinedLead),
			}, then...,
		)
	}
	for name, h := range map[string]struct {
		right bool
		done  []porcupine.Operation
	}{
		"a lead, a merge and a refusal": {true, []porcupine.Operation{
			operation(1, 2, phone1(api), created("A")), operation(3, 4, phone1(website), merged("A")),
			operation(5, 6, phone1(api), duplicate)}},
		"two leads of one phone": {
			false, []porcupine.Operation{
				operation(1, 4, phone1(api), created("A")), operation(2, 3, phone1(website), created("B")),
			},
		},
		"a merge into another lead": {
			false, []porcupine.Operation{
				operation(1, 2, phone1(api), created("A")), operation(3, 4, phone1(website), merged("B")),
			},
		},
		"a merge before its lead": {
			false, []porcupine.Operation{
				operation(1, 2, phone1(website), merged("A")), operation(3, 4, phone1(api), created("A")),
			},
		},
		"a concurrent merge and lead": {
			true, []porcupine.Operation{
				operation(1, 3, phone1(website), merged("A")), operation(2, 4, phone1(api), created("A")),
			},
		},
		"a curated repeat that merges": {
			false, []porcupine.Operation{
				operation(1, 2, phone1(api), created("A")), operation(3, 4, phone1(api), merged("A")),
			},
		},
		"a repeat of an ad that merges": {
			true, []porcupine.Operation{
				operation(1, 2, phone1(facebook), created("A")), operation(3, 4, phone1(facebook), merged("A")),
			},
		},
		"a self-service repeat refused": {
			false, []porcupine.Operation{
				operation(1, 2, phone1(whatsapp), created("A")), operation(3, 4, phone1(whatsapp), duplicate),
			},
		},
		"a refusal without reason": {false, []porcupine.Operation{operation(1, 2, phone1(api), duplicate)}},
		"a refusal that an unknown explains": {
			true, []porcupine.Operation{
				operation(1, pending, phone1(api), leadOutput{unknown: true}), operation(3, 4, phone1(api), duplicate),
			},
		},
		"an unknown that did not happen": {
			true, []porcupine.Operation{
				operation(1, pending, phone1(api), leadOutput{unknown: true}),
				operation(3, 4, phone1(api), created("A")),
			},
		},
		"an unknown that is undone": {
			false, []porcupine.Operation{
				operation(1, pending, phone1(api), leadOutput{unknown: true}), operation(3, 4, phone1(api), duplicate),
				operation(5, 6, phone1(api), created("B")),
			},
		},
		"a merge by an email of the other": {
			false, []porcupine.Operation{
				operation(1, 2, phone1(api), created("A")), email2,
				operation(5, 6, leadInput{phone: 1, email: 2, source: webhook}, both),
			},
		},
		"its refusal": {
			true, []porcupine.Operation{
				operation(1, 2, phone1(api), created("A")), email2,
				operation(5, 6, leadInput{phone: 1, email: 2, source: webhook}, otherEmail),
			},
		},
		"an email that is not stored": {false, []porcupine.Operation{
			operation(1, 2, phone1(api), created("A")),
			operation(3, 4, leadInput{phone: 1, email: 1, source: website}, merged("A"))}},
		"a key with two effects": {false, []porcupine.Operation{
			operation(1, 2, leadInput{phone: 1, source: website, key: 1}, created("A")),
			operation(3, 4, leadInput{phone: 1, source: website, key: 1}, merged("A"))}},
		"a key with its answer again": {true, []porcupine.Operation{
			operation(1, 2, leadInput{phone: 1, key: 1}, created("A")),
			operation(3, 4, leadInput{phone: 1, email: 1, source: website}, both),
			operation(5, 6, leadInput{phone: 1, key: 1}, created("A"))}},
		"an erasure, and a new lead": {
			true, []porcupine.Operation{
				operation(1, 2, phone1(api), created("A")), erase(3, "A", 200),
				operation(5, 6, phone1(api), created("B")),
			},
		},
		"an erasure, and the lead still": {
			false, []porcupine.Operation{
				operation(1, 2, phone1(api), created("A")), erase(3, "A", 200),
				operation(5, 6, phone1(website), merged("A")),
			},
		},
		"an unanswered erasure": {
			true, []porcupine.Operation{
				operation(1, 2, phone1(api), created("A")),
				operation(3, pending, leadInput{do: "erase", lead: "A"}, leadOutput{unknown: true}),
				operation(5, 6, phone1(api), created("B")),
			},
		},
		"a refused erasure of a lead": {
			false, []porcupine.Operation{operation(1, 2, phone1(api), created("A")), erase(3, "A", 404)},
		},
		"a second erasure": {
			true, []porcupine.Operation{
				operation(1, 2, phone1(api), created("A")), erase(3, "A", 200), erase(5, "A", 404),
			},
		},
		"a second erasure that is the first": {
			false, []porcupine.Operation{
				operation(1, 2, phone1(api), created("A")), erase(3, "A", 200), erase(5, "A", 200),
			},
		},
		"a key of an erased lead": {true, []porcupine.Operation{
			operation(1, 2, leadInput{phone: 1, key: 1}, created("A")), erase(3, "A", 200),
			operation(5, 6, leadInput{phone: 1, key: 1}, leadOutput{status: 410, code: "LEAD_ERASED"})}},
		"a key that shows an erased lead": {false, []porcupine.Operation{
			operation(1, 2, leadInput{phone: 1, key: 1}, created("A")), erase(3, "A", 200),
			operation(5, 6, leadInput{phone: 1, key: 1}, created("A"))}},
		"a key refused before its erasure": {false, []porcupine.Operation{
			operation(1, 2, leadInput{phone: 1, key: 1}, created("A")),
			operation(5, 6, leadInput{phone: 1, key: 1}, leadOutput{status: 410, code: "LEAD_ERASED"})}},
		"a join, and one lead": {
			true, joined(operation(7, 8, leadInput{email: 2, source: website}, joinedLead)),
		},
		"a join, and two leads": {false, joined(operation(7, 8, leadInput{email: 2, source: website}, leadOutput{
			status: 200, lead: "B", email: 2,
		}))},
		"a join that loses fields": {
			false, []porcupine.Operation{
				operation(1, 2, phone1(api), created("A")), email2, operation(5, 6, join, merged("A")),
			},
		},
		"a join that changes nothing": {true, joined(operation(7, 8, join, joinedLead))},
		"a source added by a join":    {true, joined(operation(7, 8, leadInput{email: 2, source: api}, duplicate))},
		"an erasure of both": {
			true, joined(erase(7, "A", 200), operation(9, 10, leadInput{email: 2}, leadOutput{
				status: 201, lead: "C", email: 2,
			})),
		},
		"an erasure of one of both": {
			false, joined(erase(7, "A", 200), operation(9, 10, leadInput{email: 2, source: website}, joinedLead)),
		},
		"a join with an erased lead": {
			false, []porcupine.Operation{
				operation(1, 2, phone1(api), created("A")), email2, erase(5, "B", 200),
				operation(7, 8, join, joinedLead),
			},
		},
		"a join with a missing lead": {
			true, []porcupine.Operation{
				operation(1, 2, phone1(api), created("A")), email2, erase(5, "B", 200),
				operation(7, 8, join, leadOutput{status: 404}),
			},
		},
	} {
		require.Equal(t, h.right, porcupine.CheckOperations(leadModel, h.done), name)
	}
}

func TestTokenModel_RejectsViolations(t *testing.T) {
	t.Parallel()
	unknown := tokenOutput{unknown: true}
	created := operation(1, 2, tokenInput{do: "create"}, tokenOutput{status: 201, token: "1", value: "a"})
	rotated := operation(3, 5, tokenInput{do: "rotate", token: "1"}, tokenOutput{status: 200, token: "1", value: "b"})
	use := func(from, until int64, value string, status int) porcupine.Operation {
		return operation(from, until, tokenInput{do: "use", value: value}, tokenOutput{status: status})
	}
	var six []porcupine.Operation
	for n, id := range []string{"1", "2", "3", "4", "5", "6"} {
		six = append(six, operation(int64(n), 10, tokenInput{do: "create"}, tokenOutput{
			status: 201, token: id, value: id,
		}))
	}
	refused := operation(1, 2, tokenInput{do: "create"}, tokenOutput{status: 409})
	for name, h := range map[string]struct {
		right bool
		done  []porcupine.Operation
	}{
		"a valid value accepted":            {true, []porcupine.Operation{created, use(3, 4, "a", 200)}},
		"a valid value refused":             {false, []porcupine.Operation{created, use(3, 4, "a", 401)}},
		"the old value during the rotation": {true, []porcupine.Operation{created, rotated, use(4, 6, "a", 200)}},
		"the old value after the rotation":  {false, []porcupine.Operation{created, rotated, use(6, 7, "a", 200)}},
		"refused, and then accepted": {
			false, []porcupine.Operation{
				created,
				operation(3, 9, tokenInput{do: "rotate", token: "1"}, tokenOutput{status: 200, token: "1", value: "b"}),
				use(4, 5, "a", 401), use(6, 7, "a", 200),
			},
		},
		"the old value after an unknown": {
			true, []porcupine.Operation{
				created, operation(3, pending, tokenInput{do: "rotate", token: "1"}, unknown), use(5, 6, "a", 200),
				use(7, 8, "a", 401),
			},
		},
		"the old value after a refusal": {
			false, []porcupine.Operation{
				created, operation(3, pending, tokenInput{do: "rotate", token: "1"}, unknown), use(5, 6, "a", 401),
				use(7, 8, "a", 200),
			},
		},
		"a value after its token's deletion": {
			false, []porcupine.Operation{
				created, operation(3, 4, tokenInput{do: "delete", token: "1"}, tokenOutput{status: 200}),
				use(5, 6, "a", 200),
			},
		},
		"two deletions of one token": {
			false, []porcupine.Operation{
				created, operation(3, 4, tokenInput{do: "delete", token: "1"}, tokenOutput{status: 200}),
				operation(3, 4, tokenInput{do: "delete", token: "1"}, tokenOutput{status: 200}),
			},
		},
		"five tokens": {true, six[:5]},
		"six tokens":  {false, six},
		"a sixth token refused": {
			true, append([]porcupine.Operation{operation(11, 12, tokenInput{do: "create"}, tokenOutput{status: 409})},
				six[:5]...),
		},
		"a refusal below the limit": {false, []porcupine.Operation{refused}},
		"a refusal that unknown ones explain": {
			true, []porcupine.Operation{
				operation(0, pending, tokenInput{do: "create"}, unknown),
				operation(5, 6, tokenInput{do: "create"}, tokenOutput{status: 409}), six[0], six[1], six[2], six[3],
			},
		},
		"two refusals with a deletion between": {
			false, append(
				[]porcupine.Operation{
					operation(11, 12, tokenInput{do: "delete", token: "3"}, tokenOutput{status: 200}),
					operation(13, 14, tokenInput{do: "create"}, tokenOutput{status: 409}),
				}, six[:5]...,
			),
		},
	} {
		require.Equal(t, h.right, porcupine.CheckOperations(tokenModel, h.done), name)
	}
}
