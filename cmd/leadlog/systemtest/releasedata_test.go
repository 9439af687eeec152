package systemtest

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

// releaseData is what a user of a release has: keys, credentials, cursors, answers. It is the file data.json.gz of
// a directory of deploy/releases. Beside it are, by engine of the log,
//
//	database.sql.gz   the dump of the database: views, keys of persons, deliveries and, in PostgreSQL, the log
//	log.json.gz       the log in EventStoreDB, as esdbtest saves it
//	kept/             files that people keep: receipts, evidence, a certificate, a report, an export, checkpoints
type releaseData struct {
	Keys        map[string]string // settings
	Tokens      []keptToken       // of the account acme, with every right of a token
	Rotated     string            // a value that was replaced
	Repeated    keptCapture       // with an idempotency key
	Known       keptCapture       // the phone of a lead
	Quarantined string            // arrival
	Intake      string            // address of one whose secret is intakeSecret, of kind webhook
	WebhookID   string
	Secret      string           // of the endpoint
	Since       string           // when it was made
	Bodies      []jsontext.Value // of its deliveries
	Cursor      string           // of the change feed
	Followed    []string         // ids of the events after it
	Receipts    map[string]string
	Answers     []keptAnswer
}

type keptToken struct{ Value, ExpiresAt string }

type keptCapture struct{ Key, Body, LeadID string }

// keptAnswer is the answer of a GET. Time changes some: How is "same", "grows" for a list to which the service itself
// appends, or "answers" for one of the present day.
type keptAnswer struct {
	Account, Path, How string
	Data               jsontext.Value
}

// bodies is a webhook receiver that keeps what it is sent, and may refuse.
type bodies struct {
	*httptest.Server
	mu     sync.Mutex
	all    []jsontext.Value
	header http.Header // of the latest
	refuse bool
}

func newBodies(t *testing.T) *bodies {
	t.Helper()
	b := &bodies{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		b.mu.Lock()
		defer b.mu.Unlock()
		if err != nil || b.refuse {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		b.all, b.header = append(b.all, body), r.Header.Clone()
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *bodies) refuses(refuse bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = refuse
}

func (b *bodies) received() []jsontext.Value {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all)
}

// writeRelease starts the program on an empty database, uses it as people do, and writes the data of a release to a
// directory. All persons are made up.
func writeRelease(t *testing.T, engine, dir string) {
	t.Helper()
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "kept"), 0o755))
	settings := emptySettings(t)
	for i, name := range []string{"LEADLOG_CLAIM_KEY", "LEADLOG_SEAL_KEY", "LEADLOG_TREE_KEY"} {
		settings[name] = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte('a' + i)}, 32))
	}
	settings["LEADLOG_WEBHOOK_RETRY_SCHEDULE"] = "50ms"
	var server *esdbtest.Server
	if engine == eventStoreDB {
		server = esdbtest.Start(t)
		settings["LEADLOG_EVENTSTORE_URL"] = server.URL()
	}
	launch(t, settings, "migrate").exits(t, 0)
	launch(t, settings, "account", "set", "acme", "--name", "Acme", "--feature", "crm_api", "--region", "US",
		"--quarantine", "--quarantine-days", "365", "--visitor-days", "3650", "--shared-after", "3",
		"--ignore-contact", "*@spam.example").exits(t, 0)
	d := &releaseDriver{
		T: t, settings: settings, dir: dir, jwt: mint(t, settings, "acme"),
		data: releaseData{Keys: map[string]string{}, Receipts: map[string]string{}},
	}
	for _, name := range []string{
		"LEADLOG_CLAIM_KEY", "LEADLOG_SEAL_KEY", "LEADLOG_TREE_KEY", "LEADLOG_JWT_SECRET",
	} {
		d.data.Keys[name] = settings[name]
	}
	p, base := serve(t, settings)
	d.base = base
	d.capture()
	d.importFiles()
	if p.stop(t); server != nil {
		server.Upgrade() // later appends are of the other form
	}
	p, d.base = serve(t, settings)
	d.administer()
	p.stop(t)
	p, d.base = serve(t, settings)
	d.keepProofs()
	d.keepAnswers()
	p.stop(t)
	launch(t, settings, "verify").exits(t, 0)

	dump := filepath.Join(t.TempDir(), "database.sql")
	tool(t, "pg_dump", "--no-owner", "--no-privileges", "--inserts", "--rows-per-insert=100", "--file="+dump,
		settings["LEADLOG_DATABASE_URL"])
	plain, err := os.ReadFile(dump)
	require.NoError(t, err)
	writeZipped(t, filepath.Join(dir, "database.sql.gz"), portable(string(plain)))
	if server != nil {
		var log bytes.Buffer
		require.NoError(t, server.Save(&log))
		writeZipped(t, filepath.Join(dir, "log.json.gz"), log.String())
	}
	encoded, err := json.Marshal(d.data, json.Deterministic(true))
	require.NoError(t, err)
	writeZipped(t, filepath.Join(dir, "data.json.gz"), string(encoded))
}

