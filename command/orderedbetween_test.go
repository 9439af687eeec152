//go:build !race

package command_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// letIn lets others go first before a process writes for the nth time, counted from 0.
func letIn(n int, others func()) (before func(storetest.Step) error, did *bool) {
	return letInAt(n, func(step storetest.Step) bool { return step.Writes }, others)
}

// letInAt is letIn for steps of a kind.
func letInAt(n int, kind func(storetest.Step) bool, others func()) (before func(storetest.Step) error, did *bool) {
	did = new(bool)
	return func(step storetest.Step) error {
		if !kind(step) {
			return nil
		}
		if n--; n == -1 {
			*did = true
			others()
		}
		return nil
	}, did
}

// betweenAnyTwo runs a command once for each of its writes, with a second one before it, from beginning to end.
func betweenAnyTwo(t *testing.T, first asked, second func(w *world) error) {
	betweenAny(t, func(step storetest.Step) bool { return step.Writes }, first, second)
}

// betweenAny is betweenAnyTwo for steps of a kind.
func betweenAny(t *testing.T, kind func(storetest.Step) bool, first asked, second func(w *world) error) {
	for n, more := 0, true; more; n++ {
		require.Less(t, n, 200, "a command that never ends")
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			ask := first.with(w)
			var err error
			before, did := letInAt(n, kind, func() { err = second(w) })
			served(t, ask(w.process(before)))
			served(t, err)
			w.obeyAndServe()
			w.healed()
			more = *did
			if t.Failed() {
				t.Logf("between %d steps and the next", n)
			}
		})
	}
}

func TestAnArrivalMayComeBetweenAnyTwoWritesOfAnother(t *testing.T) {
	t.Parallel()
	for _, keys := range [][2]string{{"", ""}, {"key", "key"}, {"key", "other"}} {
		for _, first := range captures(keys[0]) {
			t.Run(fmt.Sprintf("%s %q", first.name, keys), func(t *testing.T) {
				t.Parallel()
				for _, second := range shapes {
					betweenAnyTwo(t, first, func(w *world) error {
						return w.capture(w.process(nil), second.body, keys[1]).failure()
					})
				}
			})
		}
	}
}

func TestAReleaseAndAnArrivalMayComeBetweenAnyTwoWritesOfEachOther(t *testing.T) {
	t.Parallel()
	for _, released := range releases {
		for _, shape := range captures("") {
			t.Run(released.name+", "+shape.name, func(t *testing.T) {
				t.Parallel()
				betweenAnyTwo(t, released, func(w *world) error { return shape.with(w)(w.process(nil)) })
				betweenAnyTwo(t, shape, func(w *world) error { return released.with(w)(w.process(nil)) })
			})
		}
	}
}

func TestAJoinAndAnythingElseMayComeBetweenAnyTwoWritesOfEachOther(t *testing.T) {
	t.Parallel()
	for _, joined := range joins {
		for _, other := range slices.Concat(captures(""), captures("key"), releases, joins) {
			t.Run(joined.name+", "+other.name, func(t *testing.T) {
				t.Parallel()
				betweenAnyTwo(t, joined, func(w *world) error { return other.with(w)(w.process(nil)) })
				betweenAnyTwo(t, other, func(w *world) error { return joined.with(w)(w.process(nil)) })
			})
		}
	}
}

func TestAnErasureAndAnythingElseMayComeBetweenAnyTwoWritesOfEachOther(t *testing.T) {
	t.Parallel()
	for _, erased := range erasures {
		for _, other := range slices.Concat(captures(""), captures("key"), releases, joins, erasures) {
			t.Run(erased.name+", "+other.name, func(t *testing.T) {
				t.Parallel()
				betweenAnyTwo(t, erased, func(w *world) error { return other.with(w)(w.process(nil)) })
				betweenAnyTwo(t, other, func(w *world) error { return erased.with(w)(w.process(nil)) })
			})
		}
	}
}

// Of what a join has read, all may be gone when it reads on.
func TestAnErasureOrAJoinMayComeBetweenAnyTwoStepsOfAJoin(t *testing.T) {
	t.Parallel()
	for _, joined := range joins {
		for _, other := range slices.Concat(erasures, joins) {
			t.Run(joined.name+", "+other.name, func(t *testing.T) {
				t.Parallel()
				betweenAny(t, anyStep, joined, func(w *world) error { return other.with(w)(w.process(nil)) })
			})
		}
	}
}

func anyStep(storetest.Step) bool { return true }

// Nobody is sent to a lead that is erased.
func TestAJoinThatIsAskedForAgainWhileTheLeadIsErasedIsDoneOrFindsNothing(t *testing.T) {
	t.Parallel()
	for n, more := 0, true; more; n++ {
		w := newWorld(t)
		require.NoError(t, join(1, 2).with(w)(w.process(nil)))
		ask := command.JoinLeads{Caller: owner, LeadID: w.arrived[1].answer.Lead.ID, Body: members(fmt.Sprintf(`{"from":%q}`, w.arrived[0].answer.Lead.ID))}
		before, did := letInAt(n, anyStep, func() { require.NoError(t, erase(2).with(w)(w.process(nil))) })
		_, err := w.process(before).JoinLeads(t.Context(), ask)
		if err != nil {
			require.ErrorIs(t, err, lead.ErrNotFound, "step %d", n)
		}
		more = *did
	}
}

