package httpapi_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/httpapi"
)

// publicPrefix is the prefix of the public paths of intakes.
const publicPrefix = "/in/{intakeId}"

// createIntake creates an intake and returns its public path and the answer.
func (s *service) createIntake(settings string) (path string, created reply) {
	s.t.Helper()
	_, created = s.intake(settings)
	return created.at("data", "url").(string), created
}

// deliver posts to a public path, as a form unless the body is JSON.
func (s *service) deliver(path, body string, header map[string]string) reply {
	s.t.Helper()
	return s.request(posting(path, body, header))
}

func posting(path, body string, header map[string]string) call {
	all := map[string]string{}
	if !strings.HasPrefix(body, "{") {
		// a page in a browser
		all["Content-Type"], all["Sec-Fetch-Site"] = "application/x-www-form-urlencoded", "cross-site"
	}
	maps.Copy(all, header)
	return call{method: http.MethodPost, path: path, body: body, header: all}
}

const bearerIntake = `{"name":"Shop","kind":"webhook","secret":"theirs-and-long-enough",` +
	`"signature":{"scheme":"bearer"},"mapping":{"deliveryId":"body.id"}}`

var validProof = map[string]string{"Authorization": "Bearer theirs-and-long-enough"}

// leadOf returns the only lead with a phone.
func (s *service) leadOf(write reply, phone string) map[string]any {
	s.t.Helper()
	list := s.as(http.MethodGet, after(leads+"?phone="+url.QueryEscape(phone), write), "").is(http.StatusOK)
	require.Len(s.t, list.at("data"), 1)
	return list.at("data").([]any)[0].(map[string]any)
}

// arrival returns the types of the events on the stream of the arrival that an answer names.
func (s *service) arrival(answered reply) (types []string) {
	s.t.Helper()
	for recorded, err := range s.store.Read(s.t.Context(), event.ArrivalStream(answered.at("arrivalId").(string)), 0) {
		require.NoError(s.t, err)
		types = append(types, recorded.Type)
	}
	return types
}

// leadsOf returns the leads with a phone, after the views are up to date.
func (s *service) leadsOf(phone string) []any {
	s.t.Helper()
	head, err := s.store.Head(s.t.Context())
	require.NoError(s.t, err)
	list := s.as(http.MethodGet, fmt.Sprintf("%s?phone=%s&minPosition=%d", leads, url.QueryEscape(phone), head),
		"").is(http.StatusOK)
	return list.at("data").([]any)
}

func TestArrive_CapturesLead(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, _ := s.createIntake(bearerIntake)
	first := s.deliver(path, `{"id":1,"name":"Asha","phone":"9876543210","city":"Pune"}`, validProof).is(http.StatusOK)
	require.Regexp(t, `^\{"success":true,"arrivalId":"[0-9A-Z]{26}"\}$`, first.raw)
	lead := s.leadOf(first, "9876543210")
	require.Equal(t, "Asha", lead["name"])
	require.Equal(t, "webhook", lead["source"])
	require.Equal(t, map[string]any{"city": "Pune", "id": 1.0}, lead["customFields"])
	require.Equal(t, first.raw,
		s.deliver(path, `{"id":1,"name":"Asha","phone":"9876543210","city":"Pune"}`, validProof).is(http.StatusOK).raw)
	refused := s.deliver(path, `{"id":2,"phone":"9876543210"}`, validProof).is(http.StatusOK)
	require.NotEqual(t, first.raw, refused.raw)
	for _, body := range []string{`{"id":3}`, `{"id":4,"phone":"12"}`, `[]`, `{`, ``, `no JSON`} {
		s.deliver(path, body, validProof).is(http.StatusOK)
	}
	require.Len(t, s.leadsOf("9876543210"), 1)
	sources := s.as(http.MethodGet, leads+"/"+lead["leadId"].(string)+"/sources", "").at("data").([]any)
	require.Len(t, sources, 1)
	entry := sources[0].(map[string]any)
	require.Equal(t, "intake", entry["credential"].(map[string]any)["kind"])
	require.Empty(t, entry["ip"], "the address of the sender's server is not stored")
}