// portable removes from a dump what only its pg_dump's own psql and server understand.
func portable(dump string) string {
	return regexp.MustCompile(`(?m)^(\\(un)?restrict .*|SET (transaction_timeout|default_table_access_method) = .*)\n`).
		ReplaceAllString(dump, "")
}

func writeZipped(t *testing.T, path, content string) {
	t.Helper()
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	require.NoError(t, err)
	_, err = io.WriteString(w, content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(path, zipped.Bytes(), 0o644))
}

// releaseDriver calls the service of an account.
type releaseDriver struct {
	*testing.T
	settings            map[string]string
	dir, base, jwt      string
	receiver            *bodies
	lead, other, erased string // ids
	position            string // of the latest write
	data                releaseData
}

// call makes a call with the account's JWT.
func (d *releaseDriver) call(status int, method, path, body string) answer {
	d.Helper()
	return d.callAs(status, d.jwt, method, path, body, nil)
}

func (d *releaseDriver) callAs(
	status int, bearer, method, path, body string, headers map[string]string,
) answer {
	d.Helper()
	got, err := callWith(d.Context(), method, d.base+path, bearer, body, headers)
	require.NoError(d, err)
	require.Equal(d, status, got.status, "%s %s: %v", method, path, got.body)
	if at := got.header.Get("X-Log-Position"); at != "" {
		d.position = at
	}
	return got
}

// madeUp returns the body of a capture of a person, with more members.
func madeUp(n int, more string) string {
	return fmt.Sprintf(`{"name":"Person %d","phone":"+1202555%04d","email":"person%d@example.com"%s}`, n, 100+n, n, more)
}

