package esdb

import (
	"fmt"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

// pairs returns pairs of conflicting appends. The streams t and x have one event.
func pairs() map[string]func() (a, b []eventstore.Write) {
	type writes = []eventstore.Write
	none, zero := eventstore.NoStream, eventstore.At(0)
	check := eventstore.Check
	return map[string]func() (a, b []eventstore.Write){
		"the same streams in opposite order": func() (a, b []eventstore.Write) {
			return writes{
				write("x", zero, 1), write("y", none, 2), write("u", none, 1),
			}, writes{write("u", none, 1), write("y", none, 1), write("x", zero, 1)}
		},
		"each checks a stream of the other": func() (a, b []eventstore.Write) {
			return writes{check("y", none), write("z", none, 1)}, writes{check("z", none), write("y", none, 1)}
		},
		"each checks a stream of the other, with more streams": func() (a, b []eventstore.Write) {
			return writes{
				check("y", none), write("x", zero, 1), write("z", none, 2),
			}, writes{check("x", zero), write("y", none, 1), write("w", none, 1)}
		},
		"a capture and a rotation": func() (a, b []eventstore.Write) {
			return writes{check("t", zero), write("c", none, 1), write("l", none, 1)}, writes{write("t", zero, 1)}
		},
		"a capture and a rotation, with more streams": func() (a, b []eventstore.Write) {
			return writes{
				check("t", zero), write("c", none, 1), write("l", none, 1),
			}, writes{write("t", zero, 1), write("u", none, 1)}
		},
		"a transaction and a single write to its home": func() (a, b []eventstore.Write) {
			return writes{write("x", zero, 1), write("y", none, 1)}, writes{write("y", none, 1)}
		},
		"a transaction and a single write outside its home": func() (a, b []eventstore.Write) {
			return writes{write("x", zero, 1), write("y", none, 1)}, writes{write("x", zero, 1)}
		},
		"two at any revision": func() (a, b []eventstore.Write) {
			return writes{
				write("x", eventstore.Any, 2), write("y", eventstore.Any, 1),
			}, writes{write("y", eventstore.Any, 1), write("x", eventstore.Any, 1)}
		},
		"the same append twice": func() (a, b []eventstore.Write) {
			w := writes{check("t", zero), write("x", zero, 1), write("y", none, 2)}
			return w, w
		},
		"the same append twice at any revision": func() (a, b []eventstore.Write) {
			w := writes{check("t", zero), write("x", eventstore.Any, 1), write("y", eventstore.Any, 2)}
			return w, w
		},
		"checks alone": func() (a, b []eventstore.Write) {
			return writes{check("t", zero), check("x", zero)}, writes{write("t", zero, 1), write("x", zero, 1)}
		},
	}
}

// A schedule stops process A before one of its calls, and process B before one of its calls. Then each resumes or is
// killed, at once or after one more call, which stands for a call in flight.
type schedule struct {
	stopA, stopB int
	moreA        int  // further calls of A before it is killed; -1: it is not killed
	killB        bool // otherwise it resumes after A has returned or was killed
}

// forms are the forms in which two processes append.
var forms = map[string][2]Server{
	"by locks":                   {{}, {}},
	"by AppendRecords":           {{AppendRecords: true}, {AppendRecords: true}},
	"by locks, by AppendRecords": {{}, {AppendRecords: true}},
	"by AppendRecords, by locks": {{AppendRecords: true}, {}},
}

// Every interleaving of two processes must have the result of a sequential execution, whatever the forms of their
// appends.
func TestAppend_Interleavings(t *testing.T) {
	t.Parallel()
	for form, servers := range forms {
		for name, pair := range pairs() {
			t.Run(form+"/"+name, func(t *testing.T) {
				t.Parallel()
				interleaveAll(t, servers, pair)
			})
		}
	}
}

func interleaveAll(t *testing.T, servers [2]Server, pair func() (a, b []eventstore.Write)) {
	options := namespaced(t)
	connected := startProcess(t, options)
	t.Cleanup(connected.Close)
	cases := 0
	for stopA := 1; ; stopA++ {
		reached := false
		for stopB := 1; ; stopB++ {
			stopped := false
			for _, moreA := range []int{-1, 0, 1} {
				for _, killB := range []bool{false, true} {
					if moreA >= 0 && !reached || killB && !stopped {
						continue // it does not differ from an earlier one
					}
					cases++
					options.Namespace = ulid.Make().String() + "/"
					a, b := interleave(t, connected.conn, options, servers, pair, schedule{stopA, stopB, moreA, killB})
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
}

// interleave runs one schedule, and returns whether each process reached its stop. The processes share a connection.
func interleave(
	t *testing.T, conn *connection, options Options, servers [2]Server, pair func() (a, b []eventstore.Write),
	plan schedule,
) (reachedA, reachedB bool) {
	a, b, observer := startProcess(t, options), startProcess(t, options), startProcess(t, options)
	for _, p := range []*process{a, b, observer} {
		p.conn = conn
		defer p.close(errClosed)
	}
	a.server.Store(&servers[0])
	b.server.Store(&servers[1])
	for _, s := range []string{"t", "x"} {
		_, err := observer.Append(t.Context(), write(s, eventstore.NoStream, 1))
		require.NoError(t, err)
	}
	var sentByA, sentByB sent
	sentByA.writes, sentByB.writes = pair()
	stopped, resume, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	b.stopAt = plan.stopB
	b.stop = func() {
		reachedB = true
		close(stopped)
		if plan.killB {
			b.killedAt = plan.stopB
			return
		}
		<-resume
	}
	a.stopAt = plan.stopA
	a.stop = func() {
		reachedA = true
		go func() {
			defer close(ended)
			b.send(&sentByB)
		}()
		select {
		case <-stopped:
		case <-ended:
		}
		if plan.moreA >= 0 {
			a.killedAt = plan.stopA + plan.moreA
		}
	}
	a.send(&sentByA)
	close(resume)
	if reachedA {
		<-ended
	}
	description := fmt.Sprintf("%+v\nA: %v %v %q\nB: %v %v %q", plan, sentByA.position, sentByA.err, a.trail,
		sentByB.position, sentByB.err, b.trail)
	requireSequential(t, description, observer.Store, []*sent{&sentByA, &sentByB})
	return reachedA, reachedB
}