func TestArrive_Refusals(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, created := s.createIntake(bearerIntake)
	resource := intakes + "/" + created.at("data", "intakeId").(string)
	body := `{"phone":"9876543210"}`
	large := `{"phone":"9876543210","x":"` + strings.Repeat("x", 1<<20) + `"}`
	before := s.last()
	for name, c := range map[string]struct {
		path, body string
		header     map[string]string
		status     int
	}{
		"unknown":      {"/in/" + missingID, body, validProof, 404},
		"malformed":    {"/in/1", body, validProof, 404},
		"no proof":     {path, body, nil, 401},
		"wrong proof":  {path, body, map[string]string{"Authorization": "Bearer wrong"}, 401},
		"other scheme": {path, body, map[string]string{"Authorization": "Basic theirs-and-long-enough"}, 401},
		"too large":    {path, large, validProof, 413},
		"encoded": {
			path, body, map[string]string{"Authorization": validProof["Authorization"], "Content-Encoding": "gzip"},
			415,
		},
	} {
		r := s.deliver(c.path, c.body, c.header).is(c.status)
		require.Equal(t, false, r.at("success"), name)
		require.Equal(t, c.status == http.StatusUnauthorized, r.header.Get("WWW-Authenticate") == "Bearer", name)
	}
	require.Equal(t, http.StatusMethodNotAllowed, s.request(call{method: http.MethodGet, path: path}).status)
	require.Equal(t, before, s.last(), "a refused post appends nothing")
	s.as(http.MethodPatch, resource, `{"enabled":false}`).is(http.StatusOK)
	paused := s.deliver(path, body, validProof).is(http.StatusOK)
	s.deliver(path, body, nil).is(http.StatusUnauthorized)
	shown := s.as(http.MethodGet, arrivalsPath+"/"+paused.at("arrivalId").(string), "").is(http.StatusOK)
	require.Equal(t, "quarantined", shown.at("data", "state"))
	require.Equal(t, "intake", shown.at("data", "reasons").([]any)[0].(map[string]any)["field"])
	s.as(http.MethodPatch, resource, `{"enabled":true}`).is(http.StatusOK)
	s.deliver(path, body, validProof).is(http.StatusOK)
	s.as(http.MethodDelete, resource, "").is(http.StatusOK)
	s.deliver(path, body, validProof).is(http.StatusNotFound)
	require.Equal(t, http.StatusNotFound, s.request(call{method: http.MethodGet, path: path}).status)
}

// Random bytes, and images in base64, have a low compression ratio.
func TestArrive_StoresIncompressibleBodies(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, _ := s.createIntake(bearerIntake)
	random := make([]byte, 760<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	for name, value := range map[string]string{
		"hex": hex.EncodeToString(random[:510<<10]), "base64": base64.StdEncoding.EncodeToString(random),
	} {
		body := `{"phone":"9876543210","x":"` + value + `"}`
		answered := s.deliver(path, body, validProof).is(http.StatusOK)
		shown := s.as(http.MethodGet, arrivalsPath+"/"+answered.at("arrivalId").(string), "").is(http.StatusOK)
		require.True(t, body == shown.at("data", "raw", "body"), name)
	}
}

// Another process has cached the intake.
func TestArrive_ChangesReachEveryProcess(t *testing.T) {
	t.Parallel()
	s := start(t)
	other := s.another()
	path, created := s.createIntake(`{"name":"Shop","kind":"razorpay"}`)
	resource := intakes + "/" + created.at("data", "intakeId").(string)
	form, formCreated := s.createIntake(`{"name":"Form","kind":"form","honeypot":"url"}`)
	secret := created.at("data", "secret").(string)
	body := `{"event":"payment.failed","payload":{"payment":{"entity":{"contact":"+919876543210","amount":100,` +
		`"currency":"INR"}}}}`
	signed := func(secret string) map[string]string {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(body))
		return map[string]string{"X-Razorpay-Signature": hex.EncodeToString(mac.Sum(nil))}
	}
	other.deliver(path, body, signed(secret)).is(http.StatusOK)
	for range 3 {
		rotated := s.as(http.MethodPost, resource+"/secret/rotate", "").is(http.StatusOK).at("data", "secret").(string)
		other.deliver(path, body, signed(secret)).is(http.StatusUnauthorized)
		other.deliver(path, body, signed(rotated)).is(http.StatusOK)
		secret = rotated
		rotated = s.as(http.MethodPost, resource+"/secret/rotate", "").is(http.StatusOK).at("data", "secret").(string)
		other.deliver(path, body, signed(rotated)).is(http.StatusOK)
		secret = rotated
	}
	s.as(http.MethodDelete, resource, "").is(http.StatusOK)
	other.deliver(path, body, signed(secret)).is(http.StatusNotFound)

	for _, change := range []struct {
		method, settings, body string
		status                 int
	}{
		{http.MethodPatch, `{"origins":["https://example.com"]}`, "phone=9876543210", http.StatusForbidden},
		{http.MethodPatch, `{"origins":[]}`, "phone=9876543210", http.StatusOK},
		{http.MethodPatch, `{"mapping":{"phone":"body.mobil"}}`, "phone=9876543210", http.StatusBadRequest},
		{http.MethodPatch, `{"enabled":false}`, "phone=1", http.StatusNotFound},
		{http.MethodPatch, `{"enabled":true}`, "phone=1&url=spam", http.StatusOK},
		{http.MethodDelete, "", "phone=1&url=spam", http.StatusNotFound},
	} {
		s.as(change.method, intakes+"/"+formCreated.at("data", "intakeId").(string), change.settings).is(http.StatusOK)
		other.deliver(form, change.body, nil).is(change.status)
	}
}