// capture uses tokens, captures, webhooks, intakes and visitors.
func (d *releaseDriver) capture() {
	const tokens, endpoints = "/api/v1/crm/tokens", "/webhooks/endpoints"
	for _, days := range []int{365, 1} {
		made := d.call(201, "POST", tokens, fmt.Sprintf(`{"name":"CI %d","expiresInDays":%[1]d}`, days)).data()
		d.data.Tokens = append(d.data.Tokens, keptToken{made["plainToken"].(string), made["expiresAt"].(string)})
	}
	token := d.data.Tokens[0].Value
	rotated := d.call(201, "POST", tokens, `{"name":"Rotated","expiresInDays":30}`).data()
	d.data.Rotated = rotated["plainToken"].(string)
	d.call(200, "POST", tokens+"/"+rotated["tokenId"].(string)+"/rotate", "")
	d.callAs(401, d.data.Rotated, "POST", leadsPath, madeUp(0, ""), nil)
	deleted := d.call(201, "POST", tokens, `{"name":"Deleted","expiresInDays":30}`).data()["tokenId"].(string)
	d.call(200, "DELETE", tokens+"/"+deleted, "")

	d.receiver = newBodies(d.T)
	endpoint := d.call(201, "POST", endpoints, `{"url":"`+d.receiver.URL+`","description":"CRM","ordering":"lead",`+
		`"filter":"type != \"lead.erased\"","headers":{"X-Shop":"one"}}`).data()
	d.data.WebhookID, d.data.Secret = endpoint["webhookId"].(string), endpoint["secret"].(string)
	d.data.Since = endpoint["createdAt"].(string)
	gone := d.call(201, "POST", endpoints, `{"url":"`+d.receiver.URL+`/gone","events":["token.created"]}`).data()
	d.call(200, "DELETE", endpoints+"/"+gone["webhookId"].(string), "")

	const visit = `{"type":"page_view","url":"https://shop.example/?utm_source=newsletter&utm_campaign=spring"}`
	d.callAs(202, token, "POST", "/api/v1/crm/visitors/visitor-1/activity", visit, nil)
	d.callAs(202, token, "POST", "/api/v1/crm/visitors/visitor-2/activity", visit, nil)
	d.call(200, "DELETE", "/api/v1/crm/visitors/visitor-2", "")

	known := d.callAs(201, token, "POST", leadsPath, madeUp(1, `,"visitorId":"visitor-1","opportunityValue":"$1,200.50",`+
		`"leadTemperature":"warm","city":"Springfield","metadata":{"source":"website","utm_source":"google",`+
		`"utm_medium":"cpc","utm_campaign":"spring","gclid":"g-1",`+
		`"consent":{"purpose":"email","text":"Write to me.","version":"1"}}`), nil)
	d.lead = known.data()["leadId"].(string)
	d.data.Known = keptCapture{Body: madeUp(1, `,"metadata":{"source":"whatsapp"}`), LeadID: d.lead}
	d.call(200, "POST", leadsPath, madeUp(1, `,"metadata":{"source":"google_ad"},"customFields":{"size":"XL"}`))
	d.callAs(200, token, "POST", leadsPath, madeUp(1, ""), nil)
	d.callAs(409, token, "POST", leadsPath, madeUp(1, ""), nil)
	d.data.Repeated = keptCapture{Key: "order-1", Body: madeUp(2, "")}
	d.data.Repeated.LeadID = d.callAs(201, token, "POST", leadsPath, d.data.Repeated.Body,
		map[string]string{"Idempotency-Key": "order-1"}).data()["leadId"].(string)
	d.other = d.data.Repeated.LeadID
	batch := d.batch(token, madeUp(3, "")+"\n"+`{"phone":"12"}`+"\n"+madeUp(4, "")+"\n")
	require.Contains(d, batch, `"status":201`)
	require.Contains(d, batch, `"status":400`)
	d.call(400, "POST", leadsPath, `{"email":"ann@spam.example"}`)
	d.data.Quarantined = d.callAs(400, token, "POST", leadsPath, `{"name":"Person 5","phone":"55"}`, nil).
		body["arrivalId"].(string)
	d.call(400, "POST", leadsPath+"?dryRun=true", `{"phone":"55"}`)

	graph := startGraph(d.T)
	for i, s := range providers(d.T, graph.URL) {
		id, address := createIntake(d.T, d.base, d.jwt, s.kind, s.settings)
		if s.kind == "webhook" {
			d.data.Intake = address
		}
		posted, err := s.post(50+i).send(d.Context(), d.base, address)
		require.NoError(d, err)
		posted.is(d.T, 200)
		if s.kind == "form" {
			d.call(200, "PATCH", intakesPath+"/"+id, `{"onInvalid":"keep"}`)
			for n := range 3 {
				body := fmt.Sprintf("your-name=Person+%d&tel=1%d", 6+n, 2+n)
				kept, err := post{"application/x-www-form-urlencoded", body, nil}.send(d.Context(), d.base, address)
				require.NoError(d, err)
				kept.is(d.T, 200)
			}
		}
	}
	arrivals := func(state string) []map[string]any {
		return listAll(d.T, d.base, arrivalsPath+"?minPosition="+d.position+"&state="+state, d.jwt)
	}
	require.Eventually(d, func() bool { return len(arrivals("received")) == 0 }, soon, 20*time.Millisecond,
		"the leads of Meta are fetched")
	kept := slices.DeleteFunc(arrivals("quarantined"), func(a map[string]any) bool { return a["intakeId"] == nil })
	require.Len(d, kept, 3)
	d.call(200, "DELETE", arrivalsPath+"/"+kept[0]["arrivalId"].(string), "")
	d.call(200, "POST", arrivalsPath+"/"+kept[1]["arrivalId"].(string)+"/resubmit", `{"set":{"phone":"+12025550106"}}`)
}

