package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/merkle"
)

// trust publishes the tree of the log until the test ends, and returns the verifier of its checkpoints.
func (s *service) trust() merkle.Trust {
	s.t.Helper()
	return merkle.Trust{PublicKey: s.publishTree().(*merkle.Signer).PublicKey()}
}

func receiptPath(captured reply) string {
	return leads + "/" + captured.at("data", "leadId").(string) + "/events/" + captured.header.Get("X-Event-Id") +
		"/receipt"
}

func TestReceipt_OfEveryEvent(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	tokenID, value := s.token()
	_, other := s.token()
	byToken := func(path, value string) reply {
		return s.send(call{method: http.MethodGet, path: path, credential: value})
	}
	created := s.send(call{
		method: http.MethodPost, path: leads, credential: value, body: `{"phone":"9876543210"}`,
	}).is(http.StatusCreated)
	merged := s.capture(`{"phone":"9876543210","name":"Asha","metadata":{"source":"website"}}`).is(http.StatusOK)
	id := s.leadID(created)
	path := receiptPath(created)
	require.Equal(t, "NOT_COVERED", byToken(path, value).is(http.StatusNotFound).at("code"))

	trust := s.trust()
	receipt := s.eventually(receiptPath(merged), func(r reply) bool { return r.status == http.StatusOK })
	require.Equal(t, "text/plain; charset=utf-8", receipt.header.Get("Content-Type"))
	require.Equal(t, http.StatusOK, byToken(path, value).status)

	s.as(http.MethodPatch, leads+"/"+id, `{"status":"won"}`).is(http.StatusOK)
	kept := map[string]reply{}
	listed := s.as(http.MethodGet, leads+"/"+id+"/events", "").is(http.StatusOK).at("data").([]any)
	require.Len(t, listed, 3)
	for _, e := range listed {
		shown, err := json.Marshal(e)
		require.NoError(t, err)
		eventID := e.(map[string]any)["id"].(string)
		r := s.eventually(leads+"/"+id+"/events/"+eventID+"/receipt", func(r reply) bool {
			return r.status == http.StatusOK
		})
		opened, err := audit.OpenReceipt([]byte(r.raw), trust)
		require.NoError(t, err)
		difference, err := opened.Compare(shown)
		require.NoError(t, err)
		require.Empty(t, difference)
		require.NotContains(t, r.raw, "9876543210")
		kept[eventID] = r
	}

	for name, refused := range map[string]reply{
		"another event's token": byToken(receiptPath(merged), value).is(http.StatusNotFound),
		"another token":         byToken(path, other).is(http.StatusNotFound),
		"another account":       byToken(path, s.stranger("")).is(http.StatusNotFound),
		"another lead": s.as(http.MethodGet,
			leads+"/"+tokenID+"/events/"+created.header.Get("X-Event-Id")+"/receipt", "").is(http.StatusNotFound),
		"another event": s.as(http.MethodGet, leads+"/"+id+"/events/"+tokenID+"/receipt",
			"").is(http.StatusNotFound),
		"a lead's id that is bad": s.as(http.MethodGet, leads+"/x/events/"+tokenID+"/receipt",
			"").is(http.StatusNotFound),
	} {
		require.Equal(t, "Event not found", refused.at("message"), name)
	}
	byToken(path, s.mint(ownAccount, "leads:write")).is(http.StatusForbidden)
	s.as(http.MethodDelete, tokens+"/"+tokenID, "").is(http.StatusOK)
	byToken(path, value).is(http.StatusUnauthorized)

	s.erase(id, http.StatusOK)
	for eventID, before := range kept {
		was, err := audit.OpenReceipt([]byte(before.raw), trust)
		require.NoError(t, err)
		after, err := audit.OpenReceipt(
			[]byte(s.as(http.MethodGet, leads+"/"+id+"/events/"+eventID+"/receipt", "").is(http.StatusOK).raw), trust,
		)
		require.NoError(t, err)
		require.Equal(t, []any{was.Leaf, was.Index}, []any{after.Leaf, after.Index}, "an erasure changes no leaf")
	}
}

