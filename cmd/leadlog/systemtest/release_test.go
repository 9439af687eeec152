package systemtest

import (
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
	"github.com/leadlog/leadlog/eventstore/merkle"
)

// Engines of the log, as directories of a release's data.
const (
	inPostgres   = "postgres"
	eventStoreDB = "eventstoredb"
)

// TestReleases_DataStaysUsable restores what each release has written, starts this program on it, and requires that
// what its users have is still good. The data of this program are written and restored too: with LEADLOG_TEST_RELEASE,
// as make release-data does, they are kept in that directory, for later versions.
func TestReleases_DataStaysUsable(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	dirs, err := filepath.Glob("../../../deploy/releases/*")
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	present := os.Getenv("LEADLOG_TEST_RELEASE")
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return filepath.Base(dir) == filepath.Base(present) })
	for _, engine := range []string{inPostgres, eventStoreDB} {
		t.Run("present/"+engine, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), engine)
			if present != "" {
				dir = filepath.Join(present, engine)
			}
			writeRelease(t, engine, dir)
			requireUsable(t, engine, dir)
		})
		for _, dir := range dirs {
			t.Run(filepath.Base(dir)+"/"+engine, func(t *testing.T) {
				t.Parallel()
				requireUsable(t, engine, filepath.Join(dir, engine))
			})
		}
	}
}

// requireUsable restores the data of a release and uses them.
func requireUsable(t *testing.T, engine, dir string) {
	t.Helper()
	var data releaseData
	require.NoError(t, json.Unmarshal([]byte(unzipped(t, filepath.Join(dir, "data.json.gz"))), &data))
	settings := emptySettings(t)
	maps.Copy(settings, data.Keys)
	restoreSQL(t, settings["LEADLOG_DATABASE_URL"], unzipped(t, filepath.Join(dir, "database.sql.gz")))
	if engine == eventStoreDB {
		server := esdbtest.StartFrom(t, strings.NewReader(unzipped(t, filepath.Join(dir, "log.json.gz"))))
		server.Upgrade()
		settings["LEADLOG_EVENTSTORE_URL"] = server.URL()
	}
	kept := filepath.Join(dir, "kept")
	requireProofs(t, settings, kept, data)

	launch(t, settings, "migrate").exits(t, 0)
	launch(t, settings, "verify").exits(t, 0)
	launch(t, settings, "verify", filepath.Join(kept, "report.json")).exits(t, 0)
	p, base := serve(t, settings)
	requireAnswers(t, settings, base, data)
	requireReceipts(t, settings, base, kept, data)
	requireCredentials(t, settings, base, data)
	requireWebhooks(t, settings, base, data)
	p.stop(t)
	launch(t, settings, "verify").exits(t, 0)
	launch(t, settings, "replay", "all").exits(t, 0)
	p, base = serve(t, settings)
	for _, answer := range data.Answers[:1] {
		require.NotEmpty(t, readData(t, base, answer.Path, mint(t, settings, answer.Account), ""))
	}
	p.stop(t)
}

func unzipped(t *testing.T, path string) string {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	zipped, err := gzip.NewReader(file)
	require.NoError(t, err)
	content, err := io.ReadAll(zipped)
	require.NoError(t, err)
	return string(content)
}

func restoreSQL(t *testing.T, address, dump string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.PgConn().Exec(t.Context(), dump).ReadAll()
	require.NoError(t, err)
}

// requireProofs requires that the files that people keep are good without the service.
func requireProofs(t *testing.T, settings map[string]string, kept string, data releaseData) {
	t.Helper()
	offline := map[string]string{"LEADLOG_DATA_DIR": filepath.Join(t.TempDir(), "none")}
	in := func(name string) string { return filepath.Join(kept, name) }
	receipt, err := os.ReadFile(in("receipt-0.txt"))
	require.NoError(t, err)
	key := logKey(t, settings, string(receipt))
	check := func(args ...string) {
		t.Helper()
		launch(t, offline, append([]string{"verify", "--public-key", key}, args...)...).exits(t, 0)
	}
	require.NotEmpty(t, data.Receipts)
	for n := range data.Receipts {
		check("--receipt", in("receipt-"+n+".txt"), "--event", in("event-"+n+".json"))
		check("--evidence", in("evidence-"+n+".json"))
	}
	check("--certificate", in("certificate.json"))
	check("--tree", in("tokens-head.txt"), in("tokens.ndjson"))
	for _, name := range []string{"checkpoint.txt", "head.txt"} {
		text, err := os.ReadFile(in(name))
		require.NoError(t, err)
		_, err = merkle.Trust{PublicKey: key}.Open(text)
		require.NoError(t, err, name)
	}
}

