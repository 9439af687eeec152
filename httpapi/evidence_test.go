package httpapi_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

func evidencePath(leadID, eventID string) string {
	return leads + "/" + leadID + "/events/" + eventID + "/evidence"
}

func eventsOf(s *service, leadID string) (events []map[string]any) {
	s.t.Helper()
	for _, e := range s.as(http.MethodGet, leads+"/"+leadID+"/events", "").is(http.StatusOK).at("data").([]any) {
		events = append(events, e.(map[string]any))
	}
	return events
}

func TestEvidence_OfEveryEvent(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	_, value := s.token()
	_, other := s.token()
	by := func(path, value string) reply {
		return s.send(call{method: http.MethodGet, path: path, credential: value})
	}
	created := s.send(call{method: http.MethodPost, path: leads, credential: value,
		body: `{"phone":"9876543210","name":"Zoë <x>",
		"customFields":{"budget":12345678901234567890.10,"😀":[1.0,{"b":null,"a":"\u00e9"}],"ﬁ":true}}`}).
		is(http.StatusCreated)
	id := s.leadID(created)
	own := evidencePath(id, created.header.Get("X-Event-Id"))
	require.Equal(t, "NOT_COVERED", by(own, value).is(http.StatusNotFound).at("code"))
	trust := s.trust()

	s.capture(`{"phone":"9876543210","name":"Asha","metadata":{"source":"website"}}`).is(http.StatusOK)
	s.as(http.MethodPatch, leads+"/"+id, `{"status":"won","customFields":{"budget":null}}`).is(http.StatusOK)
	joined := s.leadID(s.capture(`{"phone":"9876543211","email":"a@example.com"}`).is(http.StatusCreated))
	s.join(id, joined).is(http.StatusOK)
	s.as(http.MethodPost, leads+"/"+id+"/contacts/release", `{"phone":"9876543211"}`).is(http.StatusOK)

	saved := map[string]string{}
	for _, leadID := range []string{id, joined} {
		for _, e := range eventsOf(s, leadID) {
			path := evidencePath(leadID, e["id"].(string))
			r := s.eventually(path, func(r reply) bool { return r.status == http.StatusOK })
			require.Equal(t, "no-store", r.header.Get("Cache-Control"))
			require.Equal(t, any(e), r.at("data", "event"))
			opened, receipt, err := audit.OpenEvidence([]byte(r.raw), trust)
			require.NoError(t, err, "%s", e["type"])
			require.Equal(t, e["id"], receipt.Leaf.ID)
			bare, err := json.Marshal(opened)
			require.NoError(t, err)
			_, _, err = audit.OpenEvidence(bare, trust)
			require.NoError(t, err, "the file without the envelope of the response")
			saved[path] = r.raw
		}
	}
	require.Len(t, saved, 7)

	require.Equal(t, http.StatusOK, by(own, value).status, "the token that captured")
	for what, refused := range map[string]reply{
		"another token":   by(own, other).is(http.StatusNotFound),
		"another account": by(own, s.stranger("")).is(http.StatusNotFound),
		"another lead": s.as(http.MethodGet, evidencePath(joined, created.header.Get("X-Event-Id")),
			"").is(http.StatusNotFound),
		"an unknown event": s.as(http.MethodGet, evidencePath(id, id), "").is(http.StatusNotFound),
		"a token's page": s.send(call{
			method: http.MethodGet, path: own, credential: value,
			header: map[string]string{"Origin": "https://example.com"},
		}).is(http.StatusNotFound),
		"an event of the other": by(evidencePath(id, eventsOf(s, id)[1]["id"].(string)), value).is(http.StatusNotFound),
	} {
		require.Equal(t, "Event not found", refused.at("message"), what)
	}
	by(own, s.mint(ownAccount, "leads:write")).is(http.StatusForbidden)
	s.eventually("/api/v1/crm/audit/events?type=data.revealed", func(r reply) bool {
		return strings.Contains(r.raw, `"actor":"token:`)
	})

	s.erase(id, http.StatusOK)
	for path, raw := range saved {
		require.Equal(t, "LEAD_ERASED", s.as(http.MethodGet, path, "").is(http.StatusGone).at("code"))
		_, _, err := audit.OpenEvidence([]byte(raw), trust)
		require.NoError(t, err, "saved evidence stays valid")
	}
}

