// Package storetest says what an eventstore.Store must hold, as tests that every engine runs.
//
// An engine's own test opens empty stores for it:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, open, storetest.Capabilities{GapFree: true})
//	}
//
// The laws stand in groups. Laws of one group share a store and keep to streams of their own, so that they also
// prove that strangers on the same log do not disturb each other; those that look at the whole log have a store to
// themselves. Nothing sleeps: what a subscription leaves out shows when a later event arrives.
package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/leadlog/leadlog/eventstore"
)

// Capabilities are what engines differ in.
type Capabilities struct {
	GapFree bool // positions are 1, 2, 3, …
}

// patience is how long a law waits for what must come. It is only ever spent in full on a store that is broken.
const patience = 3 * time.Minute

// Run tests a store. Every call of open gives an empty store of its own, and cleans up by t.
func Run(t *testing.T, open func(t testing.TB) eventstore.Store, can Capabilities) {
	t.Helper()
	suite{open: open, can: can, patience: patience}.run(t)
}

type suite struct {
	open     func(testing.TB) eventstore.Store
	can      Capabilities
	patience time.Duration
}

// law is one sentence about stores, and the test of it.
type law struct {
	says  string
	holds func(*testing.T, log)
}

func (s suite) run(t *testing.T) {
	s.together(t, "expectations", expectationLaws())
	s.together(t, "several streams", severalStreamsLaws())
	s.together(t, "checks", checkLaws())
	s.together(t, "the same append again", retryLaws())
	s.together(t, "what is not well formed", invalidLaws())
	s.together(t, "reading", readLaws())
	s.together(t, "round trip", roundTripLaws())
	s.together(t, "stream names", nameLaws())
	s.apart(t, "the whole log", wholeLogLaws())
	s.apart(t, "subscriptions", subscriptionLaws())
	s.together(t, "filters", filterLaws())
	s.together(t, "races", raceLaws())
	s.apart(t, "many writers", manyWritersLaws())
	s.together(t, "interruptions", interruptionLaws())
	s.apart(t, "the model", modelLaws())
}

// together tests laws side by side on one store.
func (s suite) together(t *testing.T, group string, laws []law) {
	t.Run(group, func(t *testing.T) {
		t.Parallel()
		shared := s.openLog(t)
		for _, law := range laws {
			t.Run(law.says, func(t *testing.T) {
				t.Parallel()
				law.holds(t, shared)
			})
		}
	})
}

// apart tests each law on a store that nobody else uses.
func (s suite) apart(t *testing.T, group string, laws []law) {
	t.Run(group, func(t *testing.T) {
		t.Parallel()
		for _, law := range laws {
			t.Run(law.says, func(t *testing.T) {
				t.Parallel()
				law.holds(t, s.openLog(t))
			})
		}
	})
}

func (s suite) openLog(t *testing.T) log {
	return log{Store: s.open(t), can: s.can, patience: s.patience}
}

// log is the store under test.
type log struct {
	eventstore.Store
	can      Capabilities
	patience time.Duration
}

// context ends when the test does, or its patience.
func (l log) context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), l.patience)
	t.Cleanup(cancel)
	return ctx
}