// batch posts lines and returns the answer.
func (d *releaseDriver) batch(token, lines string) string {
	request, err := http.NewRequestWithContext(d.Context(), http.MethodPost, d.base+leadsPath+"/batch",
		strings.NewReader(lines))
	require.NoError(d, err)
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/x-ndjson")
	got, err := httpClient.Do(request)
	require.NoError(d, err)
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	require.NoError(d, err)
	return string(body)
}

// importFiles imports files, takes one back, and imports leads that are due to be erased.
func (d *releaseDriver) importFiles() {
	const header = "Name,Phone,Email,Created Time,Stage,Campaign\n"
	launch(d.T, d.settings, "import", writeFile(d.T, "leads.csv", header+
		"Person 10,+12025550110,person10@example.com,2026-01-05T10:00:00Z,contacted,winter\n"+
		"Person 11,+12025550111,,2026-02-05T10:00:00Z,new,winter\nPerson 12,13,,,,\n"), "--account", "acme", "--yes")
	undone := launch(d.T, d.settings, "import", writeFile(d.T, "mistake.csv", header+
		"Person 13,+12025550113,,,,\n"), "--account", "acme", "--yes")
	undone.exits(d.T, 0)
	run := regexp.MustCompile(`--undo (\w{26})`).FindStringSubmatch(undone.out.String() + undone.err.String())
	require.NotNil(d, run, "%s%s", undone.out, undone.err)
	launch(d.T, d.settings, "import", "--undo", run[1], "--account", "acme", "--yes").exits(d.T, 0)

	launch(d.T, d.settings, "account", "set", "retaining", "--feature", "crm_api", "--region", "US",
		"--retention-days", "30").exits(d.T, 0)
	launch(d.T, d.settings, "import", writeFile(d.T, "old.csv", header+
		"Person 20,+12025550120,,2024-01-05T10:00:00Z,contacted,\nPerson 21,+12025550121,,2024-01-05T10:00:00Z,won,\n"),
		"--account", "retaining", "--yes").exits(d.T, 0)
	retaining := mint(d.T, d.settings, "retaining")
	require.Eventually(d, func() bool {
		due := mustCall(d.T, "GET", d.base+"/api/v1/crm/retention", retaining, "").is(d.T, 200)
		return due.data()["dueNow"] == 1.0
	}, soon, 20*time.Millisecond, "the next start erases it")
}

