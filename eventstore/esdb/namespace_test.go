//go:build !race

package esdb_test

import (
	"testing"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// The store shares a server with other logs and with system events.
func TestStore_ConformanceOnSharedServer(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	server.NoiseAfterAppends()
	storetest.Run(t, func(t testing.TB) eventstore.Store { return open(t, namespaced(server.URL())) }, storetest.Capabilities{})
}