// requireReceipts requires that the log still begins as signed, and that each event has the place that it had.
func requireReceipts(t *testing.T, settings map[string]string, base, kept string, data releaseData) {
	t.Helper()
	for _, name := range []string{"checkpoint.txt", "head.txt", "tokens-head.txt"} {
		launch(t, settings, "verify", "--tree", filepath.Join(kept, name)).exits(t, 0)
	}
	for n, path := range data.Receipts {
		before, err := os.ReadFile(filepath.Join(kept, "receipt-"+n+".txt"))
		require.NoError(t, err)
		trust := merkle.Trust{PublicKey: logKey(t, settings, string(before))}
		then, err := audit.OpenReceipt(before, trust)
		require.NoError(t, err)
		now, err := audit.OpenReceipt([]byte(text(t, base+path, mint(t, settings, "acme"))), trust)
		require.NoError(t, err)
		require.Equal(t, []any{then.Leaf, then.Index}, []any{now.Leaf, now.Index})
	}
}

// requireAnswers requires that every answer has what it had. Members may be added.
func requireAnswers(t *testing.T, settings map[string]string, base string, data releaseData) {
	t.Helper()
	require.Greater(t, len(data.Answers), 40)
	for _, kept := range data.Answers {
		got := readData(t, base, kept.Path, mint(t, settings, kept.Account), "")
		if kept.How == "answers" {
			continue
		}
		var want any
		require.NoError(t, json.Unmarshal(kept.Data, &want))
		list, isList := want.([]any)
		if kept.How == "grows" {
			require.True(t, isList, kept.Path)
			requireContains(t, kept.Path, list, got.([]any))
			continue
		}
		if isList && len(list) > 0 {
			require.Len(t, got, len(list), kept.Path)
		}
		require.Empty(t, missing(want, got), kept.Path)
	}
}

// requireContains requires that a list has the elements of another one, in their order.
func requireContains(t *testing.T, path string, want, got []any) {
	t.Helper()
	for _, element := range want {
		at := slices.IndexFunc(got, func(other any) bool { return missing(element, other) == "" })
		require.GreaterOrEqual(t, at, 0, "%s lacks %v", path, element)
		got = got[at+1:]
	}
}

// changedByTime are the values of members that time changes.
var changedByTime = map[string]map[string]string{
	"status": {"active": "expired"},      // a token
	"state":  {"quarantined": "expired"}, // an arrival
}

// missing returns the first difference of a JSON value from an earlier one, beyond members that were added, or nothing.
func missing(want, got any) string { return missingAt("", want, got) }

func missingAt(path string, want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			return path + ": no object"
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if text, ok := want[name].(string); ok {
				if later, may := changedByTime[name][text]; may && object[name] == later {
					continue
				}
			}
			if _, has := object[name]; !has {
				return path + "." + name + ": absent"
			}
			if found := missingAt(path+"."+name, want[name], object[name]); found != "" {
				return found
			}
		}
		return ""
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			return path + ": another length"
		}
		for i := range want {
			if found := missingAt(path+"[]", want[i], list[i]); found != "" {
				return found
			}
		}
		return ""
	}
	if want != got {
		was, _ := json.Marshal(want)
		is, _ := json.Marshal(got)
		return path + ": " + string(was) + " is now " + string(is)
	}
	return ""
}