// administer changes what is there.
func (d *releaseDriver) administer() {
	retaining := mint(d.T, d.settings, "retaining")
	require.Eventually(d, func() bool {
		left := mustCall(d.T, "GET", d.base+leadsPath, retaining, "").is(d.T, 200).body["data"].([]any)
		return len(left) == 1 && left[0].(map[string]any)["status"] == "won"
	}, soon, 50*time.Millisecond, "the lead of 2024 is erased, the one that was won is kept")

	lead := leadsPath + "/" + d.lead
	d.call(200, "PATCH", lead, `{"status":"won","opportunityValue":1500}`)
	d.call(201, "POST", lead+"/consents", `{"purpose":"email","granted":false,"method":"phone"}`)
	d.call(200, "POST", leadsPath,
		`{"phone":"+12025550199","email":"person1@example.com","metadata":{"source":"landing"}}`)
	d.call(200, "POST", lead+"/contacts/release", `{"phone":"+12025550199"}`)
	d.call(200, "PUT", "/api/v1/crm/spend",
		`{"rows":[{"day":"2026-01-05","key":{"source":"google_ad","utmCampaign":"spring"},"amount":"120.50"}]}`)

	joined := d.call(201, "POST", leadsPath, madeUp(30, `,"metadata":{"source":"website"}`)).data()["leadId"].(string)
	d.call(200, "POST", leadsPath+"/"+d.other+"/join", `{"from":"`+joined+`"}`)
	d.call(201, "POST", leadsPath+"/"+d.other+"/split", `{"lead":"`+joined+`"}`)
	shared := leadsPath + "/" + d.call(201, "POST", leadsPath, madeUp(31, "")).data()["leadId"].(string)
	d.call(200, "POST", leadsPath,
		`{"phone":"+12025550132","email":"person31@example.com","metadata":{"source":"website"}}`)
	d.call(201, "POST", shared+"/split", `{"phone":"+12025550132"}`)

	d.erased = d.call(201, "POST", leadsPath, madeUp(40, `,"metadata":{"source":"chatbot"}`)).data()["leadId"].(string)
	launch(d.T, d.settings, "forget", d.erased, "--account", "acme", "--yes", "--certificate",
		filepath.Join(d.dir, "kept", "certificate.json")).exits(d.T, 0)
	erased := d.call(201, "POST", leadsPath, madeUp(41, "")).data()["leadId"].(string)
	d.call(200, "DELETE", leadsPath+"/"+erased, "")

	d.receiver.refuses(true)
	d.call(202, "POST", "/webhooks/endpoints/"+d.data.WebhookID+"/test", "")
	deliveries := "/webhooks/endpoints/" + d.data.WebhookID + "/deliveries?state="
	require.Eventually(d, func() bool {
		return len(d.call(200, "GET", deliveries+"failed", "").body["data"].([]any)) > 0
	}, soon, 20*time.Millisecond)
	d.receiver.refuses(false)
	d.call(202, "POST", "/webhooks/endpoints/"+d.data.WebhookID+"/test", "")
	require.Eventually(d, func() bool {
		return len(d.call(200, "GET", deliveries+"queued&minPosition="+d.position, "").body["data"].([]any)) == 0
	}, soon, 20*time.Millisecond)
	d.data.Bodies = d.receiver.received()
}

// keepProofs keeps the files that people keep.
func (d *releaseDriver) keepProofs() {
	kept := filepath.Join(d.dir, "kept")
	route := leadsPath + "/" + d.lead + "/events"
	for i, listed := range d.call(200, "GET", route, "").body["data"].([]any) {
		id := listed.(map[string]any)["id"].(string)
		shown, err := json.Marshal(listed, json.Deterministic(true))
		require.NoError(d, err)
		file(d.T, kept, fmt.Sprintf("event-%d.json", i), string(shown))
		d.data.Receipts[fmt.Sprint(i)] = route + "/" + id + "/receipt"
		file(d.T, kept, fmt.Sprintf("receipt-%d.txt", i), text(d.T, d.base+route+"/"+id+"/receipt", d.jwt))
		file(d.T, kept, fmt.Sprintf("evidence-%d.json", i), text(d.T, d.base+route+"/"+id+"/evidence", d.jwt))
	}
	file(d.T, kept, "checkpoint.txt", text(d.T, d.base+"/api/v1/crm/audit/checkpoint", ""))
	launch(d.T, d.settings, "verify", "--head", filepath.Join(kept, "head.txt")).exits(d.T, 0)
	exported, _ := outputOf(d.T, 0, d.settings, "export", "tokens", "--account", "acme", "--format", "ndjson",
		"--head", filepath.Join(kept, "tokens-head.txt"))
	file(d.T, kept, "tokens.ndjson", exported)
	launch(d.T, d.settings, "report", "attribution", "--account", "acme", "--model", "linear", "--out",
		filepath.Join(kept, "report.json")).exits(d.T, 0)
}

