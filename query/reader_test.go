package query_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/query"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var firstPage = query.Page{Limit: 200}

// readerOf returns a World with a history of the given number of events, and a reader of its views.
func readerOf(t *testing.T, seed uint64, events int) (*projectiontest.World, *projectiontest.History, *query.Reader) {
	t.Helper()
	w := projectiontest.New(t)
	history := w.WriteHistory(t, seed, events)
	w.Project(t)
	return w, history, query.New(w.Pool, w.Store)
}

func fold[S any](t *testing.T, w *projectiontest.World, stream string, evolve func(S, event.Fact) S) S {
	t.Helper()
	state, end, err := eventstore.Load(t.Context(), w.Store, stream, evolve)
	require.NoError(t, err)
	require.NotEqual(t, eventstore.NoStream, end)
	return state
}

// text encodes an answer as JSON.
func text(t *testing.T, answer any) string {
	t.Helper()
	encoded, err := json.Marshal(answer, json.Deterministic(true))
	require.NoError(t, err)
	return string(encoded)
}

func TestLead_EqualsFold(t *testing.T) {
	t.Parallel()
	w, history, reader := readerOf(t, 1, 300)
	for account, ids := range history.Leads {
		for _, id := range ids {
			state := fold(t, w, event.LeadStream(id), lead.Evolve)
			want := query.NewListedLead(state)
			want.Metadata, want.Joined, want.Contacts = state.Metadata, state.Joined, query.NewContacts(state)
			got, err := reader.Lead(t.Context(), account, id)
			require.NoError(t, err)
			require.NotNil(t, got.Metadata)
			require.Equal(t, text(t, want), text(t, got))

			sources, err := reader.LeadSources(t.Context(), account, id, firstPage)
			require.NoError(t, err)
			require.Empty(t, sources.NextCursor)
			require.Len(t, sources.Items, len(state.Sources))
			for i, s := range state.Sources {
				require.Equal(t, text(t, query.SourceEntry{
					LeadID: id, Source: s.Source, FirstSeenAt: query.Timestamp(s.FirstSeenAt),
					LastSeenAt: query.Timestamp(s.LastSeenAt), Arrivals: s.Arrivals,
					Credential: query.Credential{Kind: "jwt", ID: "urn:ada"}, Metadata: object(t, s.Metadata),
					IP: s.IP, UserAgent: s.UserAgent, RequestID: s.RequestID, Changed: s.Changed,
				}), text(t, sources.Items[i]))
			}
		}
	}
}

// object encodes members as an event does.
func object(t *testing.T, members map[string]jsontext.Value) jsontext.Value {
	t.Helper()
	written, err := event.AppendJSON(nil, members)
	require.NoError(t, err)
	return written
}

func TestLeads_EqualCaptureAnswer(t *testing.T) {
	t.Parallel()
	w, history, reader := readerOf(t, 2, 100)
	list, err := reader.Leads(t.Context(), "acme", query.LeadFilter{}, firstPage)
	require.NoError(t, err)
	require.Len(t, list.Items, len(history.Leads["acme"]))
	for _, l := range list.Items {
		require.Equal(t, text(t, query.NewListedLead(fold(t, w, event.LeadStream(l.LeadID), lead.Evolve))), text(t, l))
	}
}

func TestToken_EqualsFold(t *testing.T) {
	t.Parallel()
	w, history, _ := readerOf(t, 3, 400)
	now := projectiontest.Start.Add(500 * time.Hour)
	reader := query.New(w.Pool, w.Store, query.WithClock(func() time.Time { return now }))
	seen := map[string]int{}
	for account, ids := range history.Tokens {
		for _, id := range ids {
			state := fold(t, w, event.TokenStream(id), token.Evolve)
			got, err := reader.Token(t.Context(), account, id)
			require.NoError(t, err)
			status := "active"
			if state.Deleted {
				status = "deleted"
				require.False(t, time.Time(got.DeletedAt).IsZero())
			} else if !state.ExpiresAt.After(now) {
				status = "expired"
			}
			seen[status]++
			require.Equal(t, status, got.Status)
			require.Equal(t, []string{id, state.Name, state.Prefix, "user:ada"},
				[]string{got.TokenID, got.Name, got.Prefix, got.CreatedBy})
			require.True(t, state.ExpiresAt.Equal(time.Time(got.ExpiresAt)))
			uses := storetest.Events(t, w.Store, eventstore.Filter{
				StreamPrefixes: []string{"tokenuse-" + id + "-"}, Types: []string{event.TokenUsed{}.EventType()},
			})
			if len(uses) == 0 {
				require.Contains(t, text(t, got), `"lastUsedAt":null`)
			} else {
				require.True(t, uses[len(uses)-1].At.Equal(time.Time(got.LastUsedAt)))
				seen["used"]++
			}

			events, err := reader.TokenEvents(t.Context(), account, id, firstPage)
			require.NoError(t, err)
			var rotatedAt query.Timestamp
			for _, e := range events.Items {
				require.Equal(t, id, e.TokenID)
				if e.Type == "token.rotated" {
					rotatedAt = parseTime(t, e.At)
				}
			}
			require.True(t, time.Time(rotatedAt).Equal(time.Time(got.RotatedAt)))
			require.Equal(t, "token.created", events.Items[0].Type)
			require.True(t, time.Time(parseTime(t, events.Items[0].At)).Equal(time.Time(got.CreatedAt)))
		}
	}
	require.Len(t, seen, 4, "the history has tokens of every status, and used ones")
}

