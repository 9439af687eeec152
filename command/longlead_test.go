package command_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// counted is a store that counts the events of leads that are read.
type counted struct {
	eventstore.Store
	events atomic.Int64
}

func (c *counted) Read(ctx context.Context, stream string, from eventstore.Revision) iter.Seq2[eventstore.Recorded, error] {
	return func(yield func(eventstore.Recorded, error) bool) {
		for recorded, err := range c.Store.Read(ctx, stream, from) {
			if strings.HasPrefix(stream, event.LeadPrefix) {
				c.events.Add(1)
			}
			if !yield(recorded, err) {
				return
			}
		}
	}
}

// startCounted starts a process on a log that stays in memory.
func startCounted(t *testing.T, can storetest.Capabilities) (process, *counted) {
	t.Helper()
	store := &counted{Store: storetest.Memory(can)}
	directory, err := command.NewDirectory(store, time.Now)
	require.NoError(t, err)
	p := process{store: store, directory: directory, Handlers: command.NewHandlers(command.Options{
		Store: store, Claims: claim.NewNames(claimKey()), Directory: directory, Secrets: &secrets{}, Log: quiet(),
		Resolver: noNames{}, Forgetting: forgetting{&oblivion{}, func() error { return nil }},
	})}
	p.provision(t)
	return p, store
}

// long is more events than are read again and again.
const long = 300

// A CRM that writes back what it knows makes a lead's stream as long as a monitor that fills in its form.
func TestALeadThatIsChangedAgainAndAgainIsReadOnFromWhereItWasLeft(t *testing.T) {
	t.Parallel()
	p, log := startCounted(t, storetest.Capabilities{Transactional: true, GapFree: true})
	captured, err := p.capture(t.Context(), `{"phone":"+919876500001"}`)
	require.NoError(t, err)
	change := func(i int) {
		_, err := p.UpdateLead(t.Context(), command.UpdateLead{
			Caller: owner, LeadID: captured.Lead.ID, Body: members(fmt.Sprintf(`{"opportunityValue":%d}`, i)),
		})
		require.NoError(t, err)
	}
	for i := range long {
		change(i)
	}
	log.events.Store(0)
	change(long)
	require.LessOrEqual(t, log.events.Load(), int64(2))
}