// Every changed byte of the event is detected, except of the members that the commitment does not cover.
func TestEvidence_DetectsChanges(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	trust := s.trust()
	created := s.capture(`{"phone":"9876543210","name":"Asha","customFields":{"city":"Pune","age":31}}`).
		is(http.StatusCreated)
	r := s.eventually(evidencePath(s.leadID(created), created.header.Get("X-Event-Id")), func(r reply) bool {
		return r.status == http.StatusOK
	})
	e, _, err := audit.OpenEvidence([]byte(r.raw), trust)
	require.NoError(t, err)
	verify := func(change func(*audit.Evidence)) error {
		changed := audit.Evidence{Event: e.Event.Clone(), Opening: e.Opening, Receipt: e.Receipt}
		change(&changed)
		_, _, err := audit.OpenEvidence(written(changed), trust)
		return err
	}
	replaced := func(old, with string) func(*audit.Evidence) {
		return func(e *audit.Evidence) {
			require.Contains(t, string(e.Event), old)
			e.Event = bytes.Replace(e.Event, []byte(old), []byte(with), 1)
		}
	}
	shown := map[string]any{}
	require.NoError(t, json.Unmarshal(e.Event, &shown))
	for _, c := range [][2]string{
		{`"Asha"`, `"Ashe"`}, {"+919876543210", "+919876543211"}, {`"age":31`, `"age":31.0`},
		{`"actor":"user:ann"`, `"actor":"user:bob"`},
		{`"revision":0`, `"revision":1`}, {`"revision":0`, `"revision":-0`}, {`lead.created`, `lead.merged`},
		{`"name"`, `"Name"`}, {`"actor"`, `"Actor"`},
		{`"data":{`, `"data":{"x":1,`}, {`"data":{`, `"x":1,"data":{`}, {`"data":{`, `"data":{"name":"Asha",`},
		{`"data":{`, `"stream":"lead-1","data":{`},
		{`"id":`, `"id":"x","id":`}, {`Z"`, `+00:00"`}, {`"city":"Pune"`, `"city":"pune"`}, {`,"city":"Pune"`, ``},
		{`"age":31`, `"age":"31"`},
	} {
		require.ErrorIs(t, verify(replaced(c[0], c[1])), audit.ErrEvidence, c[1])
	}
	for _, name := range []string{"position", "requestId"} {
		value, err := json.Marshal(shown[name])
		require.NoError(t, err)
		require.NoError(t, verify(replaced(`"`+name+`":`+string(value), `"`+name+`":"x"`)), name)
	}
	for i, b := range e.Event { // a position and a request id are the only bytes that may change
		inPlace := verify(func(e *audit.Evidence) { e.Event[i] = b ^ 1 })
		if inPlace == nil {
			at := strings.LastIndex(string(e.Event[:i]), `,"`)
			require.Regexp(t, `^,"(position|requestId)`, string(e.Event[at:i])+"requestId", "byte %d of %s", i, e.Event)
		}
	}
	require.ErrorIs(t, verify(func(e *audit.Evidence) { e.Opening.Nonce = strings.Repeat("0", 32) }), audit.ErrEvidence)
	require.ErrorIs(t, verify(func(e *audit.Evidence) { e.Opening.Nonce = "x" }), audit.ErrEvidence)
	require.ErrorIs(t, verify(func(e *audit.Evidence) {
		e.Opening.Stored = append([]byte{' '}, e.Opening.Stored...)
	}), audit.ErrEvidence)
	require.Error(t, verify(func(e *audit.Evidence) {
		e.Receipt = strings.Replace(e.Receipt, "\nindex ", "\nindex 1", 1)
	}))
	require.Error(t, verify(func(e *audit.Evidence) { e.Receipt = "" }))
}