// Posts to ids that do not exist are limited by the address. An intake that exists is not affected, although it is not
// cached yet, and a deleted one is 404 however often it is posted to.
func TestArrive_UnknownIDsAffectNoOther(t *testing.T) {
	t.Parallel()
	s := start(t, stopped)
	known, _ := s.createIntake(bearerIntake)
	answered := map[int]int{}
	for range 150 {
		answered[s.deliver("/in/"+ulid.Make().String(), `{}`, validProof).status]++
	}
	require.Equal(t, 150, answered[http.StatusNotFound]+answered[http.StatusTooManyRequests])
	require.Positive(t, answered[http.StatusTooManyRequests], "%v", answered)
	s.deliver(known, `{"id":"1","phone":"9876543210"}`, validProof).is(http.StatusOK)
	later := ulid.MustNew(ulid.Timestamp(time.Now().Add(time.Hour)), ulid.DefaultEntropy())
	for _, id := range []string{later.String(), "x", strings.Repeat("Z", 26)} {
		s.deliver("/in/"+id, `{}`, validProof).is(http.StatusNotFound)
	}

	other := start(t, stopped)
	deleted, created := other.createIntake(`{"name":"B","kind":"form"}`)
	other.deliver(deleted, "phone=9876543210", nil).is(http.StatusOK)
	other.as(http.MethodDelete, intakes+"/"+created.at("data", "intakeId").(string), "").is(http.StatusOK)
	for range 150 {
		other.deliver(deleted, "phone=9876543210", nil).is(http.StatusNotFound)
	}
}

func TestArrive_RateLimit(t *testing.T) {
	t.Parallel()
	s := start(t, stopped)
	s.provision(ownAccount, account.Settings{
		Features: []string{account.FeatureAPI}, RateLimit: new(1.0), RateBurst: new(10),
	})
	limited, _ := s.createIntake(
		`{"name":"A","kind":"webhook","secret":"theirs-and-long-enough","signature":{"scheme":"bearer"},` +
			`"rateLimit":1.5}`,
	)
	for range 2 {
		s.deliver(limited, `{"phone":"9876543210"}`, validProof).is(http.StatusOK)
	}
	s.deliver(limited, `{"phone":"9876543210"}`, validProof).requireLimited()
	large := strings.Repeat("x", 1<<20+1)
	s.deliver(limited, large, validProof).requireLimited()

	none, _ := s.createIntake(
		`{"name":"B","kind":"webhook","secret":"theirs-and-long-enough","signature":{"scheme":"bearer"},"rateLimit":0}`,
	)
	own, _ := s.createIntake(bearerIntake)
	for range 10 {
		s.deliver(none, `{"phone":"9876543210"}`, validProof).is(http.StatusOK)
		s.deliver(own, `{"phone":"9876543210"}`, validProof).is(http.StatusOK)
	}
	s.deliver(none, `{"phone":"9876543210"}`, validProof).is(http.StatusOK)
	s.deliver(own, `{"phone":"9876543210"}`, validProof).requireLimited()
	s.capture(`{"phone":"9876543211"}`).is(http.StatusCreated)
}

