package httpapi_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/httpapi/challenge"
)

func lastResponse(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// The answer must not reveal whether the account has a lead with a phone or email.
func TestForm_AnswersKnownAndUnknownAlike(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.provision(ownAccount, account.Settings{Features: []string{account.FeatureAPI}, Stages: []string{"new", "won"}})
	s.server.Client().CheckRedirect = lastResponse
	s.capture(`{"phone":"9876543210","email":"asha@example.com","name":"Asha"}`).is(http.StatusCreated)
	s.capture(`{"phone":"9876543211","email":"ravi@example.com"}`).is(http.StatusCreated)
	for _, settings := range []string{
		`{"name":"Form","kind":"form","rateLimit":0,"honeypot":"url"}`,
		`{"name":"Curated","kind":"form","rateLimit":0,"honeypot":"url","source":"webhook"}`,
		`{"name":"Redirect","kind":"form","rateLimit":0,"honeypot":"url","redirect":"https://example.com/thanks"}`,
	} {
		path, _ := s.createIntake(settings)
		for _, accept := range []string{"*/*", "text/html,application/xhtml+xml;q=0.9"} {
			var first *reply
			for i, body := range []string{
				"phone=9876543299&name=New", "phone=9876543210", "phone=9876543210", "email=asha@example.com",
				"phone=9876543210&email=ravi@example.com", "phone=9876543298&url=spam", "phone=9876543297&status=none",
			} {
				started := time.Now()
				r := s.deliver(path, body, map[string]string{"Accept": accept})
				require.GreaterOrEqual(t, time.Since(started), 50*time.Millisecond,
					"every answer has the minimum duration")
				require.Contains(t, []int{http.StatusOK, http.StatusSeeOther}, r.status, body)
				require.NotContains(t, r.header, "X-Log-Position")
				require.NotContains(t, r.header, "Ratelimit")
				for _, own := range []string{"Date", "X-Request-Id"} {
					require.NotEmpty(t, r.header.Get(own))
					r.header.Del(own)
				}
				if first == nil {
					first = &r
				}
				require.Equal(t, first.status, r.status, "%d %s", i, body)
				require.Equal(t, first.raw, r.raw, body)
				require.Equal(t, first.header, r.header, body)
			}
		}
	}
}

func TestForm_Answers(t *testing.T) {
	t.Parallel()
	s := start(t)
	plain, _ := s.createIntake(`{"name":"Form","kind":"form","rateLimit":0}`)
	redirecting, _ := s.createIntake(
		`{"name":"Form","kind":"form","rateLimit":0,"redirect":"https://example.com/thanks?a=1&b"}`,
	)
	html := map[string]string{"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
	s.server.Client().CheckRedirect = lastResponse

	require.Equal(t, `{"success":true}`, s.deliver(plain, "phone=9876543210", nil).is(http.StatusOK).raw)
	require.Equal(t, `{"success":true}`, s.deliver(redirecting, "phone=9876543210", nil).is(http.StatusOK).raw)
	moved := s.deliver(redirecting, "phone=9876543210", html).is(http.StatusSeeOther)
	require.Equal(t, "https://example.com/thanks?a=1&b", moved.header.Get("Location"))
	page := s.deliver(plain, "phone=9876543210", html).is(http.StatusOK)
	require.Equal(t, "text/html; charset=utf-8", page.header.Get("Content-Type"))
	require.Contains(t, page.raw, "Thank you")

	wrong := s.deliver(plain, "name=Asha", nil).is(http.StatusBadRequest)
	require.Equal(t, []string{"phone"}, wrong.fieldsNamed())
	require.Equal(t, []string{"phone", "email"},
		s.deliver(plain, "phone=12&email=<b>@x", nil).is(http.StatusBadRequest).fieldsNamed())
	shown := s.deliver(redirecting, "phone=12&email=<b>@x", html).is(http.StatusBadRequest)
	require.Equal(t, "text/html; charset=utf-8", shown.header.Get("Content-Type"))
	require.Equal(t, "default-src 'none'", shown.header.Get("Content-Security-Policy"))
	require.Contains(t, shown.raw, "<li>phone ")
	require.NotContains(t, shown.raw, "Validation failed")
	require.NotContains(t, shown.raw, "<b>")
	require.Equal(t, "text/html; charset=utf-8",
		s.deliver(plain, strings.Repeat("x", 1<<20+1),
			html).is(http.StatusRequestEntityTooLarge).header.Get("Content-Type"))
	unknown := s.deliver("/in/01J00000000000000000000000", "phone=9876543210", html).is(http.StatusNotFound)
	require.Equal(t, "text/html; charset=utf-8", unknown.header.Get("Content-Type"))
	require.Contains(t, unknown.raw, "<h1>Not sent</h1>")
	hook, _ := s.createIntake(bearerIntake)
	require.Equal(t, "application/json; charset=utf-8",
		s.deliver(hook, "{}", html).is(http.StatusUnauthorized).header.Get("Content-Type"))

	fields := url.Values{"phone": {"9876543212"}}
	for i := range 51 {
		fields.Set(fmt.Sprintf("field%d", i), "x")
	}
	s.deliver(plain, fields.Encode(), nil).is(http.StatusOK)
	require.Len(t, s.leadsOf("9876543212")[0].(map[string]any)["customFields"], 50, "what is too much is left out")
}

func TestForm_Encodings(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, _ := s.createIntake(`{"name":"Form","kind":"form"}`)
	for i, c := range []struct{ media, body string }{
		{
			"application/x-www-form-urlencoded",
			"your-name=Asha+Rao&your-tel=%d&visitor_id=v-1&utm_source=mail&city=Pune",
		},
		{"application/json", `{"name":"Asha Rao","phone":"%d","visitor_id":"v-1","utm_source":"mail","city":"Pune"}`},
		{"multipart/form-data; boundary=b",
			strings.ReplaceAll("--b\nContent-Disposition: form-data; name=\"fullname\"\n\nAsha "+
				"Rao\n--b\nContent-Disposition: form-data; name=\"mobile\"\n\n%d\n"+
				"--b\nContent-Disposition: form-data; name=\"city\"\n\nPune\n--b\nContent-Disposition: form-data; "+
				"name=\"utm_source\"\n\nmail\n"+
				"--b\nContent-Disposition: form-data; name=\"cv\"; filename=\"cv.pdf\"\nContent-Type: "+
				"application/pdf\n\nPDF\n--b--\n", "\n", "\r\n")},
	} {
		phone := 9876543210 + i
		r := s.deliver(path, fmt.Sprintf(c.body, phone), map[string]string{
			"Content-Type": c.media, "User-Agent": "Firefox", "Sec-Fetch-Mode": "cors",
		}).is(http.StatusOK)
		require.Equal(t, `{"success":true}`, r.raw)
		found := s.leadsOf(fmt.Sprint(phone))
		require.Len(t, found, 1, c.media)
		lead := found[0].(map[string]any)
		require.Equal(t, []any{"Asha Rao", "website", map[string]any{"city": "Pune"}},
			[]any{lead["name"], lead["source"], lead["customFields"]}, c.media)
		metadata := s.as(http.MethodGet, leads+"/"+lead["leadId"].(string), "").at("data", "metadata").(map[string]any)
		require.Equal(t, map[string]any{
			"utm_source": "mail", "ip": s.address, "userAgent": "Firefox",
		}, metadata, c.media)
	}
}

// An attached file is not stored. Its size is bounded only by the limit of a post.
func TestForm_FilesAreNotKept(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, _ := s.createIntake(`{"name":"Form","kind":"form"}`)
	file := make([]byte, 900<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(file) // random bytes do not compress
	body := strings.ReplaceAll("--b\nContent-Disposition: form-data; "+
		"name=\"city\"\n\nPune\n--b\nContent-Disposition: form-data; name=\"phone\"\n\n9876543210\n"+
		"--b\nContent-Disposition: form-data; name=\"cv\"; filename=\"cv.pdf\"\n\n", "\n",
		"\r\n") + string(file) + "\r\n--b--\r\n"
	s.deliver(path, body, map[string]string{"Content-Type": "multipart/form-data; boundary=b"}).is(http.StatusOK)
	require.Len(t, s.leadsOf("9876543210"), 1)
	listed := s.as(http.MethodGet, arrivalsPath, "").is(http.StatusOK).item("arrivalId").(string)
	raw := s.as(http.MethodGet, arrivalsPath+"/"+listed, "").is(http.StatusOK).at("data", "raw", "body").(string)
	require.Less(t, len(raw), 1000)
	require.Contains(t, raw, "Pune")
	require.Contains(t, raw, `filename="cv.pdf"`)
}

func TestForm_Origins(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) { o.CORSOrigins = []string{"https://api.example.com"} })
	path, _ := s.createIntake(`{"name":"Form","kind":"form","rateLimit":0,"origins":["https://example.com"]}`)
	open, _ := s.createIntake(`{"name":"Form","kind":"form","rateLimit":0}`)
	hook, _ := s.createIntake(bearerIntake)
	for origin, status := range map[string]int{
		"https://example.com": 200, "https://example.com.evil.net": 403, "null": 403, "": 403,
		"https://api.example.com": 403, "http://example.com": 403,
	} {
		header := map[string]string{}
		if origin != "" {
			header["Origin"] = origin
		}
		for _, address := range []string{path, path + "/visitors/v-1/activity"} {
			body, want := "phone=9876543210", status
			if address != path {
				body = `{"type":"page_view","url":"https://example.com/"}`
				if status == 200 {
					want = http.StatusAccepted
				}
			}
			r := s.deliver(address, body, header).is(want)
			allowed := ""
			if status == 200 {
				allowed = origin
				require.Equal(t, "Origin", r.header.Get("Vary"))
			}
			require.Equal(t, allowed, r.header.Get("Access-Control-Allow-Origin"), origin)
			preflight := s.request(call{
				method: http.MethodOptions, path: address,
				header: map[string]string{"Origin": origin, "Access-Control-Request-Method": "POST"},
			})
			require.Equal(t, allowed, preflight.header.Get("Access-Control-Allow-Origin"), origin)
			if status == 200 {
				require.Equal(t, http.StatusNoContent, preflight.status)
				require.Contains(t, preflight.header.Get("Access-Control-Allow-Headers"), "Idempotency-Key")
			}
		}
	}
	require.Equal(t, "https://example.com",
		s.deliver(path, "phone=1", map[string]string{
			"Origin": "https://example.com",
		}).is(http.StatusBadRequest).header.Get("Access-Control-Allow-Origin"), "CORS lets the page read the error")
	require.Empty(t,
		s.deliver(open, "phone=9876543210", map[string]string{
			"Origin": "https://any.example",
		}).is(http.StatusOK).header.Get("Access-Control-Allow-Origin"))
	for _, address := range []string{open, hook, "/in/" + missingID} {
		preflight := s.request(call{
			method: http.MethodOptions, path: address,
			header: map[string]string{"Origin": "https://example.com", "Access-Control-Request-Method": "POST"},
		})
		require.Empty(t, preflight.header.Get("Access-Control-Allow-Origin"))
	}
}

func TestForm_IdempotencyKey(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, _ := s.createIntake(`{"name":"Form","kind":"form","source":"webhook"}`)
	key := map[string]string{"Idempotency-Key": "k-1"}
	for range 3 {
		require.Equal(t, `{"success":true}`, s.deliver(path, "phone=9876543210&name=Asha", key).is(http.StatusOK).raw)
	}
	s.deliver(path, "phone=1", map[string]string{"Idempotency-Key": "k-2"}).is(http.StatusBadRequest)
	s.deliver(path, "phone=9876543211", map[string]string{"Idempotency-Key": "k-2"}).is(http.StatusOK)
	found := s.leadsOf("9876543210")
	require.Len(t, found, 1)
	require.Equal(t, 1.0,
		s.as(http.MethodGet, leads+"/"+found[0].(map[string]any)["leadId"].(string)+"/sources",
			"").at("data").([]any)[0].(map[string]any)["arrivals"])
	require.Empty(t, s.as(http.MethodGet, leads+"/refused", "").at("data"))
	require.Len(t, s.leadsOf("9876543211"), 1)
}

func TestForm_HoneypotIsOnlyCounted(t *testing.T) {
	t.Parallel()
	var registry *prometheus.Registry
	s := start(t, func(o *httpapi.Options) { registry = o.Metrics })
	path, _ := s.createIntake(`{"name":"Form","kind":"form","honeypot":"url"}`)
	before := s.last()
	s.deliver(path, "phone=9876543210&url=http://spam", nil).is(http.StatusOK)
	require.Equal(t, before, s.last())
	metrics := s.request(call{method: http.MethodGet, path: "/metrics"}).raw
	require.Contains(t, metrics, `leadlog_arrivals_total{kind="form",outcome="honeypot"} 1`)
	require.NotNil(t, registry)
	s.deliver(path, "phone=9876543210&url=", nil).is(http.StatusOK)
	require.Empty(t, s.leadsOf("9876543210")[0].(map[string]any)["customFields"])
}

func TestForm_Challenge(t *testing.T) {
	t.Parallel()
	var verdict atomic.Value
	verdict.Store(`{"success":true}`)
	var asked atomic.Int32
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.PostFormValue("secret") != "hunter2" || r.PostFormValue("response") != "token" {
			_, _ = io.WriteString(w, `{"success":false}`)
			return
		}
		_, _ = io.WriteString(w, verdict.Load().(string))
	}))
	t.Cleanup(provider.Close)
	s := start(t, func(o *httpapi.Options) { o.Challenges = challenge.New(provider.URL, provider.URL, time.Now) })
	for name, field := range map[string]string{"turnstile": "cf-turnstile-response", "hcaptcha": "h-captcha-response"} {
		path, _ := s.createIntake(
			`{"name":"Form","kind":"form","challenge":{"provider":"` + name + `","secret":"hunter2"}}`,
		)
		post := func(phone, token string, header map[string]string) reply {
			return s.deliver(path, url.Values{"phone": {phone}, field: {token}}.Encode(), header)
		}
		verdict.Store(`{"success":true}`)
		asked.Store(0)
		require.Equal(t, []string{"phone"}, post("12", "token", nil).is(http.StatusBadRequest).fieldsNamed())
		require.Zero(t, asked.Load(), "an invalid form does not use the token, which is valid once")
		for _, token := range []string{"", "wrong"} {
			require.Equal(t, []string{"challenge"},
				post("9876543210", token, nil).is(http.StatusBadRequest).fieldsNamed())
		}
		require.Equal(t, `{"success":true}`, post("9876543210", "token", nil).is(http.StatusOK).raw)
		lead := s.leadsOf("9876543210")[0].(map[string]any)
		require.Empty(t, lead["customFields"], "the token is not a custom field")

		asked.Store(0)
		for range 2 {
			post("9876543210", "token", map[string]string{"Idempotency-Key": "k"}).is(http.StatusOK)
		}
		require.EqualValues(t, 1, asked.Load())

		// A post with another delivery id is a new post, with any key.
		mapped, _ := s.createIntake(
			`{"name":"Form","kind":"form","challenge":{"provider":"` + name + `","secret":"hunter2"},` +
				`"mapping":{"deliveryId":"body.ref","phone":"[body.phone]"}}`,
		)
		asked.Store(0)
		for _, ref := range []string{"a", "b", "b"} {
			s.deliver(mapped, url.Values{"phone": {"9876543218"}, field: {"token"}, "ref": {ref}}.Encode(),
				map[string]string{"Idempotency-Key": "k"}).is(http.StatusOK)
		}
		require.EqualValues(t, 2, asked.Load())

		verdict.Store("down")
		require.Equal(t, `{"success":true}`, post("9876543219", "token", nil).is(http.StatusOK).raw)
		require.Empty(t, s.leadsOf("9876543219"), "the post is quarantined")
	}
	require.NotContains(t, s.log.String(), "hunter2")
}

