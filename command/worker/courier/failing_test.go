package courier_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/worker/courier"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/delivery/deliverytest"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

func TestCourier_RetriesSameBytes(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	r := receive(t, func(n int, w http.ResponseWriter) {
		if n == 1 {
			http.Redirect(w, &http.Request{Method: "POST"}, "http://127.0.0.1:1/", http.StatusFound)
		} else if n == 2 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	id := target(t, w, r.URL)
	send(t, w)
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	require.Equal(t, map[string]int{"delivered": 1}, states(t, w, id, 1))
	require.Len(t, r.ids(), 1)
	got := r.got()
	require.Len(t, got, 3)
	require.Equal(t, got[0].body, got[1].body)
	require.Equal(t, got[0].body, got[2].body)
	var attempts string
	require.NoError(t, w.Pool.QueryRow(t.Context(),
		`SELECT string_agg(status::text, ', ' ORDER BY at) FROM delivery.attempt`).Scan(&attempts))
	require.Equal(t, "302, 500, 200", attempts)
}

func TestCourier_ScheduleExhausted(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	broken := receive(t, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) })
	gone := receive(t, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusGone) })
	first, second := target(t, w, broken.URL), target(t, w, gone.URL)
	send(t, w)
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, first, 1))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, second, 1))
	require.Len(t, broken.got(), 3)
	require.Len(t, gone.got(), 1)
}

func TestCourier_RefusesPrivateAddress(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	r := receive(t, good)
	id := target(t, w, r.URL)
	send(t, w, func(o *courier.Options) { o.AllowPrivateTargets = false })
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, id, 1))
	require.Empty(t, r.ids())
}

func TestCourier_CancelsForDeletedEndpoint(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	r := receive(t, good)
	deleted, secretless := target(t, w, r.URL), target(t, w, r.URL)
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	w.Append(t, "acme", event.WebhookStream(deleted), event.WebhookDeleted{})
	deliverytest.CatchUp(t, w)
	w.Append(t, "acme", event.WebhookStream(secretless), event.WebhookDeleted{})
	require.NoError(t, secrets(t, w.Pool, key(1)).Destroy(t.Context(), secretless))
	send(t, w)
	require.Equal(t, map[string]int{"cancelled": 1}, states(t, w, deleted, 1))
	require.Equal(t, map[string]int{"cancelled": 1}, states(t, w, secretless, 1),
		"deleted on the log, and the fan-out has not read so far")
	require.Empty(t, r.ids())
}

// This is the state after the restore of a backup that is older than the endpoint.
func TestCourier_LostSecret(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	r := receive(t, good)
	id := target(t, w, r.URL)
	kept := secrets(t, w.Pool, key(1))
	require.NoError(t, kept.Destroy(t.Context(), id))
	send(t, w, func(o *courier.Options) {
		o.Schedule = slices.Repeat([]time.Duration{20 * time.Millisecond}, 10_000)
	})
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	require.Eventually(t, func() bool {
		var shown int
		err := w.Pool.QueryRow(t.Context(), `SELECT count(*) FROM delivery.attempt WHERE error LIKE '%rotate it%'`).
			Scan(&shown)
		return err == nil && shown > 1
	}, projectiontest.Soon, 10*time.Millisecond, "its owner is shown the error")
	require.Empty(t, r.ids())
	handlers := command.NewHandlers(command.Options{Store: w.Store, Secrets: kept, Log: slog.New(slog.DiscardHandler)})
	_, err := handlers.RotateWebhookSecret(t.Context(), command.RotateWebhookSecret{
		Caller: command.Caller{Account: "acme"}, WebhookID: id,
	})
	require.NoError(t, err)
	require.Equal(t, map[string]int{"delivered": 1}, states(t, w, id, 1))
	require.Len(t, r.ids(), 1)
}