// requireCredentials requires that what was given to callers is still good, or refused for its own reason.
func requireCredentials(t *testing.T, settings map[string]string, base string, data releaseData) {
	t.Helper()
	jwt := mint(t, settings, "acme")
	capture := func(bearer, body, key string) answer {
		t.Helper()
		got, err := callWith(t.Context(), "POST", base+leadsPath, bearer, body, map[string]string{"Idempotency-Key": key})
		require.NoError(t, err)
		return got
	}
	for i, token := range data.Tokens {
		expires, err := time.Parse(time.RFC3339, token.ExpiresAt)
		require.NoError(t, err)
		got := capture(token.Value, madeUp(60+i, ""), "")
		if time.Now().Before(expires) {
			got.is(t, 201)
			continue
		}
		got.is(t, 401)
		require.Eventually(t, func() bool {
			refused := mustCall(t, "GET", base+"/api/v1/crm/audit/events?type=token.refused", jwt, "").is(t, 200)
			return strings.Contains(jsonOf(t, refused.body), `"reason":"expired"`)
		}, time.Minute, 100*time.Millisecond, "it is known")
	}
	capture(data.Rotated, madeUp(60, ""), "").is(t, 401)

	merged := capture(jwt, data.Known.Body, "").is(t, 200)
	require.Equal(t, data.Known.LeadID, merged.data()["leadId"], "a person of then is found")
	repeated := capture(jwt, data.Repeated.Body, data.Repeated.Key).is(t, 201)
	require.Equal(t, data.Repeated.LeadID, repeated.data()["leadId"], "a call of then is repeated")
	require.Equal(t, "true", repeated.header.Get("Idempotent-Replayed"))

	for _, s := range providers(t, "https://graph.example") {
		if s.kind == "webhook" {
			posted, err := s.post(70).send(t.Context(), base, data.Intake)
			require.NoError(t, err)
			posted.is(t, 200)
		}
	}
	arrival := mustCall(t, "GET", base+arrivalsPath+"/"+data.Quarantined, jwt, "").is(t, 200).data()
	resubmit := mustCall(t, "POST", base+arrivalsPath+"/"+data.Quarantined+"/resubmit", jwt,
		`{"set":{"phone":"+12025550105"}}`)
	if arrival["state"] == "expired" {
		require.NotEqual(t, 200, resubmit.status)
	} else {
		require.Contains(t, jsonOf(t, arrival["raw"]), "Person 5")
		resubmit.is(t, 200)
	}

	var followed []string
	page := mustCall(t, "GET", base+"/api/v1/crm/events?limit=10&after="+data.Cursor, jwt, "").is(t, 200)
	for _, e := range page.body["data"].([]any) {
		followed = append(followed, e.(map[string]any)["id"].(string))
	}
	require.Equal(t, data.Followed, followed, "a cursor of then")
}

func jsonOf(t *testing.T, value any) string {
	t.Helper()
	encoded, err := json.Marshal(value, json.Deterministic(true))
	require.NoError(t, err)
	return string(encoded)
}

// requireWebhooks requires that an endpoint of then gets webhooks, that its secret verifies them, and that a replay has
// the bodies of then.
func requireWebhooks(t *testing.T, settings map[string]string, base string, data releaseData) {
	t.Helper()
	jwt, receiver := mint(t, settings, "acme"), newBodies(t)
	endpoint := base + "/webhooks/endpoints/" + data.WebhookID
	mustCall(t, "PATCH", endpoint, jwt, `{"url":"`+receiver.URL+`"}`).is(t, 200)
	mustCall(t, "POST", endpoint+"/replay", jwt, `{"since":"`+data.Since+`"}`).is(t, 202)
	erased := map[any]bool{} // leads and arrivals whose bodies cannot be made again
	for _, e := range readData(t, base, "/api/v1/crm/audit/events?type=lead.erased", jwt, "").([]any) {
		erased[e.(map[string]any)["subject"]] = true
	}
	require.NotEmpty(t, erased)
	for _, arrival := range readData(t, base, arrivalsPath, jwt, "").([]any) {
		arrival := arrival.(map[string]any)
		erased[arrival["arrivalId"]] = arrival["state"] == "discarded" || arrival["state"] == "expired"
	}
	var want []map[string]any
	for _, body := range data.Bodies {
		var sent map[string]any
		require.NoError(t, json.Unmarshal(body, &sent))
		if about := sent["data"].(map[string]any); sent["type"] != "webhook.test" && !erased[about["leadId"]] &&
			!erased[about["arrivalId"]] {
			want = append(want, sent)
		}
	}
	require.NotEmpty(t, want)
	differences := func() (found []string) {
		received := map[any]any{}
		for _, body := range receiver.received() {
			var sent map[string]any
			require.NoError(t, json.Unmarshal(body, &sent))
			received[jsonOf(t, []any{sent["type"], sent["id"], sent["consent"]})] = sent
		}
		for _, sent := range want {
			if of := missing(sent, received[jsonOf(t, []any{sent["type"], sent["id"], sent["consent"]})]); of != "" {
				found = append(found, fmt.Sprint(sent["type"], " ", sent["id"], of))
			}
		}
		return found
	}
	require.Eventually(t, func() bool { return len(differences()) == 0 }, soon, 50*time.Millisecond)
	verifier, err := standardwebhooks.NewWebhook(data.Secret)
	require.NoError(t, err)
	receiver.mu.Lock()
	defer receiver.mu.Unlock()
	require.NoError(t, verifier.Verify(receiver.all[len(receiver.all)-1], receiver.header))
}
