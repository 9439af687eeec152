package audit_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/merkle"
)

// Stored checkpoints are compared with those of later versions. The hashes were computed by another program according
// to deploy/docs/audit.md.
func TestLog_KnownRoot(t *testing.T) {
	t.Parallel()
	first := eventstore.Recorded{Stream: "lead-1", Revision: 3, Position: 9, Event: eventstore.Event{
		ID: ulid.ULID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, Type: "lead.created.v1",
		At:       time.UnixMicro(1_790_000_000_000_123),
		Metadata: event.Metadata{Account: "acme", Actor: "user:ada", Line: "7"}, Data: []byte(`{"source":"api"}`),
	}}
	second := first
	second.Data = bytes.Replace(first.Data, []byte("api"), []byte("ads"), 1)
	var log merkle.Tiles
	for _, e := range []eventstore.Recorded{first, second} {
		leaf, err := audit.LogLeaf(e)
		require.NoError(t, err)
		log.Add(leaf)
		head, err := log.Head()
		require.NoError(t, err)
		require.Equal(t,
			[]string{
				"FhC4oIWUNVkitkXRzf9MJ+U8frqejeglF9acCEZIdOA=", "1sb7+pvn4welEpzYPbJv4DVZuyt6g497aq2t8GW9lrk=",
			}[head.N-1], head.Hash.String())
	}
}

func TestLogLeaf_Fields(t *testing.T) {
	t.Parallel()
	given := eventstore.Recorded{Stream: "lead-1", Event: eventstore.Event{Type: "lead.created.v1", Data: []byte("{}")}}
	leaf := func(change func(*eventstore.Recorded)) string {
		e := given
		change(&e)
		hash, err := audit.LogLeaf(e)
		require.NoError(t, err)
		return hash.String()
	}
	same := leaf(func(*eventstore.Recorded) {})
	require.Equal(t, same, leaf(func(e *eventstore.Recorded) { e.Position = 7 }))
	for what, change := range map[string]func(*eventstore.Recorded){
		"id":                          func(e *eventstore.Recorded) { e.ID[15]++ },
		"time":                        func(e *eventstore.Recorded) { e.At = e.At.Add(time.Microsecond) },
		"revision":                    func(e *eventstore.Recorded) { e.Revision++ },
		"stream":                      func(e *eventstore.Recorded) { e.Stream = "lead-2" },
		"type":                        func(e *eventstore.Recorded) { e.Type = "lead.merged.v1" },
		"metadata":                    func(e *eventstore.Recorded) { e.Metadata.IP = "192.0.2.1" },
		"data":                        func(e *eventstore.Recorded) { e.Data = []byte("{ }") },
		"a byte moved between fields": func(e *eventstore.Recorded) { e.Stream, e.Type = "lead-1l", "ead.created.v1" },
	} {
		require.NotEqual(t, same, leaf(change), what)
	}
}

// The hasher caches the fields that events of one append share. The leaf of an event must not depend on other events.
func TestLeafHasher_AnyOrder(t *testing.T) {
	t.Parallel()
	long := eventstore.Recorded{Stream: "lead-1", Revision: 12, Event: eventstore.Event{
		ID: ulid.ULID{1}, Type: "lead.created.v1", At: time.UnixMicro(1_790_000_000_000_123),
		Metadata: event.Metadata{Account: "acme", IP: "192.0.2.1"}, Data: []byte(`{"name":"Asha"}`),
	}}
	short := eventstore.Recorded{
		Stream: "claim-1",
		Event: eventstore.Event{
			ID: ulid.ULID{2}, Type: "claim.taken.v1", At: long.At, Metadata: event.Metadata{Account: "acme"},
			Data: []byte("{}"),
		},
	}
	later := short
	later.At = later.At.Add(time.Second)
	var h audit.LeafHasher
	for _, e := range []eventstore.Recorded{long, short, later, later, short, long, {}} {
		record, err := audit.LogRecord(e)
		require.NoError(t, err)
		leaf, err := h.Leaf(&e)
		require.NoError(t, err)
		require.Equal(t, tlog.RecordHash(record), leaf)
	}
}