func TestACommandMayComeBetweenAnyTwoWritesOfAnother(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]func(w *world) error{
		"heal": func(w *world) error {
			_, err := w.heal(w.process(nil))
			return err
		},
		"heal, and heal again": func(w *world) error {
			_, err := w.heal(w.process(nil))
			if err == nil {
				_, err = w.heal(w.process(nil))
			}
			return err
		},
		"create a token": func(w *world) error {
			_, err := w.process(nil).CreateToken(w.t.Context(), w.newToken())
			return err
		},
		"register an endpoint": func(w *world) error {
			_, err := w.process(nil).RegisterWebhookEndpoint(w.t.Context(), w.newEndpoint())
			return err
		},
	} {
		for _, first := range append(append(captures(""), captures("key")...), others...) {
			t.Run(first.name+", "+name, func(t *testing.T) {
				t.Parallel()
				betweenAnyTwo(t, first, second)
			})
		}
	}
}

// A request that starts after a rotation or deletion was answered is refused, wherever an earlier one of the same value
// was then, and whatever its process believes.
func TestARevocationBetweenAnyTwoWritesRefusesWhatComesAfterIt(t *testing.T) {
	t.Parallel()
	for name, revoke := range map[string]func(w *world, id string) error{
		"rotation": func(w *world, id string) error {
			_, err := w.process(nil).RotateToken(w.t.Context(), command.RotateToken{Caller: w.asker(), TokenID: id})
			return err
		},
		"deletion": func(w *world, id string) error {
			_, err := w.process(nil).DeleteToken(w.t.Context(), command.DeleteToken{Caller: w.asker(), TokenID: id})
			return err
		},
	} {
		for _, shape := range shapes {
			t.Run(name+", "+shape.name, func(t *testing.T) {
				t.Parallel()
				for n, more := 0, true; more; n++ {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t)
						issued := w.tokens(1)[0]
						bystander := w.process(nil)
						_, err := bystander.directory.ConfirmToken(w.t.Context(), issued.Value)
						require.NoError(t, err)
						before, did := letIn(n, func() {
							require.NoError(t, revoke(w, issued.ID))
							late := w.captureBy(bystander, issued, `{"phone":"+919876500005"}`)
							require.ErrorIs(t, late.err, command.ErrUnauthorized)
						})
						first := w.captureBy(w.process(before), issued, shape.body)
						if first.failure() != nil {
							require.ErrorIs(t, first.err, command.ErrUnauthorized)
						}
						w.obeyAndServe()
						w.healed()
						more = *did
					})
				}
			})
		}
	}
}

// turns lets one process at a time do one thing at a time, in an order that a seed gives.
type turns struct {
	random  *rand.Rand
	mu      sync.Mutex
	waiting []chan error
	running int
}

func (s *turns) before(storetest.Step) error {
	turn := make(chan error)
	s.mu.Lock()
	s.waiting = append(s.waiting, turn)
	s.mu.Unlock()
	return <-turn
}

func (s *turns) start(ask func()) {
	s.mu.Lock()
	s.running++
	s.mu.Unlock()
	go func() {
		ask()
		s.mu.Lock()
		s.running--
		s.mu.Unlock()
	}()
}

// next gives somebody the turn, or kills it, or lets those who wait before they try again wait no longer.
func (s *turns) next() (more bool) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 || s.random.IntN(8) == 0 {
		s.mu.Unlock()
		time.Sleep(time.Millisecond)
		s.mu.Lock()
		return s.running > 0
	}
	i := s.random.IntN(len(s.waiting))
	turn := s.waiting[i]
	s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
	var verdict error
	if s.random.IntN(60) == 0 {
		verdict = errKilled
	}
	turn <- verdict
	return true
}

// Five processes do whatever they do in whatever order, and some are killed.
func TestNoOrderOfThingsBreaksALaw(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &turns{random: rand.New(rand.NewPCG(seed, 0))}
				w := newWorld(t)
				w.tokens(3)
				asks, errs := make([]func(process) error, 5), make([]error, 5)
				for i := range asks { // what some of them need is there before any of them begins
					all := captures([]string{"", "key", "other"}[s.random.IntN(3)])
					all = append(all, createFirst, healing, releases[s.random.IntN(len(releases))])
					if seed%2 == 0 && s.random.IntN(2) == 0 {
						all = append(slices.Clone(joins), erasures[s.random.IntN(len(erasures))])
					}
					asks[i] = all[s.random.IntN(len(all))].with(w)
				}
				for i, ask := range asks {
					p := w.process(s.before)
					s.start(func() { errs[i] = ask(p) })
				}
				for s.next() {
				}
				for _, err := range errs {
					if !errors.Is(err, errKilled) {
						served(t, err)
					}
				}
				w.obeyAndServe()
				w.healed()
			})
		})
	}
}
