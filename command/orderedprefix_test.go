//go:build !race

package command_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/storetest"
)

// A process is killed between any two writes of a command. Then nothing follows, or one of what may follow.
func TestWhatAKilledCommandLeavesIsInNobodysWay(t *testing.T) {
	t.Parallel()
	for _, stopped := range slices.Concat(captures(""), captures("key"), others) {
		follow := map[string]func(w *world, ask func(process) error){
			"nothing follows": func(w *world, _ func(process) error) { w.obeyAndServe() },
			"the same again": func(w *world, ask func(process) error) {
				served(w.t, ask(w.process(nil)))
				w.obeyAndServe()
				w.healed()
			},
			"the same again, killed again": func(w *world, ask func(process) error) {
				for n := range 12 {
					if err := ask(w.process(stopAt(n))); err == nil {
						break
					}
				}
				w.obeyAndServe()
			},
			"healing": func(w *world, ask func(process) error) {
				w.healed()
				w.obeyAndServe()
				w.healed()
			},
			"healing that is killed": func(w *world, ask func(process) error) {
				for n := range 4 {
					_, err := w.heal(w.process(stopAt(n)))
					require.True(w.t, err == nil || errors.Is(err, errKilled))
					w.obey()
				}
				w.obeyAndServe()
				w.healed()
			},
		}
		for name, then := range follow {
			t.Run(fmt.Sprintf("%s, %s", stopped.name, name), func(t *testing.T) {
				t.Parallel()
				everyPrefix(t, stopped, then)
			})
		}
	}
}

func TestAnyArrivalMayFollowOneThatWasKilled(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "key"} {
		for _, stopped := range captures(key) {
			t.Run(stopped.name+" "+key, func(t *testing.T) {
				t.Parallel()
				for _, next := range shapes {
					everyPrefix(t, stopped, func(w *world, ask func(process) error) {
						served(w.t, w.capture(w.process(nil), next.body, key).failure())
						w.obey()
						served(w.t, ask(w.process(nil)))
						w.obeyAndServe()
					})
				}
			})
		}
	}
}

// What makes claims safe where writes come one by one costs a new lead nothing: its process reads only what it checks.
func TestACaptureOfANewLeadOnlyChecksAndWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var steps []storetest.Step
	p := w.process(func(step storetest.Step) error {
		steps = append(steps, step)
		return nil
	})
	require.NoError(t, w.capture(p, `{"phone":"+919876500005"}`, "").err)
	steps = nil
	require.NoError(t, w.capture(p, `{"phone":"+919876500006","email":"six@example.com"}`, "").err)
	written := slices.DeleteFunc(slices.Clone(steps), func(s storetest.Step) bool { return !s.Writes })
	require.Len(t, steps, 4)
	require.Len(t, written, 3, "two claims and the lead, after a check of the account")
	steps = nil
	require.NoError(t, w.capture(p, `{"phone":"+919876500007","email":"seven@example.com"}`, "key").err)
	require.Len(t, steps, 5, "and a key one more")
}