func TestForm_PageViews(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, _ := s.createIntake(`{"name":"Form","kind":"form"}`)
	hook, _ := s.createIntake(bearerIntake)
	view := func(path, body string, header map[string]string) reply {
		return s.request(call{
			method: http.MethodPost, path: path + "/visitors/v-1/activity", body: body, header: header,
		})
	}
	const seen = `{"type":"page_view","url":"https://example.com/prices?utm_source=mail"}`
	r := view(path, seen, nil).is(http.StatusAccepted)
	require.Equal(t, `{"success":true}`, r.raw)
	for _, absent := range []string{"X-Log-Position", "RateLimit", "RateLimit-Policy"} {
		require.Empty(t, r.header.Get(absent))
	}
	require.Equal(t, []string{"type"}, view(path, `{}`, nil).is(http.StatusBadRequest).fieldsNamed())
	view(path, `{"type":"click","properties":{"x":"`+strings.Repeat("x", 64<<10)+`"}}`,
		nil).is(http.StatusRequestEntityTooLarge)
	view(hook, seen, validProof).is(http.StatusNotFound)
	view("/in/"+missingID, seen, nil).is(http.StatusNotFound)
	s.deliver(path, "phone=9876543210&visitor_id=v-1", nil).is(http.StatusOK)
	lead := s.leadsOf("9876543210")[0].(map[string]any)
	activity := s.as(http.MethodGet, leads+"/"+lead["leadId"].(string)+"/activity",
		"").is(http.StatusOK).at("data").([]any)
	require.Len(t, activity, 1)
	require.Equal(t, "https://example.com/prices?utm_source=mail", activity[0].(map[string]any)["url"])
}

