//go:build !race

package esdb_test

import (
	"testing"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// TestTheStoreHoldsItBesideOthers has it share a server with other logs, and with events that the server writes itself
// before, after and between. On a server of its own the same code runs with the race detector.
func TestTheStoreHoldsItBesideOthers(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	server.NoiseBeside()
	storetest.Run(t, func(t testing.TB) eventstore.Store { return open(t, namespaced(server.URL())) }, storetest.Capabilities{})
}