func TestCourier_HungEndpointDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	release := make(chan struct{})
	hung := receive(t, func(int, http.ResponseWriter) { <-release })
	defer close(release) // before the courier ends, which waits for attempts
	healthy := receive(t, good)
	target(t, w, hung.URL)
	id := target(t, w, healthy.URL)
	send(t, w)
	for range 60 {
		w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	}
	require.Equal(t, map[string]int{"delivered": 60}, states(t, w, id, 60))
	require.LessOrEqual(t, len(hung.ids()), 16)
}

func TestCourier_KilledConnections(t *testing.T) {
	t.Parallel()
	const leads = 600
	w := deliverytest.New(t)
	r := receive(t, good)
	id := target(t, w, r.URL)
	send(t, w)
	for i := range leads {
		w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead(fmt.Sprint(i)))
		if i%100 == 50 { // while the last of these are being sent
			require.Eventually(t, func() bool { return len(r.got()) > i-50 }, projectiontest.Soon, time.Millisecond)
			conn, err := pgx.Connect(t.Context(), w.URL)
			require.NoError(t, err)
			pgtest.Exec(t, conn, `
				SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				 WHERE datname = current_database() AND application_name LIKE 'leadlog courier%'`)
			require.NoError(t, conn.Close(t.Context()))
		}
	}
	require.Equal(t, map[string]int{"delivered": leads}, states(t, w, id, leads))
	got := r.ids()
	require.Len(t, got, leads)
	twice := 0
	for _, n := range got {
		twice += n - 1
	}
	require.LessOrEqual(t, twice, leads/50)
}

func TestCourier_KilledProcess(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	r := receive(t, good)
	id := target(t, w, r.URL)
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	deliverytest.CatchUp(t, w)
	// an ended session
	_, err := w.Pool.Exec(t.Context(),
		`UPDATE delivery.queue SET lease = 12345; INSERT INTO lease.session (name, pid, role)
			VALUES ('courier 12345', 0, 0)`)
	require.NoError(t, err)
	send(t, w)
	require.Equal(t, map[string]int{"delivered": 1}, states(t, w, id, 1))
}

// certifiedFor starts a server with a certificate for a name, and returns its URL.
func certifiedFor(t *testing.T, name string) (url string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients refuse the certificate
	server.StartTLS()
	t.Cleanup(server.Close)
	return strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
}

// Errors quote the endpoint, here the name in its certificate. A text that PostgreSQL cannot store once prevented the
// results of all other endpoints from being saved.
func TestCourier_NULInErrorText(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	odd := target(t, w, certifiedFor(t, "a\x00"+strings.Repeat("b", 4000)))
	well := target(t, w, receive(t, good).URL)
	send(t, w)
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, odd, 1))
	require.Equal(t, map[string]int{"delivered": 1}, states(t, w, well, 1))
	stored := pgtest.Value[string](t, w.Pool, `
		SELECT error FROM delivery.attempt JOIN delivery.delivery USING (delivery_id) WHERE webhook_id = $1
		LIMIT 1`, odd)
	require.Contains(t, stored, "certificate is valid for a\uFFFDb")
	require.LessOrEqual(t, len(stored), 1100, "it is truncated")
}

// switching starts a server that answers 101 and then sends nothing.
func switching(t *testing.T) (url string) {
	t.Helper()
	return answering(t, func(conn net.Conn, _ *http.Request) {
		_, _ = io.WriteString(conn,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: silence\r\n\r\n")
	})
}

// Data after a 101 is not a response body. The timeout of an attempt and the shutdown of the courier once did not end
// the wait for it.
func TestCourier_SwitchingProtocols(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	id := target(t, w, switching(t))
	send(t, w, func(o *courier.Options) { o.Timeout = 5 * time.Second }) // a busy machine gets the status within it
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, id, 1))
	status := pgtest.Value[int](t, w.Pool, `SELECT DISTINCT status FROM delivery.attempt`)
	require.Equal(t, http.StatusSwitchingProtocols, status)
}