// Junk posts to a form do not affect captures of other accounts or other intakes.
func TestForm_JunkDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	s := start(t, stopped)
	path, _ := s.createIntake(`{"name":"Form","kind":"form","mapping":{"name":"body.list.map(a, a + a)[0]"}}`)
	other, _ := s.createIntake(bearerIntake)
	s.provision("second", account.Settings{Features: []string{account.FeatureAPI}})
	second := s.mint("second", "")
	junk := []func(i int) (string, map[string]string){
		func(i int) (string, map[string]string) {
			return fmt.Sprintf("phone=%d&name=%s", i, strings.Repeat("<", 200)), nil
		},
		func(int) (string, map[string]string) {
			return `{"list":["` + strings.Repeat(`x","`, 60_000) + `"],"phone":"9876543210"}`, map[string]string{
				"Content-Type": "application/json",
			}
		},
		func(int) (string, map[string]string) {
			return strings.Repeat("[", 1<<20-1), map[string]string{"Content-Type": "application/json"}
		},
		func(int) (string, map[string]string) { return strings.Repeat("a=b&", 1<<18-1), nil },
		func(int) (string, map[string]string) { return strings.Repeat("x", 1<<20+1), nil },
		func(int) (string, map[string]string) { return "phone=9876543210&phone=9876543210&name[]=a&=", nil },
	}
	const posts = 300
	statuses := make(chan int, posts)
	var captured atomic.Int32
	concurrently(16, func(worker int) reply {
		for i := worker; i < posts; i += 16 {
			body, header := junk[0](i)
			if i < 120 {
				body, header = junk[i%len(junk)](i)
			}
			r, err := s.attempt(posting(path, body, header))
			// net/http reads at most 256 KiB of a body that the handler refuses. It closes the connection 500 ms later,
			// when a client on a busy machine may still be sending.
			unread := len(body) > 256<<10 && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET))
			if !unread {
				require.NoError(t, err)
				statuses <- r.status
			}
			if i%100 == 0 {
				r := s.send(call{
					method: http.MethodPost, path: leads, credential: second,
					body: fmt.Sprintf(`{"phone":"98765%05d"}`, i),
				})
				require.Equal(t, http.StatusCreated, r.status)
				captured.Add(1)
			}
		}
		return reply{}
	})
	close(statuses)
	counts := map[int]int{}
	for status := range statuses {
		counts[status]++
	}
	require.Equal(t, int32(posts/100), captured.Load())
	require.NotZero(t, counts[http.StatusTooManyRequests])
	require.Zero(t, counts[http.StatusInternalServerError], "%v", counts)
	s.capture(`{"phone":"9876500001"}`).is(http.StatusCreated)
	require.Equal(t, []string{event.ArrivalReceived{}.EventType(), event.ArrivalCaptured{}.EventType()},
		s.arrival(s.deliver(other, `{"phone":"9876500002"}`, validProof).is(http.StatusOK)))
}

