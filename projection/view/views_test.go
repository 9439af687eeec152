package view_test

import (
	"encoding/base64"
	"encoding/hex"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/projection/view"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestView_SameRowsForAnyBatchSize(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	w.WriteHistory(t, 1, 700)
	w.Project(t)
	first := w.Dump(t)
	for table, rows := range first {
		require.NotEmpty(t, rows, table)
	}
	for _, size := range []int{1, 10} {
		pgtest.Exec(t, w.Pool,
			`TRUNCATE views.checkpoint, views.lead, views.won_day, views.lead_search, views.source_day, views.token,
			views.token_event, views.token_tree, views.account, views.endpoint, views.visitor_activity, views.touch, views.touch_personal,
			views.touch_owner, views.spend, views.refused, views.arrival, views.intake_run, views.trail, views.trail_setting`)
		projectiontest.CatchUp(t, w.RunnerOf(t, size, view.All()...))
		require.Equal(t, first, w.Dump(t), "batches of %d", size)
	}
}

// A process reads the union of its views' filters: a view of any stream would make it read every claim.
func TestAll_LeavesClaimsOut(t *testing.T) {
	t.Parallel()
	for _, v := range view.All() {
		filter := v.Filter()
		require.NotEmpty(t, filter.StreamPrefixes, v.Name())
		require.False(t, filter.Matches(event.ClaimPrefix+"x", event.ClaimTaken{}.EventType()), v.Name())
	}
}

func TestTrail_TakesItsTypes(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	w.WriteHistory(t, 4, 700)
	taken := view.Trail{}.Filter()
	for _, e := range storetest.Events(t, w.Store, eventstore.Filter{Types: event.TrailTypes()}) {
		require.True(t, taken.Matches(e.Stream, e.Type), "%s on %s", e.Type, e.Stream)
	}
}

func TestView_LostCheckpointStartsEmpty(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	w.WriteHistory(t, 2, 200)
	w.Project(t)
	first := w.Dump(t)
	pgtest.Exec(t, w.Pool, `DELETE FROM views.checkpoint`)
	w.Project(t)
	require.Equal(t, first, w.Dump(t), "nothing is counted twice")
}

func TestLead_RowIsFoldOfStream(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	history := w.WriteHistory(t, 3, 400)
	w.Project(t)
	checked := 0
	for account, ids := range history.Leads {
		for _, id := range ids {
			want, _, err := eventstore.Load(t.Context(), w.Store, event.LeadStream(id), lead.Evolve)
			require.NoError(t, err)
			var row schema.LeadRow
			err = w.Pool.QueryRow(t.Context(), `SELECT `+schema.LeadColumns+` FROM views.lead WHERE lead_id = $1`,
				id).Scan(row.Into()...)
			require.NoError(t, err)
			got, err := row.State()
			require.NoError(t, err)
			want.Sources = nil // the sources have a view of their own
			require.Equal(t, view.AppendState(nil, &want), view.AppendState(nil, &got))
			want.Phones, want.Emails = slices.Concat([]string{}, want.Phones), slices.Concat([]string{}, want.Emails)
			got.Phones, got.Emails = slices.Concat([]string{}, got.Phones), slices.Concat([]string{}, got.Emails)
			require.Equal(t, want, got)
			require.Equal(t, account, got.Account)
			checked++
		}
	}
	require.NotZero(t, checked)
}

