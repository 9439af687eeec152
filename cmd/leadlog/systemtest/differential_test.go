package systemtest

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/httpapi"
)

// TestDifferential_RandomRequests sends random requests, one after another, to one process or to two on one database,
// and compares all answers, lists and reports with those of the reference model. LEADLOG_TEST_OPERATIONS is the number
// of requests, LEADLOG_TEST_SEED chooses them.
func TestDifferential_RandomRequests(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	number := func(variable string, otherwise uint64) uint64 {
		n, err := strconv.ParseUint(cmp.Or(os.Getenv(variable), fmt.Sprint(otherwise)), 10, 64)
		require.NoError(t, err, variable)
		return n
	}
	operations, seed := int(number("LEADLOG_TEST_OPERATIONS", 300)), number("LEADLOG_TEST_SEED", rand.Uint64())
	for name, processes := range map[string]int{"one process": 1, "two processes": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newDifferential(t, seed, processes).run(operations)
		})
	}
}

// differential compares a service with the reference model.
type differential struct {
	t          *testing.T
	rng        *rand.Rand // of requests
	reads      *rand.Rand // of reads, whose number depends on times and positions
	settings   map[string]string
	bases      []string // of the processes
	jwt, admin string
	*refAccount
	last    int64                         // position of the newest write
	done    []string                      // requests with their answers
	reports map[string]string             // rows by the path that reads them again
	batches map[string][]differentialLine // by idempotency key
	titles  int
}

func newDifferential(t *testing.T, seed uint64, processes int) *differential {
	t.Helper()
	d := &differential{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), reads: rand.New(rand.NewPCG(seed, 2)), settings: serveSettings(t),
		refAccount: newRefAccount(), reports: map[string]string{}, batches: map[string][]differentialLine{},
	}
	d.jwt = provision(t, d.settings)
	var err error
	d.admin, err = httpapi.MintHS256([]byte(d.settings["LEADLOG_JWT_SECRET"]),
		httpapi.Minting{Account: "acme", Subject: "root", Scope: "admin", TTL: time.Hour}, time.Now())
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("LEADLOG_TEST_SEED=%d LEADLOG_TEST_OPERATIONS=%d; the last requests:\n%s", seed, len(d.done),
				strings.Join(d.done[max(0, len(d.done)-40):], "\n"))
		}
	})
	for range processes {
		_, base := serve(t, d.settings)
		d.bases = append(d.bases, base)
	}
	return d
}

