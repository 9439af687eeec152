package query_test

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/view"
	"github.com/leadlog/leadlog/query"
)

// busyLog appends some thousand events of acme, and a few of globex between them.
func busyLog(t *testing.T, w *projectiontest.World) {
	t.Helper()
	for i := range 40 {
		facts := make([]event.Data, 200)
		for j := range facts {
			facts[j] = event.LeadUpdated{LeadFields: event.LeadFields{Status: "new"}}
		}
		w.Append(t, "acme", event.LeadStream(w.NewID()), facts...)
		switch i {
		case 3, 21:
			w.Append(t, "globex", event.LeadStream(w.NewID()), event.LeadRefused{Source: "api"},
				event.DataRevealed{What: "lead"})
			w.Append(t, "globex", event.ClaimPrefix+w.NewID(), event.ClaimTaken{Kind: "phone", Holder: "x"})
		case 30:
			id := w.NewID()
			w.Append(t, "globex", event.TokenStream(id), event.TokenCreated{Name: "crm", Hash: []byte("hash")})
			w.Append(t, "globex", event.TokenUseStream(id, projectiontest.Start), event.TokenUsed{},
				event.TokenRefused{Reason: "deleted"})
		case 31:
			w.Append(t, "globex", event.WebhookStream(w.NewID()), event.WebhookRegistered{
				WebhookSettings: event.WebhookSettings{URL: "https://example.com", Events: []string{"*"}}, Slot: 2,
			})
		}
	}
}

func TestFeed_OnceEachInOrder(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	busyLog(t, w)
	projectiontest.CatchUp(t, w.Runner(t, view.LogIndex{}))
	w.WriteHistory(t, 5, 100) // not in the index
	all := storetest.Events(t, w.Store, eventstore.Filter{})
	head := all[len(all)-1].Position
	reader := query.New(w.Pool, w.Store)
	rapid.Check(t, func(rt *rapid.T) {
		account := rapid.SampledFrom([]string{"acme", "globex"}).Draw(rt, "account")
		pattern := rapid.SampledFrom([]string{"", "lead.*", "token.*", "webhook.registered", "*"}).Draw(rt, "types")
		var patterns []string
		if pattern != "" {
			patterns = []string{pattern}
		}
		types, known := query.FeedTypes(event.FeedKinds(), patterns)
		require.True(rt, known)
		after := eventstore.Position(rapid.IntRange(0, int(head)).Draw(rt, "after"))
		var want, got []string
		for _, e := range all {
			if e.Position > after && e.Metadata.Account == account && slices.Contains(types, e.Type) {
				want = append(want, e.ID.String())
			}
		}
		for {
			limit := rapid.IntRange(1, 1000).Draw(rt, "limit")
			page, err := reader.Feed(t.Context(), account, types, after, limit)
			require.NoError(rt, err)
			require.LessOrEqual(rt, len(page.Events), limit)
			for _, e := range page.Events {
				got = append(got, e.ID)
			}
			if !page.More {
				require.Equal(rt, head, page.End)
				break
			}
			require.Greater(rt, page.End, after)
			after = page.End
		}
		require.Equal(rt, want, got)
	})
	types, _ := query.FeedTypes(event.FeedKinds(), nil)
	n := 0
	for e, err := range reader.FeedAll(t.Context(), "acme", types, 0) {
		require.NoError(t, err)
		require.NotEmpty(t, e.ID)
		n++
	}
	want := 0
	for _, e := range all {
		if e.Metadata.Account == "acme" && slices.Contains(types, e.Type) {
			want++
		}
	}
	require.Equal(t, want, n)
}

// scanned counts the positions of the ranges that are read.
type scanned struct {
	eventstore.Store
	positions atomic.Uint64
}

func (s *scanned) ReadRange(
	ctx context.Context, r eventstore.Range,
) ([]eventstore.Recorded, eventstore.Position, error) {
	events, reached, err := eventstore.ReadRange(ctx, s.Store, r)
	s.positions.Add(uint64(reached - r.After))
	return events, reached, err
}

func TestFeed_QuietAccountScansFewEvents(t *testing.T) {
	t.Parallel()
	w := projectiontest.NewOnPostgres(t)
	busyLog(t, w)
	projectiontest.CatchUp(t, w.Runner(t, view.LogIndex{}))
	store := &scanned{Store: w.Store}
	types, _ := query.FeedTypes(event.FeedKinds(), []string{"webhook.*"})
	page, err := query.New(w.Pool, store).Feed(t.Context(), "globex", types, 0, 10)
	require.NoError(t, err)
	require.False(t, page.More)
	require.Len(t, page.Events, 1)
	require.JSONEq(t, `{"url":"https://example.com","events":["*"]}`, string(page.Events[0].Data),
		"the slot is not shown")
	require.Less(t, store.positions.Load(), uint64(storetest.Head(t, w.Store)/2))
}