// The view stores lead.State as JSON under its Go names, without the sources. If a field is added, removed or renamed,
// rows that were written before are no longer equal to a fold.
func TestLead_StateJSON(t *testing.T) {
	t.Parallel()
	require.Equal(t, 1, view.Lead{}.Version(), "write down the new version's JSON here")
	var fields []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[lead.State]()) {
		fields = append(fields, field.Name)
	}
	require.Equal(t,
		"Phase ID Revision Account ContactUID LeadFields Name Phone Email Status Temperature OpportunityID "+
			"OpportunityValue "+
			"CustomFields NameDerived Phones Emails FirstSeen Source Sources Metadata VisitorIDs Joined JoinedInto "+
			"Origins Consents CreatedAt OpenedAt UpdatedAt ArrivedAt",
		strings.Join(fields, " "), "lead.State has changed: give LeadView a new version")
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	written := view.AppendState(nil, &lead.State{
		Phase: lead.Live, ID: "L", Revision: 7, Account: "acme", ContactUID: "C", LeadFields: event.LeadFields{
			Name: "Asha", Phone: "+91", Email: "a@b.c", Status: "new",
			Temperature: "hot", OpportunityID: "O", OpportunityValue: "1.0",
			CustomFields: map[string]jsontext.Value{"city": jsontext.Value(`"Pune"`)},
		}, NameDerived: true, Phones: []string{"+91"}, Emails: []string{}, Source: "api",
		Sources: []lead.SourceEntry{{Source: "api"}}, Metadata: map[string]jsontext.Value{},
		VisitorIDs: []string{"V"}, CreatedAt: at, UpdatedAt: at.Add(time.Second),
		Consents:  map[string]event.ConsentState{"call": {Granted: true, At: at, EventID: "E", Words: "00"}},
		ArrivedAt: at.Add(time.Millisecond), OpenedAt: at.Add(-time.Second),
	})
	require.Equal(t,
		`{"revision":7,"contactUID":"C","name":"Asha","status":"new","opportunityId":"O","opportunityValue":"1.0",`+
			`"customFields":{"city":"Pune"},"nameDerived":true,"emails":[],"metadata":{},"visitorIds":["V"],`+
			`"consents":{"call":{"granted":true,"at":"2026-01-02T03:04:05.006Z","eventId":"E","words":"00"}},`+
			`"openedAt":"2026-01-02T03:04:04.006Z","updatedAt":"2026-01-02T03:04:06.006Z","arrivedAt":"2026-01-02T03:04:05.007Z"}`,
		string(written))
}

