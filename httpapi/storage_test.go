package httpapi_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/httpapi"
)

// stores sets the account's storage for a day.
func (s *service) stores(bytes int) {
	s.t.Helper()
	s.provision(ownAccount, account.Settings{Features: []string{account.FeatureAPI}, StoragePerDay: &bytes})
}

// fill sends requests of 20 KB until one is refused because of the storage. It returns how many were accepted.
func (s *service) fill(send func(i int, text string) reply) (accepted int) {
	s.t.Helper()
	random := rand.NewChaCha8([32]byte{})
	for {
		text := make([]byte, 14_250)
		_, _ = random.Read(text) // it does not compress
		r := send(accepted, base64.RawURLEncoding.EncodeToString(text))
		if r.status == http.StatusTooManyRequests {
			r.requireLimited()
			require.Equal(s.t, "STORAGE_LIMIT", r.at("code"), r.raw)
			return accepted
		}
		require.Less(s.t, r.status, 300, r.raw)
		accepted++
		require.Less(s.t, accepted, 100)
	}
}

func (s *service) captureLarge(i int, text string) reply {
	fields := make([]string, 10)
	for f := range fields {
		fields[f] = fmt.Sprintf(`"f%d":"%s"`, f, text[f*1900:(f+1)*1900])
	}
	return s.capture(fmt.Sprintf(`{"phone":"98765%05d","customFields":{%s}}`, i, strings.Join(fields, ",")))
}

func (s *service) storageLow() (n int) {
	for _, e := range s.written() {
		if e.Type == (event.StorageLow{}).EventType() {
			n++
		}
	}
	return n
}

func TestStorage_LimitPerDay(t *testing.T) {
	t.Parallel()
	b := signedIn(t, stopped)
	s := b.service
	const perDay = 400_000
	s.stores(perDay)
	require.NotContains(t, b.get("/console/").body, "Storage is")
	low := -1
	accepted := s.fill(func(i int, text string) reply {
		if low < 0 && s.storageLow() > 0 {
			low = i
		}
		return s.captureLarge(i, text)
	})
	require.InDelta(t, accepted*4/5, low, 2, "it is recorded when four fifths are used")
	require.InDelta(t, perDay, accepted*20_000, perDay/10)
	require.Equal(t, 1, s.storageLow(), "once in a day")
	require.Contains(t, b.get("/console/").body, "400,000")
	s.caughtUp()
	require.Len(t, s.as(http.MethodGet, "/api/v1/crm/audit/events?type=account.storage_low", "").at("data"), 1)

	batched := s.sendBatch(`{"phone":"9876543210"}`)
	batched.is(http.StatusTooManyRequests)
	s.recordActivity("v", `{"type":"page_view"}`).is(http.StatusTooManyRequests)
	path, _ := s.createIntake(bearerIntake)
	require.Equal(t, "STORAGE_LIMIT",
		s.deliver(path, `{"phone":"9876543210"}`, validProof).is(http.StatusTooManyRequests).at("code"))
	require.NotZero(t, s.metric(`leadlog_rate_limited_total{limit="storage"}`))
	s.as(http.MethodGet, leads, "").is(http.StatusOK)
	s.as(http.MethodPost, tokens, `{"name":"form","expiresInDays":30}`).is(http.StatusCreated)

	s.stores(0)
	s.capture(`{"phone":"9876543210"}`).is(http.StatusCreated)
	require.NotContains(t, b.get("/console/").body, "400,000")
}

func TestStorage_SharedByProcesses(t *testing.T) {
	t.Parallel()
	s := start(t, func(*httpapi.Options) {}) // its own database
	s.stores(300)                            // a byte is free again after minutes
	require.Equal(t, 1, s.fill(s.captureLarge))
	other := s.another()
	require.Equal(t, "STORAGE_LIMIT", other.capture(`{"phone":"9876543210"}`).is(http.StatusTooManyRequests).at("code"))
}

// Anyone may post to a form: posts to forms use a part of the storage, and those of one address a part of that.
func TestStorage_FormsUsePart(t *testing.T) {
	t.Parallel()
	s := start(t, stopped, func(o *httpapi.Options) {
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	s.stores(800_000)
	form, _ := s.createIntake(`{"name":"Form","kind":"form"}`)
	post := func(address string) func(i int, text string) reply {
		return func(i int, text string) reply {
			body := fmt.Sprintf("phone=98765%05d", i) + "&a=" + text
			return s.deliver(form, body, map[string]string{"X-Forwarded-For": address})
		}
	}
	all := 0
	for i := range 4 {
		accepted := s.fill(post(fmt.Sprint("192.0.2.", i)))
		require.NotZero(t, accepted)
		all += accepted
	}
	require.Less(t, all, 40)
	require.Zero(t, s.fill(post("192.0.2.9")), "all addresses together may use half")
	view := s.deliver(form+"/visitors/v-1/activity", `{"type":"page_view","url":"https://example.com"}`,
		map[string]string{"X-Forwarded-For": "192.0.2.9"})
	require.Equal(t, "STORAGE_LIMIT", view.is(http.StatusTooManyRequests).at("code"))
	hook, _ := s.createIntake(bearerIntake)
	s.deliver(hook, `{"phone":"9876543210"}`, validProof).is(http.StatusOK)
	require.NotZero(t, s.fill(s.captureLarge))
}
