//go:build !race

package esdb

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

// pairs are pairs of conflicting appends. The streams t and x have one event before.
func pairs() map[string]func() (a, b []eventstore.Write) {
	type writes = []eventstore.Write
	none, zero := eventstore.NoStream, eventstore.At(0)
	check := eventstore.Check
	return map[string]func() (a, b []eventstore.Write){
		"the same streams in opposite order": func() (a, b []eventstore.Write) {
			return writes{write("x", zero, 1), write("y", none, 2), write("u", none, 1)}, writes{write("u", none, 1), write("y", none, 1), write("x", zero, 1)}
		},
		"each checks what the other writes": func() (a, b []eventstore.Write) {
			return writes{check("y", none), write("z", none, 1)}, writes{check("z", none), write("y", none, 1)}
		},
		"each checks what the other writes among others": func() (a, b []eventstore.Write) {
			return writes{check("y", none), write("x", zero, 1), write("z", none, 2)}, writes{check("x", zero), write("y", none, 1), write("w", none, 1)}
		},
		"a capture and a rotation": func() (a, b []eventstore.Write) {
			return writes{check("t", zero), write("c", none, 1), write("l", none, 1)}, writes{write("t", zero, 1)}
		},
		"a capture and a rotation among others": func() (a, b []eventstore.Write) {
			return writes{check("t", zero), write("c", none, 1), write("l", none, 1)}, writes{write("t", zero, 1), write("u", none, 1)}
		},
		"a transaction and a single write to its home": func() (a, b []eventstore.Write) {
			return writes{write("x", zero, 1), write("y", none, 1)}, writes{write("y", none, 1)}
		},
		"a transaction and a single write beside its home": func() (a, b []eventstore.Write) {
			return writes{write("x", zero, 1), write("y", none, 1)}, writes{write("x", zero, 1)}
		},
		"two that expect nothing": func() (a, b []eventstore.Write) {
			return writes{write("x", eventstore.Any, 2), write("y", eventstore.Any, 1)}, writes{write("y", eventstore.Any, 1), write("x", eventstore.Any, 1)}
		},
		"the same append twice": func() (a, b []eventstore.Write) {
			w := writes{check("t", zero), write("x", zero, 1), write("y", none, 2)}
			return w, w
		},
		"the same append twice that expects nothing": func() (a, b []eventstore.Write) {
			w := writes{check("t", zero), write("x", eventstore.Any, 1), write("y", eventstore.Any, 2)}
			return w, w
		},
		"checks alone": func() (a, b []eventstore.Write) {
			return writes{check("t", zero), check("x", zero)}, writes{write("t", zero, 1), write("x", zero, 1)}
		},
	}
}

// A schedule stops process A before a call, and process B before one of its own. Then both resume, or are killed: at once, or after
// one more call, like a call that was in flight.
type schedule struct {
	stopA, stopB int
	moreA        int  // calls of A after that, before it is killed; -1: it is not killed
	killB        bool // else it resumes after A has ended or died
}

// Every interleaving of two processes must have the result of one append after the other. The processes run by turns, so the race
// detector would add nothing to TestAppend_Storm but minutes.
func TestAppend_Interleavings(t *testing.T) {
	t.Parallel()
	for name, pair := range pairs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := esdbtest.Shared(t)
			cases := 0
			for stopA := 1; ; stopA++ {
				reached := false
				for stopB := 1; ; stopB++ {
					stopped := false
					for _, moreA := range []int{-1, 0, 1} {
						for _, killB := range []bool{false, true} {
							cases++
							a, b := interleave(t, server, pair, schedule{stopA, stopB, moreA, killB})
							reached, stopped = reached || a, stopped || b
						}
					}
					if !stopped {
						break
					}
				}
				if !reached {
					break
				}
			}
			t.Log(cases, "interleavings")
		})
	}
}

// interleave runs one schedule, and reports whether each process reached its stop.
func interleave(t *testing.T, url string, pair func() (a, b []eventstore.Write), plan schedule) (reachedA, reachedB bool) {
	options := Options{
		URL: url, Namespace: ulid.Make().String() + "/", Log: slog.New(slog.DiscardHandler), Poll: 5 * time.Millisecond, Timeout: time.Minute,
	}
	a, b, judge := startProcess(t, options), startProcess(t, options), startProcess(t, options)
	defer a.Close()
	defer b.Close()
	defer judge.Close()
	for _, s := range []string{"t", "x"} {
		_, err := judge.Append(t.Context(), write(s, eventstore.NoStream, 1))
		require.NoError(t, err)
	}
	var ofA, ofB sent
	ofA.writes, ofB.writes = pair()
	stopped, resume, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	b.stopAt = plan.stopB
	b.stop = func() {
		reachedB = true
		close(stopped)
		if plan.killB {
			b.dead = plan.stopB
			return
		}
		<-resume
	}
	a.stopAt = plan.stopA
	a.stop = func() {
		reachedA = true
		go func() {
			defer close(ended)
			b.send(&ofB)
		}()
		select {
		case <-stopped:
		case <-ended:
		}
		if plan.moreA >= 0 {
			a.dead = plan.stopA + plan.moreA
		}
	}
	a.send(&ofA)
	close(resume)
	if reachedA {
		<-ended
	}
	description := fmt.Sprintf("%+v\nA: %v %v %q\nB: %v %v %q", plan, ofA.position, ofA.err, a.trail, ofB.position, ofB.err, b.trail)
	judgeLog(t, description, judge.Store, []*sent{&ofA, &ofB})
	return reachedA, reachedB
}
