package httpapi_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/command/worker/resubmit"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

const arrivalsPath = "/api/v1/crm/arrivals"

// quarantining returns a service whose account quarantines captures with invalid fields.
func quarantining(t *testing.T) *service {
	s := start(t)
	s.provision(ownAccount, account.Settings{
		Features: []string{account.FeatureAPI}, Quarantine: new(true), RateLimit: new(0.0),
	})
	return s
}

// putIntake creates or changes an intake of the account on the log.
func (s *service) putIntake(id string, fact event.Data) {
	s.t.Helper()
	e := eventstore.Event{
		ID: ulid.Make(), At: time.Now().UTC().Truncate(time.Millisecond), Metadata: event.Metadata{Account: s.account},
	}
	var err error
	e.Type, e.Data, err = event.Encode(fact)
	require.NoError(s.t, err)
	_, err = s.store.Append(s.t.Context(), eventstore.Write{
		Stream: event.IntakeStream(id), Expect: eventstore.Any, Events: []eventstore.Event{e},
	})
	require.NoError(s.t, err)
}

// arrive appends a post to an intake.
func (s *service) arrive(id, body string) command.ArrivalReceived {
	s.t.Helper()
	answer, err := s.commands.ReceiveArrival(s.t.Context(), command.ReceiveArrival{
		Caller: command.Caller{
			Account: s.account, Actor: "system:intake", Credential: "intake:" + id, RequestID: "r-1",
		},
		IntakeID: id, Intake: eventstore.Check(event.IntakeStream(id), eventstore.At(0)), Source: "website",
		Raw: event.ArrivalRaw{ContentType: "application/json"}.WithBody([]byte(body)), Mapped: command.Mapped{},
	})
	require.NoError(s.t, err)
	return answer
}

func TestArrivals_QuarantineAndResubmit(t *testing.T) {
	t.Parallel()
	s := quarantining(t)
	kept := s.capture(`{"phone":"12","name":"Asha Rao"}`).is(http.StatusBadRequest)
	id, _ := kept.at("arrivalId").(string)
	require.NotEmpty(t, id)
	batch := s.send(call{
		method: http.MethodPost, path: leads + "/batch", credential: s.jwt, body: `{"email":"x"}`,
		header: map[string]string{"Content-Type": "application/x-ndjson"},
	})
	require.Contains(t, batch.raw, `"arrivalId":"`)

	list := s.as(http.MethodGet,
		arrivalsPath+"?state=quarantined&reason=phone&minPosition="+kept.header.Get("X-Log-Position"),
		"").is(http.StatusOK)
	require.Contains(t, list.raw, id)
	require.NotContains(t, list.raw, "Asha")
	require.Len(t, list.body["data"], 1)
	require.Nil(t, list.item("intakeId"))
	require.Nil(t, list.item("tokenId"))
	require.Contains(t, list.raw, `"reasons":[{"field":"phone","message":"`)
	for query, found := range map[string]int{
		"reason=email": 1, "reason=name": 0, "state=captured": 0, "until=2020-01-01T00:00:00Z": 0, "": 2,
	} {
		r := s.as(http.MethodGet, arrivalsPath+"?"+query, "").is(http.StatusOK)
		require.Len(t, r.body["data"], found, query)
	}
	s.as(http.MethodGet, arrivalsPath+"?state=lost", "").is(http.StatusBadRequest)

	shown := s.as(http.MethodGet, arrivalsPath+"/"+id, "").is(http.StatusOK)
	require.JSONEq(t, `{"phone":"12","name":"Asha Rao"}`, shown.at("data", "raw", "body").(string))
	require.Equal(t, 1,
		s.count(`SELECT count(*) FROM log.event_readable WHERE type = 'data.revealed.v1' AND metadata->>'account' = $1`,
			s.account))

	again := arrivalsPath + "/" + id + "/resubmit"
	require.Equal(t, id, s.as(http.MethodPost, again, "").is(http.StatusBadRequest).at("arrivalId"))
	s.as(http.MethodPost, again, `{"set":["phone"]}`).is(http.StatusBadRequest)
	captured := s.as(http.MethodPost, again, `{"set":{"phone":"+919876512345"}}`).is(http.StatusOK)
	require.Equal(t, "Asha Rao", captured.at("data", "name"))
	twice := s.as(http.MethodPost, again, `{"set":{"phone":"+919876500000"}}`).is(http.StatusOK)
	require.Equal(t, captured.at("data", "leadId"), twice.at("data", "leadId"))
	sources := s.as(http.MethodGet, leads+"/"+captured.at("data", "leadId").(string)+"/sources", "").is(http.StatusOK)
	require.Equal(t, shown.at("data", "receivedAt"), sources.item("firstSeenAt"))

	s.as(http.MethodDelete, arrivalsPath+"/"+id, "").is(http.StatusOK)
	s.as(http.MethodDelete, arrivalsPath+"/"+id, "").is(http.StatusOK)
	discarded := s.as(http.MethodGet, arrivalsPath+"/"+id, "").is(http.StatusOK)
	require.Equal(t, "discarded", discarded.at("data", "state"))
	require.Nil(t, discarded.at("data", "raw"))
	require.Equal(t, "ARRIVAL_DISCARDED", s.as(http.MethodPost, again, "").is(http.StatusConflict).at("code"))
	s.as(http.MethodGet, arrivalsPath+"/"+missingID, "").is(http.StatusNotFound)
}

// item returns a member of the first item of a list.
func (r reply) item(name string) any {
	r.t.Helper()
	list, _ := r.body["data"].([]any)
	require.NotEmpty(r.t, list)
	return list[0].(map[string]any)[name]
}

