// Package storetest is the conformance suite of eventstore.Store, which every engine runs.
//
// An engine's own test opens empty stores for it:
//
//	func TestStore_Conformance(t *testing.T) {
//		storetest.Run(t, open, storetest.Capabilities{GapFree: true})
//	}
//
// Most tests share a store and use their own streams, which also tests that callers on one log do not disturb each
// other. Tests of the whole log have their own stores. No test sleeps: an event that a subscription skips is detected
// when a later one arrives.
//
// The suite itself is tested with [Memory], an in-memory store, and with faults injected into it.
package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/leadlog/leadlog/eventstore"
)

// Capabilities are the differences between engines.
type Capabilities struct {
	GapFree bool // positions are 1, 2, 3, …
	Events  int  // written by many writers; 0 means 10,000
}

// timeout is the timeout of a test. Only a broken store reaches it.
const timeout = 3 * time.Minute

// Run tests a store. Each call of open returns a new empty store, which is closed with t.
func Run(t *testing.T, open func(t testing.TB) eventstore.Store, can Capabilities) {
	t.Helper()
	suite{open: open, can: can, timeout: timeout}.run(t)
}

type suite struct {
	open    func(testing.TB) eventstore.Store
	can     Capabilities
	timeout time.Duration
}

// test is one property of every store.
type test struct {
	name string
	run  func(*testing.T, log)
}

func (s suite) run(t *testing.T) {
	shared := s.openLog(t)
	together(t, shared, "expectations", expectationTests())
	together(t, shared, "streams", severalStreamsTests())
	together(t, shared, "checks", checkTests())
	together(t, shared, "retries", retryTests())
	together(t, shared, "invalid", invalidTests())
	together(t, shared, "round trip", roundTripTests())
	together(t, shared, "names", nameTests())
	together(t, shared, "filters", filterTests())
	long := s.openLog(t)
	together(t, long, "reads", readTests())
	together(t, long, "races", raceTests())
	together(t, long, "interruptions", interruptionTests())
	s.apart(t, "log", wholeLogTests())
	s.apart(t, "ranges", rangeTests())
	s.apart(t, "model", modelTests())
	s.apart(t, "subscriptions", subscriptionTests())
	s.apart(t, "many writers", manyWritersTests())
}

// together runs tests in parallel on a store.
func together(t *testing.T, shared log, group string, tests []test) {
	t.Run(group, func(t *testing.T) {
		t.Parallel()
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				test.run(t, shared)
			})
		}
	})
}

// apart runs each test on its own store.
func (s suite) apart(t *testing.T, group string, tests []test) {
	t.Run(group, func(t *testing.T) {
		t.Parallel()
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				test.run(t, s.openLog(t))
			})
		}
	})
}

func (s suite) openLog(t *testing.T) log {
	return log{Store: s.open(t), can: s.can, timeout: s.timeout}
}

// log is the store under test.
type log struct {
	eventstore.Store
	can     Capabilities
	timeout time.Duration
}

// context is done when the test ends, and after its timeout.
func (l log) context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), l.timeout)
	t.Cleanup(cancel)
	return ctx
}