// Rows of earlier versions exist until they are rewritten, and in copies as of an earlier day.
func TestLead_ReadsEarlierRowVersion(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	want := lead.State{
		Phase: lead.Live, ID: "L", Revision: 7, Account: "acme",
		LeadFields: event.LeadFields{Name: "Asha", Phone: "+91", Email: "a@b.c", Status: "New", Temperature: "hot"},
		Phones:     []string{"+90", "+91"}, Emails: []string{"a@b.c"}, Source: "api", CreatedAt: at, UpdatedAt: at,
	}
	whole, err := json.Marshal(want, json.OmitZeroStructFields(true))
	require.NoError(t, err)
	pgtest.Exec(t, w.Pool, `
		INSERT INTO views.lead (lead_id, account, created_at, status, temperature, source, phone, email, search, state)
		VALUES ('L', 'acme', $1, 'new', 'hot', 'api', '+91', 'a@b.c', '', $2)`, at, whole)
	var row schema.LeadRow
	err = w.Pool.QueryRow(t.Context(), `SELECT `+schema.LeadColumns+` FROM views.lead`).Scan(row.Into()...)
	require.NoError(t, err)
	got, err := row.State()
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestView_HoldsNoTokenHash(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	history := w.WriteHistory(t, 4, 200)
	w.Project(t)
	var all strings.Builder
	for _, rows := range w.Dump(t) {
		all.WriteString(strings.Join(rows, "\n"))
	}
	for _, ids := range history.Tokens {
		for _, id := range ids {
			require.Contains(t, all.String(), id)
			for _, hash := range []string{"hash-of-" + id, "hash-rotated"} {
				require.NotContains(t, all.String(), hash)
				require.NotContains(t, all.String(), hex.EncodeToString([]byte(hash)))
				require.NotContains(t, all.String(), base64.StdEncoding.EncodeToString([]byte(hash)))
			}
		}
	}
}

func TestTokenEvent_Rows(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	id := w.NewID()
	expires := projectiontest.Start.AddDate(0, 0, 30)
	w.Append(t, "acme", event.TokenStream(id),
		event.TokenCreated{Name: "CI", Prefix: "leadlog_a", Hash: []byte("h"), Days: 30, ExpiresAt: expires, Slot: 1},
		event.TokenRotated{
			Prefix: "leadlog_b", Hash: []byte("i"), ExpiresAt: expires.AddDate(0, 0, 1), PreviousExpiresAt: expires,
		},
		event.TokenDeleted{})
	w.Project(t)

	got := pgtest.Rows[string](t, w.Pool, `
		SELECT concat_ws(' ', token_id = $1, account, type, actor, ip, user_agent, request_id, data)
		FROM views.token_event ORDER BY position`, id)
	require.Equal(t, []string{
		`t acme token.created user:ada 192.0.2.7 test/1 request-2 {"name":"CI","prefix":"leadlog_a",` +
			`"expiresInDays":30,"expiresAt":"2026-03-31T09:00:00.000Z"}`,
		`t acme token.rotated user:ada 192.0.2.7 test/1 request-3 {"prefix":"leadlog_b",` +
			`"expiresAt":"2026-04-01T09:00:00.000Z","previousExpiresAt":"2026-03-31T09:00:00.000Z"}`,
		`t acme token.deleted user:ada 192.0.2.7 test/1 request-4 {}`,
	}, got)
}

// A view that fails at an event stops for all accounts, so every text that can be on the log must fit into the views.
// Amounts are left out: commands write decimals only.
func TestView_TakesAnyText(t *testing.T) {
	t.Parallel()
	const text = "\x01\x1f\"\\u0000' ;=\r\n\u2028\ufffd\uffff\U0001f600"
	long := strings.Repeat("\U00010348é", 5000)
	first := map[string]event.Data{
		event.LeadPrefix: event.LeadCreated{Source: "website"}, event.TokenPrefix: event.TokenCreated{},
		event.WebhookPrefix: event.WebhookRegistered{}, event.IntakePrefix: event.IntakeCreated{},
		event.ArrivalPrefix: event.ArrivalReceived{}, event.AccountPrefix: event.AccountConfigured{},
		event.VisitorPrefix: nil,
	}
	w := projectiontest.New(t)
	golden, err := filepath.Glob("../../eventstore/event/testdata/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, golden)
	for _, file := range golden {
		eventType := strings.TrimSuffix(filepath.Base(file), ".json")
		kind, _, _ := strings.Cut(eventType, ".")
		before, known := first[kind+"-"]
		if !known {
			continue
		}
		encoded, err := os.ReadFile(file)
		require.NoError(t, err)
		var object map[string]any
		require.NoError(t, json.Unmarshal(encoded, &object))
		for _, text := range []string{text, text + long} {
			for _, changed := range eachText(object, text) {
				encoded, err := json.Marshal(changed)
				require.NoError(t, err)
				fact, err := event.Decode(eventType, encoded)
				if err != nil {
					continue // a time, for example
				}
				facts := []event.Data{fact}
				if before != nil && before.EventType() != eventType {
					facts = []event.Data{before, fact}
				}
				w.Append(t, "acme", kind+"-"+w.NewID(), facts...)
			}
		}
	}
	projectiontest.CatchUp(t, w.Runner(t, view.All()...))
}

// eachText returns copies of a JSON value, each with one of its texts replaced.
func eachText(value any, text string) (copies []any) {
	switch value := value.(type) {
	case string:
		return []any{text}
	case []any:
		for i, element := range value {
			for _, changed := range eachText(element, text) {
				list := slices.Clone(value)
				list[i] = changed
				copies = append(copies, list)
			}
		}
	case map[string]any:
		for name, member := range value {
			if name == "opportunityValue" {
				continue
			}
			for _, changed := range eachText(member, text) {
				object := maps.Clone(value)
				object[name] = changed
				copies = append(copies, object)
			}
		}
	}
	return copies
}