func parseTime(t *testing.T, written string) query.Timestamp {
	t.Helper()
	at, err := time.Parse(time.RFC3339, written)
	require.NoError(t, err)
	return query.Timestamp(at)
}

func TestToken_ExpiresOnTime(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	id, at := w.NewID(), projectiontest.Start.AddDate(0, 0, 1)
	w.Append(t, "acme", event.TokenStream(id), event.TokenCreated{Name: "A", ExpiresAt: at})
	w.Project(t)
	for now, status := range map[time.Time]string{at.Add(-time.Millisecond): "active", at: "expired"} {
		got, err := query.New(w.Pool, w.Store, query.WithClock(func() time.Time { return now })).
			Token(t.Context(), "acme", id)
		require.NoError(t, err)
		require.Equal(t, status, got.Status)
	}
}

func TestAccountAndEndpoint_EqualFold(t *testing.T) {
	t.Parallel()
	w, history, reader := readerOf(t, 4, 400)
	for _, id := range history.Accounts {
		state := fold(t, w, event.AccountStream(id), account.Evolve)
		got, err := reader.Account(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, text(t, query.Account{
			AccountID: id, Name: state.Name, Features: state.Features, Stages: state.Stages, Region: state.Region,
			Currency: state.Currency, RateLimit: state.RateLimit, RateBurst: state.RateBurst,
			TokensSeeLeads: state.TokensSeeLeads, VisitorDays: state.VisitorDays,
			Quarantine: state.Quarantine, QuarantineDays: state.QuarantineDays, WonStages: state.WonStages,
			StoragePerDay: state.StoragePerDay, IgnoredContacts: append([]string{}, state.IgnoredContacts...),
			SharedAfter: state.SharedAfter, RetentionDays: state.RetentionDays, KeepStages: state.KeepStages,
			MaskInConsole: !state.UnmaskedInConsole,
			JWTNotBefore:  query.Timestamp(state.JWTNotBefore), CreatedAt: query.Timestamp(state.CreatedAt),
			UpdatedAt: query.Timestamp(state.UpdatedAt),
		}), text(t, got))

		for _, webhookID := range history.Endpoints[id] {
			state := fold(t, w, event.WebhookStream(webhookID), webhook.Evolve)
			got, err := reader.Endpoint(t.Context(), id, webhookID)
			require.NoError(t, err)
			require.Equal(t, text(t, query.NewEndpoint(webhookID, state)), text(t, got))
		}
		for _, deleted := range history.Gone[id] {
			_, err := reader.Endpoint(t.Context(), id, deleted)
			require.ErrorIs(t, err, query.ErrNotFound)
		}
	}
}

func TestLeadEvents_EqualStream(t *testing.T) {
	t.Parallel()
	w, history, reader := readerOf(t, 5, 100)
	id := history.Leads["acme"][0]
	list, err := reader.LeadEvents(t.Context(), "acme", id, firstPage)
	require.NoError(t, err)
	var want []query.Event
	for r, err := range w.Store.Read(t.Context(), event.LeadStream(id), 0) {
		require.NoError(t, err)
		want = append(want, query.Event{
			ID: r.ID.String(), Type: strings.TrimSuffix(r.Type, ".v1"), Revision: r.Revision, Position: r.Position,
			At: query.Timestamp(r.At), Actor: "user:ada", RequestID: r.Metadata.RequestID, Data: jsontext.Value(r.Data),
		})
	}
	require.Equal(t, want, list.Items)
}