// keepAnswers keeps the answers of every list, those that change with each reading last.
func (d *releaseDriver) keepAnswers() {
	lead, other, endpoint := leadsPath+"/"+d.lead, leadsPath+"/"+d.other, "/webhooks/endpoints/"+d.data.WebhookID
	const same, grows, answers = "same", "grows", "answers"
	paths := [][2]string{
		{leadsPath, same}, {leadsPath + "?q=person", same}, {leadsPath + "?status=won", same},
		{leadsPath + "?consent=-email", same}, {leadsPath + "?shared=true", same},
		{leadsPath + "?phone=%2B12025550101", same}, {leadsPath + "/refused", same},
		{lead, same}, {lead + "/sources", same}, {lead + "/events", same}, {lead + "/activity", same},
		{lead + "/consents", same}, {lead + "/consents?current=true", same}, {lead + "/export", answers},
		{lead + "?asOf=" + time.Now().UTC().Format(time.RFC3339), same},
		{other, same}, {other + "/events", same}, {other + "/sources", same},
		{leadsPath + "/" + d.erased + "/erasure-certificate", answers},
		{"/api/v1/crm/sources/history", same}, {"/api/v1/crm/sources/report?interval=month", same},
		{"/api/v1/crm/touches", same}, {"/api/v1/crm/touches?include=visits&asOf=" + d.position, same},
		{"/api/v1/crm/attribution?model=linear&include=visits&asOf=" + d.position, same},
		{"/api/v1/crm/attribution?by=campaign&cost=true&since=2026-01-01T00:00:00Z&asOf=" + d.position, same},
		{"/api/v1/crm/spend", same}, {"/api/v1/crm/pipeline/funnel?asOf=" + d.position, same},
		{"/api/v1/crm/pipeline/arrivals", answers}, {"/api/v1/crm/pipeline/time-to-won", answers},
		{"/api/v1/crm/retention", answers}, {"/api/v1/crm/usage", answers},
		{arrivalsPath, same}, {arrivalsPath + "?state=captured", same}, {intakesPath, same},
		{"/webhooks/endpoints", same}, {endpoint, same}, {endpoint + "/deliveries", answers},
		{"/api/v1/crm/tokens", same}, {"/api/v1/crm/audit/tokens", grows}, {"/api/v1/crm/audit/tree", answers},
		{"/api/v1/crm/audit/events?type=token.*", grows}, {"/api/v1/crm/audit/events?type=webhook.*", same},
		{"/api/v1/crm/audit/events?type=intake.*", same}, {"/api/v1/crm/audit/events?type=lead.erased", same},
		{"/api/v1/crm/audit/events?type=import.*", same}, {"/api/v1/crm/audit/events?type=account.*", same},
		{"/api/v1/crm/audit/events", grows}, {"/api/v1/crm/events", grows},
	}
	jwts := map[string]string{"acme": d.jwt, "retaining": mint(d.T, d.settings, "retaining")}
	keep := func(account, path, how string) {
		kept := keptAnswer{Account: account, Path: path, How: how}
		data := readData(d.T, d.base, path, jwts[account], d.position)
		if how != answers {
			encoded, err := json.Marshal(data, json.Deterministic(true))
			require.NoError(d, err)
			kept.Data = encoded
		}
		d.data.Answers = append(d.data.Answers, kept)
	}
	for _, path := range [][2]string{
		{leadsPath, same}, {"/api/v1/crm/sources/history", same}, {"/api/v1/crm/audit/events", grows},
	} {
		keep("retaining", path[0], path[1])
	}
	for _, path := range paths {
		keep("acme", path[0], path[1])
	}
	page := d.call(200, "GET", "/api/v1/crm/events?limit=10", "")
	d.data.Cursor = page.body["nextCursor"].(string)
	for _, e := range d.call(200, "GET", "/api/v1/crm/events?limit=10&after="+d.data.Cursor, "").body["data"].([]any) {
		d.data.Followed = append(d.data.Followed, e.(map[string]any)["id"].(string))
	}
	require.Len(d, d.data.Followed, 10)
}

// readData returns the data of a GET as of a position or later, of all pages.
func readData(t *testing.T, base, path, jwt, position string) any {
	t.Helper()
	u, err := url.Parse(path)
	require.NoError(t, err)
	query := u.Query()
	if position != "" {
		query.Set("minPosition", position)
	}
	var all []any
	for {
		u.RawQuery = query.Encode()
		got := mustCall(t, "GET", base+u.String(), jwt, "")
		require.Equal(t, 200, got.status, "%s: %v", path, got.body)
		page, isList := got.body["data"].([]any)
		if !isList {
			return got.body["data"]
		}
		all = append(all, page...)
		next, more := got.body["nextCursor"].(string)
		if !more || len(page) == 0 { // the feed always has a cursor
			return all
		}
		if strings.HasPrefix(path, "/api/v1/crm/events") {
			query.Set("after", next)
		} else {
			query.Set("cursor", next)
		}
	}
}