func TestFeedTypes_Patterns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kinds, patterns string
		want            string
		known           bool
	}{
		{"token", "", "token.created.v1 token.deleted.v1 token.expiring.v1 token.refused.v1 token.rotated.v1", true},
		{"lead token", "lead.created token.d*", "lead.created.v1 token.deleted.v1", true},
		{"lead", "token.*", "", true},
		{"lead", "data.revealed", "", false},
		{"lead token", "claim.*", "", false},
		{"lead", "lead.created lead", "", false},
		{"account", "*", "account.configured.v1 account.jwtsrevoked.v1 account.storage_low.v1", true},
	} {
		types, known := query.FeedTypes(strings.Fields(c.kinds), strings.Fields(c.patterns))
		require.Equal(t, c.want, strings.Join(types, " "), c)
		require.Equal(t, c.known, known, c)
	}
}

func TestFeedCursor_BoundToAccountAndLog(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	w.Append(t, "acme", event.LeadStream(w.NewID()), event.LeadUpdated{}, event.LeadUpdated{})
	reader := query.New(w.Pool, w.Store, query.WithClaims(claim.NewNames([]byte("key"))))
	epoch, err := reader.Epoch(t.Context())
	require.NoError(t, err)
	types, _ := query.FeedTypes([]string{event.LeadKind}, nil)
	page, err := reader.Feed(t.Context(), "acme", types, 0, 10)
	require.NoError(t, err)
	require.Len(t, page.Events, 2)
	mark := page.MarkAfter(query.FeedMark{})
	read := func(account, cursor string) (query.FeedMark, error) {
		return reader.FeedMark(t.Context(), account, epoch, cursor)
	}
	cursor := reader.FeedCursor("acme", epoch, mark)
	got, err := read("acme", cursor)
	require.NoError(t, err)
	require.Equal(t, mark, got)
	got, err = read("acme", reader.FeedCursor("acme", epoch, query.FeedMark{Position: page.End}))
	require.NoError(t, err, "a cursor without an event")
	require.Equal(t, query.FeedMark{Position: page.End}, got)
	got, err = read("acme", "")
	require.NoError(t, err)
	require.Zero(t, got)

	_, err = read("globex", cursor)
	require.ErrorIs(t, err, query.ErrCursor, "a cursor of another account")
	_, err = read("acme", reader.FeedCursor("acme", "other", mark))
	require.ErrorIs(t, err, query.ErrOtherLog)
	_, err = read("acme", query.New(w.Pool, w.Store).FeedCursor("acme", epoch, mark))
	require.ErrorIs(t, err, query.ErrCursor, "a cursor with another key")
	_, err = read("acme", query.New(w.Pool, w.Store).FeedCursor("acme", "other", mark))
	require.ErrorIs(t, err, query.ErrOtherLog, "a cursor of another deployment with another key")
	for name, change := range map[string]func(*query.FeedMark){
		"is shorter":        func(m *query.FeedMark) { m.Position++ },
		"has another event": func(m *query.FeedMark) { m.ID = ulid.MustParse(w.NewID()) },
		"has no such event": func(m *query.FeedMark) { m.Revision++ },
	} {
		changed := mark
		change(&changed)
		_, err = read("acme", reader.FeedCursor("acme", epoch, changed))
		require.ErrorIs(t, err, query.ErrOtherLog, "a restored log that %s", name)
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	require.NoError(t, err)
	for i := range raw {
		forged := slices.Clone(raw)
		forged[i] ^= 1
		_, err := read("acme", base64.RawURLEncoding.EncodeToString(forged))
		require.ErrorIs(t, err, query.ErrCursor, "byte %d", i)
	}
}

func FuzzFeedMark(f *testing.F) {
	reader := query.New(nil, nil, query.WithClaims(claim.NewNames([]byte("key"))))
	f.Add(reader.FeedCursor("acme", "epoch", query.FeedMark{Position: 7}))
	f.Add("")
	f.Add("AAAA")
	f.Fuzz(func(t *testing.T, cursor string) {
		mark, err := reader.FeedMark(t.Context(), "acme", "another", cursor)
		if cursor == "" {
			require.NoError(t, err)
		} else if cursor == reader.FeedCursor("acme", "epoch", query.FeedMark{Position: 7}) {
			require.ErrorIs(t, err, query.ErrOtherLog)
		} else {
			require.ErrorIs(t, err, query.ErrCursor)
			require.Zero(t, mark)
		}
	})
}