func TestCertificate_OfErasure(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	s.fanOut()
	trust := s.trust()
	register := func(body string) string {
		return s.as(http.MethodPost, endpoints, body).is(http.StatusCreated).at("data", "webhookId").(string)
	}
	acknowledges := register(`{"url":"https://one.example.com/hook?key=secret"}`)
	fails := register(`{"url":"https://two.example.com/hook","events":["lead.erased"]}`)
	waits := register(`{"url":"https://three.example.com/hook"}`)
	tokensOnly := register(`{"url":"https://four.example.com/hook","events":["token.created"]}`)
	deletedLater := register(`{"url":"https://six.example.com/hook","events":["lead.created"]}`)
	deletedBefore := register(`{"url":"https://seven.example.com/hook","events":["lead.created"]}`)
	s.as(http.MethodDelete, endpoints+"/"+deletedBefore, "").is(http.StatusOK)
	joined := s.leadID(s.capture(`{"phone":"9876543211"}`).is(http.StatusCreated))
	id := s.leadID(s.capture(`{"phone":"9876543210","name":"Asha"}`).is(http.StatusCreated))
	s.join(id, joined).is(http.StatusOK)
	commitments, err := s.store.Commitments(t.Context(), "lead-"+id, "lead-"+joined)
	require.NoError(t, err)
	_, err = s.pool.Exec(t.Context(), `CREATE TABLE backup AS SELECT * FROM person.key`)
	require.NoError(t, err)
	path := leads + "/" + id + "/erasure-certificate"
	require.Equal(t, "No erased lead with this id",
		s.as(http.MethodGet, path, "").is(http.StatusNotFound).at("message"))

	s.erase(id, http.StatusOK)
	finish := func(webhookID, state string, status int) {
		var deliveryID string
		require.Eventually(t, func() bool { // the fan-out may be behind
			return s.pool.QueryRow(t.Context(),
				`UPDATE delivery.delivery SET state = $2, finished_at = '2026-03-01T09:00:00.005Z'
				WHERE webhook_id = $1 AND type = 'lead.erased'
				RETURNING delivery_id`, webhookID, state).Scan(&deliveryID) == nil
		}, time.Minute, 2*time.Millisecond)
		_, err := s.pool.Exec(t.Context(),
			`INSERT INTO delivery.attempt (delivery_id, at, status, duration_ms, response, error)
			VALUES ($1, now(), $2, 1, '', '')`, deliveryID, status)
		require.NoError(t, err)
	}
	finish(acknowledges, "delivered", 204)
	finish(fails, "failed", 500)
	later := register(`{"url":"https://five.example.com/hook"}`)
	deleted := s.as(http.MethodDelete, endpoints+"/"+deletedLater, "").is(http.StatusOK).header.Get("X-Log-Position")
	s.as(http.MethodGet, "/api/v1/crm/audit/events?minPosition="+deleted, "").is(http.StatusOK)
	require.Eventually(t, func() bool { // the fan-out may be behind
		var gone bool
		err := s.pool.QueryRow(t.Context(), `SELECT deleted FROM delivery.endpoint WHERE webhook_id = $1`,
			deletedLater).Scan(&gone)
		return err == nil && gone
	}, time.Minute, 2*time.Millisecond)

	read := func(scope string) reply {
		return s.send(call{method: http.MethodGet, path: path, credential: s.mint(ownAccount, scope)})
	}
	r := s.eventually(path, func(r reply) bool { return r.status == http.StatusOK })
	c, receipt, err := audit.OpenCertificate([]byte(r.raw), trust)
	require.NoError(t, err)
	require.Equal(t, "lead.erased.v1", receipt.Leaf.Type)
	require.Equal(t, []any{id, []string{joined}, "user:ann"}, []any{c.LeadID, c.JoinedLeads, c.Erasure.Actor})
	hashes := map[string]string{}
	for _, k := range c.KeyCommitments {
		hashes["lead-"+k.LeadID] = k.Commitment
	}
	require.Equal(t, commitments["lead-"+id][0], hashes["lead-"+id])
	require.Equal(t, commitments["lead-"+joined][0], hashes["lead-"+joined])
	states := map[string]string{}
	for _, e := range c.Endpoints {
		states[e.WebhookID] = fmt.Sprint(e.State, " ", e.Host, " ", e.Attempts, " ", e.Status)
		require.Equal(t, e.WebhookID == acknowledges, e.AcknowledgedAt != nil)
	}
	require.Equal(t, map[string]string{
		acknowledges: "acknowledged one.example.com 1 204", fails: "failed two.example.com 1 500",
		waits: "pending three.example.com 0 0", tokensOnly: "not_sent four.example.com 0 0",
		deletedLater: "not_sent six.example.com 0 0",
	}, states, "the endpoint %s was registered later, and %s was deleted before", later, deletedBefore)
	require.NotContains(t, r.raw, "secret")
	require.NotContains(t, r.raw, "Asha")
	// The kept summary has the same states after the deliveries are dropped.
	_, err = s.pool.Exec(t.Context(),
		`INSERT INTO delivery.erasure SELECT event_id, webhook_id, state, finished_at, 1, CASE state WHEN 'failed'
			THEN 500 ELSE 204 END
		FROM delivery.delivery WHERE type = 'lead.erased' AND state <> 'queued'`)
	require.NoError(t, err)
	_, err = s.pool.Exec(t.Context(), `DELETE FROM delivery.delivery WHERE type = 'lead.erased' AND state <> 'queued'`)
	require.NoError(t, err)
	kept, _, err := audit.OpenCertificate([]byte(read("audit:read").is(http.StatusOK).raw), trust)
	require.NoError(t, err)
	require.Equal(t, c.Endpoints, kept.Endpoints)

	read("leads:write").is(http.StatusOK)
	read("audit:read").is(http.StatusOK)
	require.Equal(t, "Scope leads:write or audit:read required",
		read("leads:read webhooks:read").is(http.StatusForbidden).at("message"))
	s.send(call{method: http.MethodGet, path: path, credential: s.stranger("")}).is(http.StatusNotFound)

	_, err = s.pool.Exec(t.Context(), `INSERT INTO person.key SELECT * FROM backup`)
	require.NoError(t, err)
	require.Equal(t, "ERASURE_UNFINISHED", s.as(http.MethodGet, path, "").is(http.StatusNotFound).at("code"),
		"a restored key is reported")
}