// Form plugins post from a server: labels, nested and numbered names, JSON within JSON. None of it is lost, and nothing
// is refused.
func TestForm_Plugins(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, _ := s.createIntake(`{"name":"Site","kind":"form"}`)
	server := map[string]string{"Content-Type": "application/x-www-form-urlencoded"}
	for name, c := range map[string]struct {
		body, phone, called string
	}{
		"Elementor, labels": {
			"Name=Asha+Rao&Phone=9876512301&Email+=asha.wp@example.com&form_id=7&Powered+by=Elementor", "+919876512301",
			"Asha Rao",
		},
		"Elementor, nested": {
			"form_fields[name]=Asha&form_fields[email]=a@example.com&form_fields[phone]=9876512302", "+919876512302",
			"Asha",
		},
		"Elementor, advanced": {
			"fields[name][id]=name&fields[name][title]=Name&fields[name][value]=Asha&fields[tel][title]=Phone&fields[tel][value]=9876512303", "+919876512303", "Asha",
		},
		"Contact Form 7": {"your-name=Asha&your-email=b@example.com&tel-123=9876512304", "+919876512304", "Asha"},
		"WPForms": {
			"wpforms[fields][0]=Asha&wpforms[fields][1]=c@example.com&wpforms[fields][2]=9876512305", "+919876512305",
			"c",
		},
		"Gravity Forms": {`{"1.3":"Asha","2":"gf@example.com","3":"98765 12306"}`, "+919876512306", "gf"},
		"Webflow": {
			`{"triggerType":"form_submission","payload":{"name":"Contact Us","data":{"First Name":"Zaphod","Last ` +
				`Name":"Beeblebrox","Email":"z@example.com","Phone Number":9876512307}}}`, "+919876512307",
			"Zaphod Beeblebrox",
		},
		"Unbounce": {
			"page_url=http%3A%2F%2Fexample.com&data.json=%7B%22email%22%3A%5B%22u@example.com%22%5D%2C%22name%22%3A%5B%22Asha%22%5D%2C%22phone_number%22%3A%5B%229876512308%22%5D%7D", "+919876512308", "Asha",
		},
		"Jotform": {
			"formID=1&rawRequest=%7B%22q3_name%22%3A%7B%22first%22%3A%22Asha%22%2C%22last%22%3A%22Rao%22%7D%2C%22q4_phone%22%3A%229876512309%22%7D", "+919876512309", "Asha Rao",
		},
		"list of fields": {
			`{"fields":[{"name":"email","value":"hs@example.com"},{"name":"phone",` +
				`"value":"9876512310"},{"name":"firstname","value":"Asha"}]}`, "+919876512310", "Asha",
		},
		"a lost plus": {"name=Wei+Ling&phone=+6593334444", "+6593334444", "Wei Ling"},
	} {
		header := server
		if c.body[0] == '{' {
			header = nil
		}
		s.request(call{method: http.MethodPost, path: path, body: c.body, header: header}).is(http.StatusOK)
		found := s.leadsOf(c.phone)
		require.Len(t, found, 1, name)
		require.Equal(t, c.called, found[0].(map[string]any)["name"], name)
	}
	s.request(call{method: http.MethodPost, path: path, body: "name=Asha", header: server}).is(http.StatusOK)
	s.caughtUp()
	require.Len(t, s.as(http.MethodGet, "/api/v1/crm/arrivals?state=quarantined", "").at("data"), 1,
		"a server is not answered 400")
}

