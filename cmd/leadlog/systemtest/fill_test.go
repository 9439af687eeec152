package systemtest

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/postgres"
)

// fill puts leads of the account acme on the log, from a number on and so many, each with the claim on its phone and with one merge, as fast as
// the log takes them. It returns their ids.
func fill(t *testing.T, settings map[string]string, first, leads int, metadata map[string]jsontext.Value) (ids []string) {
	t.Helper()
	store, err := postgres.Open(t.Context(), postgres.Options{URL: settings["LEADLOG_DATABASE_URL"], Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer store.Close()
	at := time.Now().UTC().Truncate(time.Millisecond)
	fact := func(data event.Data) eventstore.Event {
		eventType, encoded, err := event.Encode(data)
		require.NoError(t, err)
		return eventstore.Event{ID: ulid.Make(), Type: eventType, At: at, Data: encoded,
			Metadata: event.Metadata{Account: "acme", Actor: "user:ada", Credential: "jwt:ada"}}
	}
	for n := first; n < first+leads; n++ {
		id := ulid.Make().String()
		ids = append(ids, id)
		created := event.LeadCreated{
			ContactUID: ulid.Make().String(), Name: "Filled", Phone: fmt.Sprintf("+9170000%05d", n), Status: "new", Temperature: "warm",
			Source: "website", Metadata: metadata,
		}
		_, err := store.Append(context.WithoutCancel(t.Context()),
			eventstore.Write{Stream: event.ClaimPrefix + "filled-" + id, Expect: eventstore.NoStream, Events: []eventstore.Event{
				fact(event.ClaimTaken{Kind: "phone", Holder: id})}},
			eventstore.Write{Stream: event.LeadStream(id), Expect: eventstore.NoStream, Events: []eventstore.Event{
				fact(created), fact(event.LeadMerged{Source: "whatsapp", NewSource: true, Metadata: metadata, Changed: []string{"metadata"}})}})
		require.NoError(t, err)
	}
	return ids
}