// After an erasure, nothing of the content can be derived from the log, the views, the tiles and the receipts. The
// commitments are hashes of the content and of a nonce that is nowhere: equal content has different ones, and to try
// every phone number means to try every nonce with it.
func TestEvidence_NothingAfterErasure(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	trust := s.trust()
	content := []string{"9876543210", "Asha", "asha@example.com", "pune-city"}
	body := `{"phone":"9876543210","name":"Asha","email":"asha@example.com","customFields":{"city":"pune-city"}}`
	gone := slices.Clone(content)
	var commitments, receipts []string
	var stored []eventstore.Recorded
	for range 2 {
		created := s.capture(body).is(http.StatusCreated)
		id := s.leadID(created)
		path := evidencePath(id, created.header.Get("X-Event-Id"))
		e, _, err := audit.OpenEvidence([]byte(s.eventually(path, func(r reply) bool {
			return r.status == http.StatusOK
		}).raw), trust)
		require.NoError(t, err)
		s.caughtUp()
		before := s.rows()
		for _, text := range content {
			require.Contains(t, before, text, "before the erasure")
		}
		nonce, err := hex.DecodeString(e.Opening.Nonce)
		require.NoError(t, err)
		require.Len(t, nonce, 16)
		gone = append(gone, e.Opening.Nonce, string(nonce), base64.StdEncoding.EncodeToString(nonce))

		var onLog eventstore.Recorded
		for first, err := range s.store.below.Read(t.Context(), event.LeadStream(id), 0) {
			require.NoError(t, err)
			onLog = first
			break
		}
		commitment := onLog.Metadata.Commitment
		shown := event.Shown{
			ID: onLog.ID, Stream: onLog.Stream, Type: onLog.Type, At: onLog.At, Actor: onLog.Metadata.Actor,
			Data: dataOf(t, e.Event),
		}
		for _, guess := range [][]byte{nil, make([]byte, 16), onLog.ID[:], nonce[:15], nonce} {
			made, err := event.Commitment(guess, shown)
			require.NoError(t, err)
			require.Equal(t, string(guess) == string(nonce), made == commitment, "the right content, nonce %x", guess)
		}
		s.erase(id, http.StatusOK)
		_, nonce, err = s.store.OpenWithNonce(t.Context(), onLog)
		require.NoError(t, err)
		require.Empty(t, nonce, "the log does not give it any more")
		commitments, stored = append(commitments, commitment), append(stored, onLog)
		receipts = append(receipts, s.as(http.MethodGet, receiptPath(created), "").is(http.StatusOK).raw)
	}
	require.NotEqual(t, commitments[0], commitments[1], "the same content twice")
	require.NotEqual(t, stored[0].Data, stored[1].Data)

	require.Positive(t, pgtest.Value[int](t, s.pool, `SELECT count(*) FROM audit.tile`))
	var log strings.Builder
	for _, e := range storetest.Events(t, s.store.below, eventstore.Filter{}) {
		fmt.Fprintf(&log, "%s %v %s\n", e.Stream, e.Metadata, e.Data)
	}
	for _, commitment := range commitments {
		require.Contains(t, log.String(), commitment)
	}
	s.caughtUp()
	rows := s.rows()
	for _, text := range gone {
		for _, written := range []string{text, hex.EncodeToString([]byte(text))} { // PostgreSQL shows bytes so
			require.NotContains(t, rows, written, "views, keys and tiles")
			require.NotContains(t, log.String(), written, "log")
			require.NotContains(t, strings.Join(receipts, ""), written, "receipts")
		}
	}
}

// rows returns all rows of all tables of the database as text.
func (s *service) rows() string {
	s.t.Helper()
	var all strings.Builder
	for _, table := range pgtest.Rows[string](s.t, s.pool, `
		SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
		 WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`) {
		all.WriteString(strings.Join(pgtest.Rows[string](s.t, s.pool, `SELECT r::text FROM `+table+` r`), "\n") + "\n")
	}
	return all.String()
}

func dataOf(t *testing.T, shown []byte) []byte {
	t.Helper()
	var e struct {
		Data jsontext.Value `json:"data"`
	}
	require.NoError(t, json.Unmarshal(shown, &e))
	return e.Data
}

// written returns the file of evidence whose event may be no JSON.
func written(e audit.Evidence) []byte {
	opening, _ := json.Marshal(e.Opening)
	receipt, _ := json.Marshal(e.Receipt)
	return bytes.Join(
		[][]byte{
			[]byte(`{"event":`), e.Event, []byte(`,"opening":`), opening, []byte(`,"receipt":`), receipt, []byte(`}`),
		}, nil,
	)
}