// A form plugin posts from its server, whose address and program are not those of the person.
func TestForm_ClientOfBrowserOnly(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, _ := s.createIntake(`{"name":"Site","kind":"form"}`)
	for phone, c := range map[string]struct {
		header map[string]string
		body   string
		ip, ua any
	}{
		"+919876512401": {map[string]string{"User-Agent": "WordPress/6.5"}, "phone=9876512401", nil, nil},
		"+919876512402": {map[string]string{"User-Agent": "WordPress/6.5"},
			"phone=9876512402&Remote+IP=203.0.113.9&User+Agent=Firefox", "203.0.113.9", "Firefox"},
		"+919876512403": {map[string]string{"User-Agent": "Firefox", "Accept": "text/html"}, "phone=9876512403",
			s.address, "Firefox"},
	} {
		c.header["Content-Type"] = "application/x-www-form-urlencoded"
		s.request(call{method: http.MethodPost, path: path, body: c.body, header: c.header}).is(http.StatusOK)
		id := s.leadsOf(phone)[0].(map[string]any)["leadId"].(string)
		metadata := s.as(http.MethodGet, leads+"/"+id, "").at("data", "metadata").(map[string]any)
		require.Equal(t, []any{c.ip, c.ua}, []any{metadata["ip"], metadata["userAgent"]}, phone)
	}
}