func (s *service) count(query string, args ...any) int {
	s.t.Helper()
	return pgtest.Value[int](s.t, s.pool, query, args...)
}

func TestArrivals_RawMasksProofs(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := ulid.Make().String()
	s.putIntake(id, event.IntakeCreated{
		IntakeSettings: event.IntakeSettings{Kind: intake.GoogleLeadForm, Source: "google_ad", Enabled: true},
	})
	kept := s.arrive(id, `{"lead_id":"l-1", "google_key" : "hunter2", "user_column_data":[{"google_key":"kept"}]}`)
	shown := s.as(http.MethodGet, arrivalsPath+"/"+kept.ID, "").is(http.StatusOK)
	require.Equal(t, `{"lead_id":"l-1", "google_key" : "***", "user_column_data":[{"google_key":"kept"}]}`,
		shown.at("data", "raw", "body"))
}

// The owner has corrected the mapping. A worker stops halfway, and a second one continues.
func TestArrivals_ResubmitAll(t *testing.T) {
	t.Parallel()
	s := startAlone(t) // workers take the requests of all accounts
	id := ulid.Make().String()
	settings := event.IntakeSettings{Kind: intake.StandardWebhooks, Source: "website", Enabled: true}
	s.putIntake(id, event.IntakeCreated{IntakeSettings: settings})
	const people = 60
	for i := range people {
		require.Equal(t, "quarantined", s.arrive(id, fmt.Sprintf(`{"handy":"+9198765%05d"}`, i)).State)
	}
	settings.Mapping = map[string]string{"phone": `body.handy`}
	s.putIntake(id, event.IntakeChanged{IntakeSettings: settings, Changed: []string{"mapping"}})

	s.as(http.MethodPost, arrivalsPath+"/resubmit", `{}`).is(http.StatusBadRequest)
	s.as(http.MethodPost, arrivalsPath+"/resubmit", `{"intakeId":"`+missingID+`"}`).is(http.StatusNotFound)
	s.as(http.MethodPost, arrivalsPath+"/resubmit", `{"intakeId":"`+id+`"}`).is(http.StatusAccepted)
	s.caughtUp()

	remaining := people / 3 // resubmissions before the first worker stops
	stopped := fmt.Errorf("stopped")
	log := slog.New(slog.DiscardHandler)
	run := resubmit.Commands(command.NewDirectory(s.store, time.Now), s.commands, log)
	worker := resubmit.Worker{
		Queue: resubmit.Queue{Pool: s.pool, Store: s.store}, Log: log,
		Resubmit: func(ctx context.Context, r resubmit.Request, arrivalID string) error {
			if remaining--; remaining == 0 {
				return stopped
			}
			return run(ctx, r, arrivalID)
		},
	}
	var err error
	for err == nil {
		_, err = worker.RunOnce(t.Context())
	}
	require.ErrorIs(t, err, stopped)
	for worked := true; worked; {
		worked, err = worker.RunOnce(t.Context())
		require.NoError(t, err)
	}
	s.caughtUp()
	require.Equal(t, people, s.count(`SELECT count(*) FROM views.arrival WHERE state = 'captured'`))
	require.Equal(t, people, s.count(`SELECT count(*) FROM views.lead`))
	require.Equal(t, people, s.count(`SELECT count(*) FROM log.event WHERE type = 'arrival.resubmitted.v1'`))
	require.Zero(t, s.count(`SELECT count(*) FROM log.event WHERE type = 'lead.merged.v1'`))
}

// An erasure makes the stored posts about the person unreadable.
func TestArrivals_ErasedWithLead(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := ulid.Make().String()
	s.putIntake(id, event.IntakeCreated{
		IntakeSettings: event.IntakeSettings{Kind: intake.StandardWebhooks, Source: "website", Enabled: true},
	})
	answer, err := s.commands.ReceiveArrival(t.Context(), command.ReceiveArrival{
		Caller: command.Caller{
			Account: s.account, Actor: "system:intake", Credential: "intake:" + id, RequestID: "r-1",
		},
		IntakeID: id, Intake: eventstore.Check(event.IntakeStream(id), eventstore.At(0)), Source: "website",
		Raw:    event.ArrivalRaw{ContentType: "application/json"}.WithBody([]byte(`{"phone":"+919876512345"}`)),
		Mapped: command.Mapped{Body: map[string]jsontext.Value{"phone": jsontext.Value(`"+919876512345"`)}},
	})
	require.NoError(t, err)
	shown := s.as(http.MethodGet, arrivalsPath+"/"+answer.ID, "").is(http.StatusOK)
	lead := shown.at("data", "leadId").(string)
	require.True(t, strings.Contains(shown.raw, "9876512345"))
	sources := s.as(http.MethodGet, leads+"/"+lead+"/sources", "").is(http.StatusOK)
	require.Equal(t, map[string]any{"kind": "intake", "id": id}, sources.item("credential"))
	s.as(http.MethodDelete, leads+"/"+lead, "").is(http.StatusOK)
	discarded := s.as(http.MethodGet, arrivalsPath+"/"+answer.ID, "").is(http.StatusOK)
	require.Equal(t, "discarded", discarded.at("data", "state"))
	require.Nil(t, discarded.at("data", "raw"))
	require.Nil(t, discarded.at("data", "leadId"))
	require.Zero(t, s.count(`SELECT count(*) FROM person.key WHERE stream = 'arrival-`+answer.ID+`'`))
}