func TestIsolation_BetweenAccounts(t *testing.T) {
	t.Parallel()
	w, history, reader := readerOf(t, 11, 300)
	ctx := t.Context()
	trail, err := reader.AuditTokens(ctx, "acme", query.AuditFilter{}, firstPage)
	require.NoError(t, err)
	for _, stranger := range []string{"globex", "missing", "acme\x00", "\xff"} {
		for _, id := range []string{history.Leads["acme"][0], w.NewID()} {
			_, err := reader.Lead(ctx, stranger, id)
			require.ErrorIs(t, err, query.ErrNotFound)
			for _, p := range []query.Page{firstPage, {
				Limit: 1, Cursor: query.EncodeOrdinal(query.CursorOf("e1", stranger), 1000),
			}} {
				_, err = reader.LeadEvents(ctx, stranger, id, p)
				require.ErrorIs(t, err, query.ErrNotFound)
			}
			_, err = reader.LeadSources(ctx, stranger, id, firstPage)
			require.ErrorIs(t, err, query.ErrNotFound)
			_, err = reader.LeadActivity(ctx, stranger, id, firstPage)
			require.ErrorIs(t, err, query.ErrNotFound)
		}
		_, err := reader.Token(ctx, stranger, history.Tokens["acme"][0])
		require.ErrorIs(t, err, query.ErrNotFound)
		_, err = reader.TokenEvents(ctx, stranger, history.Tokens["acme"][0], firstPage)
		require.ErrorIs(t, err, query.ErrNotFound)
		_, err = reader.Endpoint(ctx, stranger, history.Endpoints["acme"][0])
		require.ErrorIs(t, err, query.ErrNotFound)
		audit, err := reader.AuditTokens(ctx, stranger, query.AuditFilter{
			TokenID: history.Tokens["acme"][0],
		}, firstPage)
		require.NoError(t, err)
		require.Empty(t, audit.Items)
		_, err = reader.ProveTokenEvent(ctx, stranger, trail.Items[0].Position, query.Newest)
		require.ErrorIs(t, err, query.ErrNotFound)
	}
	days, err := reader.Days(ctx, "missing", time.Time{})
	require.NoError(t, err)
	require.Empty(t, days)
	for _, id := range append(history.Accounts, "missing") {
		tree, err := reader.TreeHead(ctx, id, query.Newest)
		require.NoError(t, err)
		trail, err := reader.AuditTokens(ctx, id, query.AuditFilter{}, firstPage)
		require.NoError(t, err)
		require.EqualValues(t, len(trail.Items), tree.N)
		leads, err := reader.Leads(ctx, id, query.LeadFilter{}, firstPage)
		require.NoError(t, err)
		require.ElementsMatch(t, history.Leads[id], ids(leads.Items, func(l query.Lead) string { return l.LeadID }))
		tokens, err := reader.Tokens(ctx, id, firstPage)
		require.NoError(t, err)
		require.ElementsMatch(t, history.Tokens[id], ids(tokens.Items, func(t query.Token) string { return t.TokenID }))
		endpoints, err := reader.Endpoints(ctx, id, firstPage)
		require.NoError(t, err)
		require.ElementsMatch(t, history.Endpoints[id], ids(endpoints.Items, func(e query.Endpoint) string {
			return e.WebhookID
		}))
	}
}

func TestIsolation_BetweenEndpoints(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	reader := query.New(w.Pool, w.Store)
	sent := map[string][]string{}
	for n := range 2 {
		id := w.NewID()
		w.Append(t, "acme", event.WebhookStream(id), event.WebhookRegistered{
			WebhookSettings: event.WebhookSettings{URL: "https://hooks.example", Events: []string{"*"}}, Slot: n + 1,
		})
		for range n + 1 {
			sent[id] = append(sent[id], queueDelivery(t, w, id))
		}
	}
	w.Project(t)
	for id, own := range sent {
		endpoint, err := reader.Endpoint(t.Context(), "acme", id)
		require.NoError(t, err)
		require.Len(t, own, endpoint.Queued)
		list, err := reader.Deliveries(t.Context(), "acme", id, true, query.DeliveryFilter{}, firstPage)
		require.NoError(t, err)
		require.ElementsMatch(t, own, ids(list.Items, func(d query.Delivery) string { return d.DeliveryID }))
		for of, deliveries := range sent {
			_, err := reader.Delivery(t.Context(), "acme", id, deliveries[0], true)
			if of == id {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, query.ErrNotFound)
			}
		}
	}
}

// queueDelivery queues a delivery of an endpoint.
func queueDelivery(t *testing.T, w *projectiontest.World, endpoint string) (id string) {
	t.Helper()
	id = ulid.Make().String()
	pgtest.Exec(t, w.Pool, `SELECT delivery.open_day($1)`, time.Now().UTC())
	pgtest.Exec(t, w.Pool, `
		WITH sent AS (
		    INSERT INTO delivery.delivery (delivery_id, webhook_id, event_id, generation, type, stream, revision,
		      position, renderer)
		    VALUES ($1, $2, $1, 0, 'lead.created', 'lead-1', 0, 1, 1)
		    RETURNING delivery_id, webhook_id, type, stream, revision, position, renderer
		)
		INSERT INTO delivery.queue (delivery_id, webhook_id, type, stream, revision, position, renderer) SELECT *
		FROM sent`, id, endpoint)
	return id
}

func ids[T any](items []T, id func(T) string) []string {
	all := make([]string, len(items))
	for i, item := range items {
		all[i] = id(item)
	}
	return all
}
