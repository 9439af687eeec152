package command_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// behind is a store that does not have a stream yet when it is asked for it first, like a follower in a cluster.
type behind struct {
	eventstore.Store
	stream string
}

func (b *behind) Read(ctx context.Context, stream string, from eventstore.Revision) iter.Seq2[eventstore.Recorded, error] {
	if stream == b.stream {
		b.stream = ""
		return func(func(eventstore.Recorded, error) bool) {}
	}
	return b.Store.Read(ctx, stream, from)
}

// A lead that is about to depart into another must meet a conflict when the other one ends, although the store that was
// asked knows nothing of it yet.
func TestALeadThatEndsClosesThoseItAwaitsOnAStoreThatIsBehind(t *testing.T) {
	t.Parallel()
	late := &behind{Store: &storetest.Ordered{Store: storetest.Memory()}}
	p, _ := startCountedOn(t, late)
	var ids []string
	for _, phone := range []string{"+919876500001", "+919876500002"} {
		captured := p.captured(t, `{"phone":"`+phone+`"}`)
		ids = append(ids, captured.Lead.ID)
	}
	eventType, data, err := event.Encode(event.LeadJoining{From: ids[1]})
	require.NoError(t, err)
	storetest.Append(t, late, eventstore.Write{Stream: event.LeadStream(ids[0]), Expect: eventstore.At(0), Events: []eventstore.Event{{
		ID: ulid.Make(), Type: eventType, At: time.Now().UTC().Truncate(time.Millisecond), Data: data, Metadata: event.Metadata{Account: "acme"},
	}}})

	late.stream = event.LeadStream(ids[1])
	_, err = p.EraseLead(t.Context(), command.EraseLead{Caller: owner, LeadID: ids[0]})
	require.NoError(t, err)
	var types []string
	for recorded, err := range late.Read(t.Context(), event.LeadStream(ids[1]), 0) {
		require.NoError(t, err)
		types = append(types, recorded.Type)
	}
	require.Equal(t, event.Types(event.LeadCreated{}, event.LeadWaived{}), types)
}