func (d *differential) run(operations int) {
	d.configure()
	kinds := []struct {
		weight int
		do     func()
	}{
		{40, d.captureOne}, {8, d.captureBatch}, {12, d.patch}, {6, d.releaseContact}, {5, d.joinLeads},
		{14, d.recordActivity},
		{3, d.deleteVisitor}, {3, d.eraseLead}, {6, d.changeToken}, {2, d.configure}, {4, d.resubmit},
	}
	total := 0
	for _, kind := range kinds {
		total += kind.weight
	}
	for n := 1; n <= operations; n++ {
		drawn := d.rng.IntN(total)
		for _, kind := range kinds {
			if drawn -= kind.weight; drawn < 0 {
				kind.do()
				break
			}
		}
		if n%25 == 0 {
			d.compare(false)
		}
	}
	d.compare(true)
	launch(d.t, d.settings, "verify").exits(d.t, 0)
	before := d.raw()
	launch(d.t, d.settings, "replay", "all").exits(d.t, 0)
	require.Equal(d.t, before, d.raw(), "the replayed views")
	d.compare(true)
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

func chance(rng *rand.Rand, percent int) bool { return rng.IntN(100) < percent }

// send sends a request to one of the processes.
func (d *differential) send(r request) answer {
	d.t.Helper()
	got, err := r.send(d.t.Context(), pick(d.rng, d.bases...), d.jwt)
	require.NoError(d.t, err)
	d.note(got.header)
	d.done = append(d.done, fmt.Sprintf("%s %s %s %s: %d %v", r.method, r.path, r.key, r.body, got.status, got.body))
	return got
}

func (d *differential) note(header http.Header) {
	if position, err := strconv.ParseInt(header.Get("X-Log-Position"), 10, 64); err == nil {
		d.last = max(d.last, position)
	}
}

func positionOf(got answer) int64 {
	position, _ := strconv.ParseInt(got.header.Get("X-Log-Position"), 10, 64)
	return position
}

func (d *differential) time(of map[string]any, name string) time.Time {
	d.t.Helper()
	at, err := time.Parse(time.RFC3339, fmt.Sprint(of[name]))
	require.NoError(d.t, err, "%s of %v", name, of)
	return at
}

// caller returns a credential, and how touches show it.
func (d *differential) caller() (bearer, credential string) {
	var live []*refToken
	for _, token := range d.tokens {
		if !token.deleted {
			live = append(live, token)
		}
	}
	if len(live) == 0 || chance(d.rng, 60) {
		return d.jwt, "user:cli"
	}
	token := pick(d.rng, live...)
	return token.value, "token:" + token.id
}

// differentialLine is a capture with its body.
type differentialLine struct {
	refCapture
	body string
}

// newCapture returns a random capture.
func (d *differential) newCapture() differentialLine {
	in, members := refCapture{refFields: refFields{value: -1}, source: "api"}, map[string]any{}
	if n := d.rng.IntN(8); n < 6 {
		in.phone = fmt.Sprintf("+91987654321%d", n)
		members["phone"] = pick[any](d.rng, in.phone, "98765 4321"+fmt.Sprint(n),
			"+91 98765-4321"+fmt.Sprint(n), 9876543210+n)
	}
	if n := d.rng.IntN(8); n < 5 || in.phone == "" {
		in.email = fmt.Sprintf("person%d@example.com", n)
		members["email"] = pick(d.rng, in.email, strings.ToUpper(in.email), " "+in.email+" ")
	}
	if chance(d.rng, 30) {
		in.name = pick(d.rng, "Asha Rao", "Ravi", "Meera", "John")
		members[pick(d.rng, "name", "full_name", "contactName")] = in.name
	}
	if chance(d.rng, 20) {
		in.status = pick(d.rng, refStages...)
		members["status"] = pick(d.rng, in.status, strings.ToUpper(in.status))
	}
	if chance(d.rng, 30) {
		in.value = pick(d.rng, int64(0), 1_000_000, 12_005_000, 3_333)
		members["opportunityValue"] = pick[any](d.rng, float64(in.value)/10_000, "₹"+decimal(in.value))
	}
	if chance(d.rng, 30) {
		in.custom = map[string]string{pick(d.rng, "city", "plan"): pick(d.rng, "Pune", "Kochi", "pro")}
		if key := slices.Collect(maps.Keys(in.custom))[0]; chance(d.rng, 50) {
			members[key] = in.custom[key]
		} else {
			members["customFields"] = in.custom
		}
	}
	if chance(d.rng, 30) {
		in.visitor = fmt.Sprint("visitor ", d.rng.IntN(5))
		members["visitorId"] = in.visitor
	}
	metadata := map[string]any{}
	if chance(d.rng, 85) {
		given := pick(d.rng, "api", "webhook", "website", "website", "whatsapp", "facebook_ad", "newsletter")
		metadata["source"] = given
		if given != "newsletter" {
			in.source = given
		}
	}
	in.campaign, in.medium = pick(d.rng, "", "diwali", "summer"), pick(d.rng, "", "cpc")
	for name, value := range map[string]string{"utm_campaign": in.campaign, "utm_medium": in.medium} {
		if value != "" {
			metadata[name] = value
		}
	}
	members["metadata"] = metadata
	if chance(d.rng, 12) {
		in.wrong = true
		name := pick(d.rng, "phone", "email", "status")
		members[name] = map[string]string{"phone": "12", "email": "nope", "status": "nowhere"}[name]
	}
	body, err := json.Marshal(members, json.Deterministic(true))
	require.NoError(d.t, err)
	return differentialLine{in, string(body)}
}

// decimal formats units of 0.0001.
func decimal(units int64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%04d", units/10_000, units%10_000), "0"), ".")
}

func (d *differential) captureOne() {
	line, key := d.newCapture(), ""
	if chance(d.rng, 35) {
		key = fmt.Sprint("key-", d.rng.IntN(12))
		if known := d.keys[key]; known != nil && chance(d.rng, 60) {
			line = known.latest
		}
	}
	bearer, credential := d.caller()
	got := d.send(request{method: "POST", path: leadsPath, body: line.body, bearer: bearer, key: key})
	d.captured(line, key, credential, got)
}

func (d *differential) captureBatch() {
	key := ""
	var lines []differentialLine
	if chance(d.rng, 40) {
		key = fmt.Sprint("batch-", d.rng.IntN(4))
		if chance(d.rng, 50) {
			lines = d.batches[key]
		}
	}
	if lines == nil {
		for range 1 + d.rng.IntN(5) {
			lines = append(lines, d.newCapture())
		}
		d.batches[key] = lines
	}
	bearer, credential := d.caller()
	var body strings.Builder
	for _, line := range lines {
		body.WriteString(line.body + "\n")
	}
	r, err := http.NewRequestWithContext(d.t.Context(), "POST", pick(d.rng, d.bases...)+leadsPath+"/batch",
		strings.NewReader(body.String()))
	require.NoError(d.t, err)
	r.Header = http.Header{"Authorization": {"Bearer " + bearer}, "Content-Type": {"application/x-ndjson"}}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	response, err := httpClient.Do(r)
	require.NoError(d.t, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(d.t, err)
	d.done = append(d.done, fmt.Sprintf("POST /leads/batch %s %s: %d %s", key, body.String(), response.StatusCode, raw))
	require.Equal(d.t, 200, response.StatusCode)
	d.note(response.Trailer)
	answers := strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")
	require.Len(d.t, answers, len(lines))
	for i, line := range lines {
		got := answer{header: http.Header{}}
		require.NoError(d.t, json.Unmarshal([]byte(answers[i]), &got.body))
		require.EqualValues(d.t, i+1, got.body["line"])
		got.status = int(got.body["status"].(float64))
		if got.body["replayed"] == true {
			got.header.Set("Idempotent-Replayed", "true")
		}
		for _, name := range []string{"line", "status", "replayed"} {
			delete(got.body, name)
		}
		lineKey := ""
		if key != "" {
			lineKey = fmt.Sprint(key, " ", i+1)
		}
		d.captured(line, lineKey, credential, got)
	}
	d.identifyTouches()
}

// captured applies a capture to the model, and compares the answer.
func (d *differential) captured(line differentialLine, key, credential string, got answer) {
	d.t.Helper()
	if key != "" {
		if d.keys[key] == nil {
			d.keys[key] = &refKey{kept: map[string]*refArrival{}}
		}
		d.keys[key].latest = line
		if d.repeated(d.keys[key], line, got) {
			return
		}
	}
	require.Empty(d.t, got.header.Get("Idempotent-Replayed"))
	o := d.decide(line.refCapture)
	require.Equal(d.t, o.status, got.status, got.body)
	var l *refLead
	switch o.status {
	case 400:
		d.quarantined(line, key, credential, got)
		return
	case 409:
		d.refuse(o, line.source, credential, got)
	default:
		at := d.time(got.data(), "updatedAt")
		var touch *refTouch
		l, touch = d.arrive(line.refCapture, o, at, at, credential)
		touch.id, touch.position = got.header.Get("X-Event-Id"), positionOf(got)
		require.Equal(d.t, o.lead != nil, got.body["merged"])
		d.identify(l, got.data())
		d.requireLead(l, got.data())
	}
	if key != "" {
		d.keys[key].body, d.keys[key].answer, d.keys[key].lead = line.body, got, l
	}
}

// repeated compares the answer to a request whose idempotency key decides it.
func (d *differential) repeated(key *refKey, line differentialLine, got answer) bool {
	d.t.Helper()
	kept := key.kept[line.body]
	switch {
	case key.body == "" && kept == nil:
		return false
	case key.body != "" && key.body != line.body:
		require.Equal(d.t, 409, got.status, got.body)
		require.Equal(d.t, "IDEMPOTENCY_KEY_REUSED", got.body["code"])
		return true
	case key.lead != nil && key.lead.erased:
		require.Equal(d.t, 410, got.status, got.body)
		return true
	case key.body != "":
		require.Equal(d.t, key.answer.status, got.status, got.body)
		require.Equal(d.t, key.answer.body, got.body)
	default:
		require.Equal(d.t, 400, got.status, got.body)
		require.Equal(d.t, kept.id, got.body["arrivalId"])
		require.Equal(d.t, kept.errors, got.body["errors"])
	}
	require.Equal(d.t, "true", got.header.Get("Idempotent-Replayed"))
	return true
}

func (d *differential) quarantined(line differentialLine, key, credential string, got answer) {
	d.t.Helper()
	id, _ := got.body["arrivalId"].(string)
	require.NotEmpty(d.t, id, got.body)
	shown := d.get("/api/v1/crm/arrivals/" + id).data()
	require.Equal(d.t, "quarantined", shown["state"])
	kept := &refArrival{
		id: id, state: "quarantined", receivedAt: d.time(shown, "receivedAt"), credential: credential,
		request: line.refCapture,
		errors:  got.body["errors"],
	}
	d.arrivals = append(d.arrivals, kept)
	if key != "" {
		d.keys[key].kept[line.body] = kept
	}
}

func (d *differential) refuse(o refOutcome, source, credential string, got answer) {
	d.t.Helper()
	require.Equal(d.t, o.code, got.body["code"], got.body)
	require.Contains(d.t, got.body["message"], o.lead.id)
	refusal := refRefusal{source: source, code: o.code, lead: o.lead.id, credential: credential}
	if o.other != nil {
		refusal.other = o.other.id
	}
	d.refused = append(d.refused, refusal)
}

// identify takes the ids of a new lead or opportunity from an answer.
func (d *differential) identify(l *refLead, shown map[string]any) {
	if l.id == "" {
		l.id, l.contact = shown["leadId"].(string), shown["contactUID"].(string)
	}
	if l.value >= 0 && l.opportunity == "" {
		l.opportunity, _ = shown["opportunityId"].(string)
		require.NotEmpty(d.t, l.opportunity, shown)
	}
}

// record returns a lead as answers show it.
func (l *refLead) record() map[string]any {
	shown := map[string]any{
		"leadId": l.id, "contactUID": l.contact, "name": l.name, "phone": l.phone, "email": l.email, "status": l.status,
		"leadTemperature": l.temperature, "source": l.source, "customFields": map[string]any{}, "opportunityValue": nil,
		"opportunityId": nil, "createdAt": l.createdAt.Format("2006-01-02T15:04:05.000Z"),
		"updatedAt": l.updatedAt.Format("2006-01-02T15:04:05.000Z"),
	}
	for key, value := range l.custom {
		shown["customFields"].(map[string]any)[key] = value
	}
	if l.value >= 0 {
		shown["opportunityValue"], shown["opportunityId"] = float64(l.value)/10_000, l.opportunity
	}
	return shown
}

func (d *differential) requireLead(l *refLead, shown map[string]any) {
	d.t.Helper()
	for name, want := range l.record() {
		require.Equal(d.t, want, shown[name], "%s of %v", name, shown)
	}
}

// lead returns a lead, mostly one that is neither erased nor part of another; nil if there is none.
func (d *differential) lead(rng *rand.Rand) *refLead {
	var live []*refLead
	for _, l := range d.leads {
		if !l.erased && l.into == nil {
			live = append(live, l)
		}
	}
	if len(live) == 0 || chance(rng, 8) {
		live = d.leads
	}
	if len(live) == 0 {
		return nil
	}
	return pick(rng, live...)
}

// gone returns the status of a change of a lead that is erased or part of another; 0 for others.
func (l *refLead) gone() int {
	switch {
	case l.erased:
		return 404
	case l.into != nil:
		return 409
	}
	return 0
}

// changed sends a change of a lead, and compares the answer: with the status, or with the lead after a successful
// change.
func (d *differential) changed(r request, l *refLead, status int, change func(at time.Time)) {
	d.t.Helper()
	got := d.send(r)
	require.Equal(d.t, cmp.Or(status, 200), got.status, got.body)
	if status == 0 {
		change(d.time(got.data(), "updatedAt"))
		d.identify(l, got.data())
		d.requireLead(l, got.data())
	}
}

func (d *differential) patch() {
	l := d.lead(d.rng)
	if l == nil {
		return
	}
	set, members := refFields{value: -1}, map[string]any{}
	if chance(d.rng, 30) {
		set.name = pick(d.rng, "Asha Rao", "Ravi", "Meera", "John")
		members["name"] = set.name
	}
	if chance(d.rng, 60) {
		set.status = pick(d.rng, refStages...)
		members["status"] = set.status
	}
	if chance(d.rng, 20) {
		set.temperature = pick(d.rng, "hot", "cold")
		members["leadTemperature"] = set.temperature
	}
	if chance(d.rng, 30) {
		set.value = pick(d.rng, int64(0), 500_000, 99_999)
		members["opportunityValue"] = float64(set.value) / 10_000
	}
	var removed []string
	if chance(d.rng, 25) || len(members) == 0 {
		key := pick(d.rng, "city", "plan")
		if chance(d.rng, 50) {
			removed = []string{key}
			members["customFields"] = map[string]any{key: nil}
		} else {
			set.custom = map[string]string{key: pick(d.rng, "Delhi", "free")}
			members["customFields"] = set.custom
		}
	}
	body, err := json.Marshal(members, json.Deterministic(true))
	require.NoError(d.t, err)
	d.changed(request{method: "PATCH", path: leadsPath + "/" + l.id, body: string(body)}, l,
		l.gone(), func(at time.Time) {
			if l.changes(set, removed) {
				l.update(set, removed, at)
			}
		})
}

func (d *differential) releaseContact() {
	l := d.lead(d.rng)
	if l == nil {
		return
	}
	phone, email := "", ""
	if all := append(slices.Clone(l.phones), l.emails...); len(all) > 0 && chance(d.rng, 85) {
		phone = pick(d.rng, all...)
	} else {
		phone = fmt.Sprintf("+91987654321%d", d.rng.IntN(6))
	}
	member := "phone"
	if strings.Contains(phone, "@") {
		phone, email, member = "", phone, "email"
	}
	status := l.gone()
	switch {
	case status != 0:
	case !slices.Contains(l.phones, phone) && !slices.Contains(l.emails, email):
		status = 400
	case len(l.phones)+len(l.emails) == 1:
		status = 409
	}
	r := request{
		method: "POST", path: leadsPath + "/" + l.id + "/contacts/release",
		body: fmt.Sprintf(`{%q:%q}`, member, phone+email),
	}
	d.changed(r, l, status, func(at time.Time) { d.release(l, phone, email, at) })
}

func (d *differential) joinLeads() {
	into, from := d.lead(d.rng), d.lead(d.rng)
	if into == nil {
		return
	}
	status := cmp.Or(into.gone(), from.gone())
	again := from.into != nil && !from.erased && (from.into == into || from.survivor() == into)
	switch {
	case again:
		status = 0
	case status == 0 && into == from:
		status = 400
	}
	r := request{method: "POST", path: leadsPath + "/" + into.id + "/join", body: fmt.Sprintf(`{"from":%q}`, from.id)}
	d.changed(r, into.survivor(), status, func(at time.Time) {
		if !again {
			d.join(into, from, at)
		}
	})
}

func (d *differential) eraseLead() {
	l := d.lead(d.rng)
	if l == nil {
		return
	}
	got := d.send(request{method: "DELETE", path: leadsPath + "/" + l.id})
	require.Equal(d.t, cmp.Or(l.gone(), 200), got.status, got.body)
	if l.gone() == 0 {
		d.erase(l)
	}
}

func (d *differential) recordActivity() {
	visitor, bearer, credential := fmt.Sprint("visitor ", d.rng.IntN(5)), "", ""
	bearer, credential = d.caller()
	query, visit := url.Values{}, &refTouch{visitor: visitor, kind: "visit", credential: credential}
	visit.campaign, visit.medium = pick(d.rng, "", "diwali", "search"), pick(d.rng, "", "social")
	for name, value := range map[string]string{"utm_campaign": visit.campaign, "utm_medium": visit.medium} {
		if value != "" {
			query.Set(name, value)
		}
	}
	d.titles++
	body := fmt.Sprintf(`{"type":"page_view","title":"page %d","url":"https://example.com/?%s"`,
		d.titles, query.Encode())
	if visit.dated = chance(d.rng, 30); visit.dated {
		body += fmt.Sprintf(`,"at":%q`,
			time.Now().Add(-pick(d.rng, time.Minute, 30*time.Hour, 50*time.Hour)).UTC().Format(time.RFC3339))
	}
	got := d.send(request{
		method: "POST", path: "/api/v1/crm/visitors/" + url.PathEscape(visitor) + "/activity", body: body + "}",
		bearer: bearer,
	}).is(d.t, 202)
	visit.id, visit.position, visit.at = got.data()["activityId"].(string), positionOf(got), d.time(got.data(), "at")
	if len(query) == 0 {
		d.act(visit.id, visitor, nil)
	} else {
		d.act(visit.id, visitor, visit)
	}
}

func (d *differential) deleteVisitor() {
	visitor := fmt.Sprint("visitor ", d.rng.IntN(5))
	got := d.send(request{method: "DELETE", path: "/api/v1/crm/visitors/" + url.PathEscape(visitor)})
	if d.forget(visitor) {
		got.is(d.t, 200)
	} else {
		got.is(d.t, 404)
	}
}

func (d *differential) changeToken() {
	live := 0
	for _, token := range d.tokens {
		if !token.deleted {
			live++
		}
	}
	if len(d.tokens) == 0 || chance(d.rng, 40) {
		name := fmt.Sprint("token ", len(d.tokens))
		got := d.send(request{
			method: "POST", path: "/api/v1/crm/tokens", body: fmt.Sprintf(`{"name":%q,"expiresInDays":30}`, name),
		})
		if live == 5 {
			require.Equal(d.t, "TOKEN_LIMIT_REACHED", got.is(d.t, 409).body["code"])
			return
		}
		data := got.is(d.t, 201).data()
		d.tokens = append(d.tokens, &refToken{
			id: data["tokenId"].(string), name: name, value: data["plainToken"].(string),
		})
		return
	}
	token := pick(d.rng, d.tokens...)
	status := 200
	if token.deleted {
		status = 404
	}
	old := token.value
	if chance(d.rng, 60) {
		got := d.send(request{method: "POST", path: "/api/v1/crm/tokens/" + token.id + "/rotate"}).is(d.t, status)
		if status == 200 {
			token.value = got.data()["plainToken"].(string)
		}
	} else {
		d.send(request{method: "DELETE", path: "/api/v1/crm/tokens/" + token.id}).is(d.t, status)
		token.deleted = true
	}
	d.send(request{method: "POST", path: leadsPath, body: d.newCapture().body, bearer: old}).is(d.t, 401)
}

// configure sets the stages that count as won.
func (d *differential) configure() {
	d.won = pick(d.rng, []string{"won"}, []string{"sold"}, []string{"won", "sold"}, []string{"new"})
	body, err := json.Marshal(map[string]any{
		"name": "Acme", "features": []string{"crm_api"}, "stages": refStages, "quarantine": true, "wonStages": d.won,
		"rateLimit": 0,
	}, json.Deterministic(true))
	require.NoError(d.t, err)
	d.send(request{
		method: "PUT", path: "/api/v1/admin/accounts/acme", body: string(body), bearer: d.admin,
	}).is(d.t, 200)
}

// resubmit corrects a request that was quarantined.
func (d *differential) resubmit() {
	if len(d.arrivals) == 0 {
		return
	}
	a := pick(d.rng, d.arrivals...)
	in := a.request
	in.wrong, in.status = false, "contacted"
	in.phone, in.email = fmt.Sprintf("+91987654321%d", d.rng.IntN(6)),
		fmt.Sprintf("person%d@example.com", d.rng.IntN(8))
	r := request{
		method: "POST", path: "/api/v1/crm/arrivals/" + a.id + "/resubmit",
		body: fmt.Sprintf(`{"set":{"phone":%q,"email":%q,"status":%q}}`, in.phone, in.email, in.status),
	}
	switch {
	case a.state == "refused" || a.discarded():
		return
	case a.state == "captured":
		d.requireLead(a.leads[0].survivor(), d.send(r).is(d.t, 200).data())
		return
	}
	got, o := d.send(r), d.decide(in)
	if o.status == 201 {
		o.status = 200 // of a resubmission
	}
	require.Equal(d.t, o.status, got.status, got.body)
	if o.status == 409 {
		d.refuse(o, in.source, a.credential, got)
		a.state, a.leads = "refused", []*refLead{o.lead, cmp.Or(o.other, o.lead)}
		return
	}
	l, touch := d.arrive(in, o, d.time(got.data(), "updatedAt"), a.receivedAt, a.credential)
	touch.position = positionOf(got)
	d.identify(l, got.data())
	d.requireLead(l, got.data())
	a.state, a.leads = "captured", []*refLead{l}
	d.identifyTouches()
}

// get reads from one of the processes, after the newest write.
func (d *differential) get(path string) answer {
	d.t.Helper()
	join := "?"
	if strings.Contains(path, "?") {
		join = "&"
	}
	for {
		got := mustCall(d.t, "GET", pick(d.reads, d.bases...)+path+join+"minPosition="+fmt.Sprint(d.last),
			d.jwt, "").is(d.t, 200)
		if got.body["rebuilding"] != true && got.data()["rebuilding"] != true {
			return got
		}
	}
}

// list reads all pages of a list.
func (d *differential) list(path string) (items []map[string]any) {
	d.t.Helper()
	join := "?"
	if strings.Contains(path, "?") {
		join = "&"
	}
	for cursor := ""; ; {
		got := d.get(path + join + "limit=" + pick(d.reads, "7", "50", "200") + "&cursor=" + url.QueryEscape(cursor))
		for _, item := range got.body["data"].([]any) {
			items = append(items, item.(map[string]any))
		}
		if got.body["nextCursor"] == nil {
			return items
		}
		cursor = got.body["nextCursor"].(string)
	}
}

const touchesPath = "/api/v1/crm/touches?include=visits"

// identifyTouches takes the ids and positions of new touches from the list, since the lines of a batch have none.
func (d *differential) identifyTouches() {
	d.t.Helper()
	known, found := map[string]bool{}, map[string][]map[string]any{}
	for _, touch := range d.touches {
		known[touch.id] = true
	}
	for _, shown := range d.list(touchesPath) {
		if id := shown["touchId"].(string); !known[id] {
			of := fmt.Sprint(shown["leadId"])
			found[of] = append(found[of], shown)
		}
	}
	for _, of := range found {
		slices.SortFunc(of, func(a, b map[string]any) int {
			return cmp.Compare(a["position"].(float64), b["position"].(float64))
		})
	}
	for _, touch := range d.touches {
		if touch.id != "" {
			continue
		}
		of := touch.lead.survivor().id
		require.NotEmpty(d.t, found[of], "a touch of lead %s is missing", of)
		touch.id, touch.position = found[of][0]["touchId"].(string), int64(found[of][0]["position"].(float64))
		found[of] = found[of][1:]
	}
	// Lines of independent leads may be recorded in another order.
	slices.SortStableFunc(d.touches, func(a, b *refTouch) int { return cmp.Compare(a.position, b.position) })
}

// raw returns the lists as they are read.
func (d *differential) raw() map[string]string {
	lists := map[string]string{}
	for _, path := range []string{
		leadsPath, "/api/v1/crm/sources/history", touchesPath, leadsPath + "/refused", "/api/v1/crm/tokens",
		"/api/v1/crm/arrivals",
	} {
		encoded, err := json.Marshal(d.list(path), json.Deterministic(true))
		require.NoError(d.t, err)
		lists[path] = string(encoded)
	}
	return lists
}

// compare compares lists and reports with the model.
func (d *differential) compare(all bool) {
	d.t.Helper()
	d.compareLeads()
	d.compareSources()
	d.compareTouches()
	d.compareRefused()
	d.compareTokens()
	d.compareArrivals()
	for _, model := range []string{"first", "last", "linear"} {
		for _, by := range []string{"source", "campaign", "medium", "credential"} {
			for _, visits := range []bool{false, true} {
				if all || chance(d.reads, 25) {
					d.compareAttribution(model, by, pick(d.reads, 24*time.Hour, 40*time.Hour, 90*24*time.Hour), visits)
				}
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(d.reports)) {
		if all || chance(d.reads, 10) {
			require.Equal(d.t, d.reports[path], reportRows(d.get(path).data()), "%s again", path)
		}
	}
}

func (d *differential) compareLeads() {
	d.t.Helper()
	shown := map[string]map[string]any{}
	for _, item := range d.list(leadsPath) {
		shown[item["leadId"].(string)] = item
	}
	live := 0
	for _, l := range d.leads {
		if l.gone() == 0 {
			live++
			d.requireLead(l, shown[l.id])
		}
	}
	require.Len(d.t, shown, live)
	if l := d.lead(d.reads); l != nil && l.gone() == 0 {
		var ids []string
		for _, item := range d.list(leadsPath + "/" + l.id + "/activity") {
			ids = append(ids, item["activityId"].(string))
		}
		require.ElementsMatch(d.t, d.activity(l), ids, "activity of lead %s", l.id)
	}
}

func (d *differential) compareSources() {
	d.t.Helper()
	var want, got []string
	for _, l := range d.leads {
		for _, e := range l.history {
			if l.gone() == 0 {
				want = append(want, fmt.Sprintln(l.id, e.source, e.first, e.last, e.arrivals, e.credential))
			}
		}
	}
	for _, item := range d.list("/api/v1/crm/sources/history") {
		got = append(got,
			fmt.Sprintln(item["leadId"], item["source"], d.time(item, "firstSeenAt"), d.time(item, "lastSeenAt"),
				item["arrivals"], credentialOf(item["credential"])))
	}
	require.ElementsMatch(d.t, want, got, "source history")
}

// credentialOf returns a credential as touches show it.
func credentialOf(shown any) string {
	of := shown.(map[string]any)
	return strings.Replace(fmt.Sprint(of["kind"]), "jwt", "user", 1) + ":" + fmt.Sprint(of["id"])
}

func (d *differential) compareTouches() {
	d.t.Helper()
	want := slices.Clone(d.touches)
	slices.SortStableFunc(want, func(a, b *refTouch) int { return a.at.Compare(b.at) })
	got := d.list(touchesPath)
	require.Len(d.t, got, len(want))
	text := func(value any) string {
		if value == nil {
			return ""
		}
		return fmt.Sprint(value)
	}
	for i, touch := range want {
		of := ""
		if l := d.leadOf(touch); l != nil {
			of = l.id
		}
		shown := got[i]
		require.Equal(d.t,
			fmt.Sprintln(touch.id, touch.position, of, touch.at, touch.source, touch.kind, touch.medium, touch.campaign,
				touch.credential,
				touch.erased),
			fmt.Sprintln(shown["touchId"], int64(shown["position"].(float64)), text(shown["leadId"]),
				d.time(shown, "at"), text(shown["source"]),
				shown["kind"], text(shown["utmMedium"]), text(shown["utmCampaign"]), shown["credential"],
				shown["erased"]), "touch %d", i)
	}
	if len(want) == 0 {
		return
	}
	touch := pick(d.reads, want...)
	if touch.dated {
		return
	}
	then := d.list(touchesPath + "&asOf=" + url.QueryEscape(touch.at.Format(time.RFC3339Nano)))
	require.True(d.t, slices.ContainsFunc(then, func(shown map[string]any) bool {
		return shown["touchId"] == touch.id
	}),
		"asOf the time of touch %s, %s, leaves it out", touch.id, touch.at)
}

func (d *differential) compareRefused() {
	d.t.Helper()
	var got []refRefusal
	for _, item := range d.list(leadsPath + "/refused") {
		other, _ := item["otherLeadId"].(string)
		got = append(got, refRefusal{
			item["source"].(string), item["code"].(string), item["leadId"].(string), other,
			credentialOf(item["credential"]),
		})
	}
	require.ElementsMatch(d.t, d.refused, got, "refused arrivals")
}

func (d *differential) compareTokens() {
	d.t.Helper()
	var want, got []string
	for _, token := range d.tokens {
		status := "active"
		if token.deleted {
			status = "deleted"
		}
		want = append(want, token.id+" "+token.name+" "+status)
	}
	for _, item := range d.list("/api/v1/crm/tokens") {
		got = append(got, fmt.Sprint(item["tokenId"], " ", item["name"], " ", item["status"]))
	}
	require.ElementsMatch(d.t, want, got, "tokens")
}

func (d *differential) compareArrivals() {
	d.t.Helper()
	var want, got []string
	for _, a := range d.arrivals {
		state := a.state
		if a.discarded() {
			state = "discarded"
		}
		want = append(want, a.id+" "+state)
	}
	for _, item := range d.list("/api/v1/crm/arrivals") {
		got = append(got, fmt.Sprint(item["arrivalId"], " ", item["state"]))
	}
	require.ElementsMatch(d.t, want, got, "arrivals")
}

// discarded reports whether an arrival was erased with a lead.
func (a *refArrival) discarded() bool {
	return slices.ContainsFunc(a.leads, func(l *refLead) bool { return l.erased })
}

func (d *differential) compareAttribution(model, by string, window time.Duration, visits bool) {
	d.t.Helper()
	path := fmt.Sprintf("/api/v1/crm/attribution?model=%s&by=%s&window=%dh", model, by, int(window.Hours()))
	if visits {
		path += "&include=visits"
	}
	data := d.get(path).data()
	require.Equal(d.t, strings.Join(d.rows(model, by, window, visits), "\n"), reportRows(data), path)
	d.reports[path+"&asOf="+strconv.FormatFloat(data["asOf"].(float64), 'f', 0, 64)] = reportRows(data)
}

// reportRows formats an attribution report as the model does.
func reportRows(data map[string]any) string {
	total := data["total"].(map[string]any)
	lines := []string{fmt.Sprint(total["conversions"], " ", total["value"])}
	for _, item := range data["rows"].([]any) {
		row := item.(map[string]any)
		lines = append(lines,
			fmt.Sprint(row["key"], " ", math.Round(row["touches"].(float64)), " ",
				row["conversions"], " ", row["value"]))
	}
	return strings.Join(lines, "\n")
}