// The limit of a form is per address.
func TestArrive_AddressLimitDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	s := start(t, stopped, func(o *httpapi.Options) {
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	s.provision(ownAccount, account.Settings{
		Features: []string{account.FeatureAPI}, RateLimit: new(1.0), RateBurst: new(20),
	})
	path, created := s.createIntake(`{"name":"Form","kind":"form"}`)
	from := func(address, body string) reply {
		return s.deliver(path, body, map[string]string{"X-Forwarded-For": address})
	}
	for range 20 {
		from("192.0.2.1", "phone=9876543210").is(http.StatusOK)
	}
	from("192.0.2.1", "phone=9876543210").requireLimited()
	from("192.0.2.2", "phone=9876543210").is(http.StatusOK)
	view := func(address string) reply {
		return s.deliver(path+"/visitors/v-1/activity", `{"type":"page_view","url":"https://example.com"}`,
			map[string]string{"X-Forwarded-For": address})
	}
	for range 20 {
		view("192.0.2.1").is(http.StatusAccepted)
	}
	view("192.0.2.1").requireLimited()
	view("192.0.2.2").is(http.StatusAccepted)
	s.as(http.MethodPatch, intakes+"/"+created.at("data", "intakeId").(string), `{"rateLimit":0.1}`).is(http.StatusOK)
	for range 2 {
		view("192.0.2.5").is(http.StatusAccepted) // the intake's limit applies only to posts
	}
	s.as(http.MethodPatch, intakes+"/"+created.at("data", "intakeId").(string), `{"rateLimit":null}`).is(http.StatusOK)

	random := make([]byte, 450<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	large := "phone=9876543210&x=" + base64.RawURLEncoding.EncodeToString(random)
	for range 20 { // 8 MiB are a quarter of the form's limit of appended bytes
		if from("192.0.2.3", large).status != http.StatusOK {
			break
		}
	}
	from("192.0.2.3", "phone=9876543210").requireLimited()
	from("192.0.2.4", "phone=9876543210").is(http.StatusOK)
}

// Wrong proofs count neither against the limit of failed credentials nor against the intake's rate limit.
func TestArrive_WrongProofsCountedSeparately(t *testing.T) {
	t.Parallel()
	s := start(t, stopped)
	path, _ := s.createIntake(bearerIntake)
	for range 150 {
		s.deliver(path, `{"phone":"9876543210"}`, nil).is(http.StatusUnauthorized)
	}
	s.deliver(path, `{"phone":"9876543210"}`, validProof).is(http.StatusOK)
	for range 5 {
		s.send(call{
			method: http.MethodGet, path: leads, credential: s.jwt[:len(s.jwt)-2] + "xx",
		}).is(http.StatusUnauthorized)
	}
	for range 100 {
		s.deliver("/in/"+missingID, `{}`, nil)
	}
	s.deliver("/in/"+missingID, `{}`, nil).requireLimited()
	s.deliver(path, `{"phone":"9876543210"}`, validProof).is(http.StatusOK)
}

func TestArrive_MetaChallenge(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, _ := s.createIntake(`{"name":"Meta","kind":"meta_lead_ads","appSecret":"app","verifyToken":"mine",` +
		`"accessToken":"access"}`)
	ask := func(token string) reply {
		return s.request(call{
			method: http.MethodGet,
			path:   path + "?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=" + token,
		})
	}
	shown := ask("mine").is(http.StatusOK)
	require.Equal(t, "1158201444", shown.raw)
	require.Equal(t, "text/plain; charset=utf-8", shown.header.Get("Content-Type"))
	for _, token := range []string{"app", "access", ""} {
		ask(token).is(http.StatusForbidden)
	}
	body := `{"object":"page","entry":[{"id":"1","changes":[{"field":"leadgen","value":{"leadgen_id":"11",` +
		`"form_id":"2"}},{"field":"feed","value":{}},{"field":"leadgen","value":{"leadgen_id":12}}]}]}`
	mac := hmac.New(sha256.New, []byte("app"))
	mac.Write([]byte(body))
	signed := map[string]string{"X-Hub-Signature-256": "sha256=" + hex.EncodeToString(mac.Sum(nil))}
	first := s.deliver(path, body, signed).is(http.StatusOK)
	require.Equal(t, first.raw, s.deliver(path, body, signed).is(http.StatusOK).raw)
	require.Equal(t, []string{event.ArrivalReceived{}.EventType()}, s.arrival(first))
	require.Eventually(t, func() bool {
		return s.count(`SELECT count(*) FROM views.arrival WHERE account = $1`, s.account) == 2
	}, time.Minute, 5*time.Millisecond)
}

// An unreadable change of a post does not affect the other changes. It has one effect if Meta repeats the post.
func TestArrive_MetaChangesAreIndependent(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, _ := s.createIntake(`{"name":"Meta","kind":"meta_lead_ads","secret":"app","accessToken":"access"}`)
	body := `{"entry":[{"changes":[{"field":"leadgen","value":{"leadgen_id":"x"}},{"field":"leadgen",` +
		`"value":{"leadgen_id":12}}]},7]}`
	mac := hmac.New(sha256.New, []byte("app"))
	mac.Write([]byte(body))
	signed := map[string]string{"X-Hub-Signature-256": "sha256=" + hex.EncodeToString(mac.Sum(nil))}
	first := s.deliver(path, body, signed).is(http.StatusOK)
	require.Equal(t, first.raw, s.deliver(path, body, signed).is(http.StatusOK).raw)
	require.Equal(t, []string{event.ArrivalReceived{}.EventType(), event.ArrivalQuarantined{}.EventType()},
		s.arrival(first))
	require.Eventually(t, func() bool {
		return pgtest.Value[string](t, s.pool,
			`SELECT coalesce(string_agg(state, ' ' ORDER BY state), '') FROM views.arrival WHERE account = $1`,
			s.account) ==
			"quarantined quarantined received"
	}, time.Minute, 5*time.Millisecond)
}

// Each change of a post from Meta counts as an arrival.
func TestArrive_MetaLeadsAreCounted(t *testing.T) {
	t.Parallel()
	s := start(t, stopped)
	s.provision(ownAccount, account.Settings{
		Features: []string{account.FeatureAPI}, RateLimit: new(1.0), RateBurst: new(4),
	})
	path, _ := s.createIntake(`{"name":"Meta","kind":"meta_lead_ads","secret":"app","accessToken":"access"}`)
	post := func(ids ...string) reply {
		changes := make([]string, len(ids))
		for i, id := range ids {
			changes[i] = `{"field":"leadgen","value":{"leadgen_id":` + id + `}}`
		}
		body := `{"entry":[{"changes":[` + strings.Join(changes, ",") + `]}]}`
		mac := hmac.New(sha256.New, []byte("app"))
		mac.Write([]byte(body))
		return s.deliver(path, body, map[string]string{
			"X-Hub-Signature-256": "sha256=" + hex.EncodeToString(mac.Sum(nil)),
		})
	}
	post("1").is(http.StatusOK)
	ids := make([]string, 4*4)
	for i := range ids {
		ids[i] = strconv.Itoa(i + 2)
	}
	post(ids...).is(http.StatusOK)
	post("99").requireLimited()
}

func TestArrive_FeatureDisabled(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, _ := s.createIntake(bearerIntake)
	s.provision(ownAccount, account.Settings{})
	kept := s.deliver(path, `{"phone":"9876543210"}`, validProof).is(http.StatusOK)
	require.Equal(t, []string{event.ArrivalReceived{}.EventType(), event.ArrivalQuarantined{}.EventType()},
		s.arrival(kept))
}

// A post whose mapping exceeds the cost limit is quarantined.
func TestArrive_CostlyPosts(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, _ := s.createIntake(
		strings.Replace(bearerIntake, `"mapping":{`,
			`"mapping":{"name":"string(body.a.exists(x, body.a.exists(y, x == y + 1)))",`, 1),
	)
	for field, elements := range map[string]int{"name": 2000, "body": 20_000} {
		answered := s.deliver(path, `{"phone":"9876543210","a":[`+strings.Repeat("1,", elements)+`1]}`,
			validProof).is(http.StatusOK)
		shown := s.as(http.MethodGet, arrivalsPath+"/"+answered.at("arrivalId").(string), "").is(http.StatusOK)
		require.Equal(t, "quarantined", shown.at("data", "state"))
		require.Equal(t, field, shown.at("data", "reasons").([]any)[0].(map[string]any)["field"])
	}
}

// LinkedIn and Slack ask first, each in its way; Exotel sends the query of a GET.
func TestGet_HandshakesAndArrivals(t *testing.T) {
	t.Parallel()
	s := start(t)
	linkedIn, _ := s.createIntake(`{"name":"LinkedIn","kind":"webhook","secret":"client-secret","handshake":"linkedin",
		"signature":{"header":"X-LI-Signature","signed":"hmacsha256={body}"}}`)
	code := "890e4665-4dfe-4ab1-b689-ed553bceeed0"
	answer := s.request(call{path: linkedIn + "?challengeCode=" + code}).is(http.StatusOK)
	mac := hmac.New(sha256.New, []byte("client-secret"))
	mac.Write([]byte(code))
	require.JSONEq(t,
		fmt.Sprintf(`{"challengeCode":%q,"challengeResponse":%q}`, code, hex.EncodeToString(mac.Sum(nil))), answer.raw)
	s.request(call{path: linkedIn}).is(http.StatusBadRequest)

	slack, _ := s.createIntake(`{"name":"Slack","kind":"webhook","secret":"signing","handshake":"challenge",
		"signature":{"header":"X-Slack-Signature","format":"v0={signature}","timestampHeader":"X-Slack-Request-Timestamp","signed":"v0:{timestamp}:{body}"}}`)
	answer = s.deliver(slack, `{"token":"x","challenge":"3eZbrw1a","type":"url_verification"}`, nil).is(http.StatusOK)
	require.JSONEq(t, `{"challenge":"3eZbrw1a"}`, answer.raw)
	s.deliver(slack, `{"challenge":"3eZbrw1a","phone":"9876512345"}`, nil).is(http.StatusUnauthorized)

	exotel, _ := s.createIntake(`{"name":"Exotel","kind":"webhook","secret":"theirs-and-long-enough","acceptGet":true,
		"signature":{"scheme":"query","name":"token"},"mapping":{"phone":"body.CallFrom","deliveryId":"body.CallSid"}}`)
	s.request(call{path: exotel + "?CallSid=c1&CallFrom=09876512346&token=wrong"}).is(http.StatusUnauthorized)
	first := s.request(call{
		path: exotel + "?CallSid=c1&CallFrom=09876512346&token=theirs-and-long-enough",
	}).is(http.StatusOK)
	again := s.request(call{
		path: exotel + "?CallSid=c1&CallFrom=09876512346&token=theirs-and-long-enough",
	}).is(http.StatusOK)
	require.Equal(t, first.at("arrivalId"), again.at("arrivalId"))
	s.leadOf(first, "+919876512346")
	abroad := s.request(call{
		path: exotel + "?CallSid=c2&CallFrom=+6591234567&token=theirs-and-long-enough",
	}).is(http.StatusOK)
	s.leadOf(abroad, "+6591234567")
	s.request(call{
		method: http.MethodHead, path: exotel + "?CallFrom=09876512346&token=theirs-and-long-enough",
	}).is(http.StatusMethodNotAllowed)
	shown := s.as(http.MethodGet, after("/api/v1/crm/arrivals/"+first.at("arrivalId").(string), first),
		"").is(http.StatusOK)
	require.NotContains(t, shown.raw, "theirs-and-long-enough")
	require.NotContains(t, fmt.Sprint(s.written()), "theirs-and-long-enough")

	plain, _ := s.createIntake(bearerIntake)
	s.request(call{path: plain}).is(http.StatusMethodNotAllowed)
}

func TestRotate_OldSecretDuringOverlap(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, created := s.createIntake(bearerIntake)
	rotate := intakes + "/" + created.at("data", "intakeId").(string) + "/secret/rotate"
	require.Equal(t, []string{"overlap"},
		s.as(http.MethodPost, rotate, `{"overlap":"169h"}`).is(http.StatusBadRequest).fieldsNamed())
	require.Equal(t, []string{"overlap"},
		s.as(http.MethodPost, rotate, `{"overlap":"a day"}`).is(http.StatusBadRequest).fieldsNamed())
	rotated := s.as(http.MethodPost, rotate, `{"overlap":"24h"}`).is(http.StatusOK)
	require.NotEmpty(t, rotated.at("data", "oldSecretUntil"))
	s.deliver(path, `{"id":"1","phone":"9876512345"}`, validProof).is(http.StatusOK)
	s.deliver(path, `{"id":"2","phone":"9876512345"}`, map[string]string{
		"Authorization": "Bearer " + rotated.at("data", "secret").(string),
	}).is(http.StatusOK)
	last := s.as(http.MethodPost, rotate, `{"secret":"another-and-long-enough"}`).is(http.StatusOK)
	require.Nil(t, last.at("data", "oldSecretUntil"))
	s.deliver(path, `{"id":"3","phone":"9876512345"}`, map[string]string{
		"Authorization": "Bearer " + rotated.at("data", "secret").(string),
	}).is(http.StatusUnauthorized)
	s.deliver(path, `{"id":"3","phone":"9876512345"}`, validProof).is(http.StatusUnauthorized)
}

// A post with several persons leaves none of them out, and sent again it has no other effect.
func TestArrive_SeveralPersons(t *testing.T) {
	t.Parallel()
	s := start(t)
	list, _ := s.createIntake(strings.Replace(bearerIntake, `,"mapping":{"deliveryId":"body.id"}`, "", 1))
	post := call{
		method: http.MethodPost, path: list,
		body: `[{"phone":"9876512401","name":"A"},{"phone":"9876512402"},{"name":"nobody"}]`, header: validProof,
	}
	first := s.request(post).is(http.StatusOK)
	require.Equal(t, first.at("arrivalId"), s.request(post).is(http.StatusOK).at("arrivalId"))
	require.Len(t, s.leadsOf("9876512401"), 1)
	require.Len(t, s.leadsOf("9876512402"), 1)
	s.caughtUp()
	arrivals := s.as(http.MethodGet, arrivalsPath, "").at("data").([]any)
	require.Len(t, arrivals, 3)
	shown := s.as(http.MethodGet, arrivalsPath+"/"+first.at("arrivalId").(string), "")
	require.JSONEq(t, `{"phone":"9876512401","name":"A"}`, shown.at("data", "raw", "body").(string))
	quarantined := arrivals[2].(map[string]any)["arrivalId"].(string)
	s.as(http.MethodPost, arrivalsPath+"/"+quarantined+"/resubmit", `{"set":{"phone":"9876512403"}}`).is(http.StatusOK)

	whatsApp, _ := s.createIntake(`{"name":"WhatsApp","kind":"whatsapp","secret":"app-secret"}`)
	require.Equal(t, "42",
		s.request(call{
			path: whatsApp + "?hub.mode=subscribe&hub.challenge=42&hub.verify_token=app-secret",
		}).is(http.StatusOK).raw)
	body := `{"entry":[{"changes":[{"field":"messages","value":{"contacts":[{"profile":{"name":"Wei"},` +
		`"wa_id":"6593334444"}],"messages":[{"from":"6593334444","id":"w1","text":{"body":"Hi"}}]}}]}]}`
	mac := hmac.New(sha256.New, []byte("app-secret"))
	mac.Write([]byte(body))
	signed := map[string]string{"X-Hub-Signature-256": "sha256=" + hex.EncodeToString(mac.Sum(nil))}
	s.deliver(whatsApp, body, signed).is(http.StatusOK)
	s.deliver(whatsApp, body, map[string]string{"X-Hub-Signature-256": "sha256=00"}).is(http.StatusUnauthorized)
	found := s.leadsOf("+6593334444")[0].(map[string]any)
	require.Equal(t, "Wei", found["name"])
	require.Equal(t, "whatsapp", found["source"])
}
