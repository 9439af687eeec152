package delivery_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
)

// certifiedFor starts a server whose certificate is for a name of its own choice, and returns its URL.
func certifiedFor(t *testing.T, name string) (url string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
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

// Errors quote the endpoint, here the name in its certificate. A text that PostgreSQL cannot store once kept the results of all other
// endpoints from being saved.
func TestCourier_NULInErrorText(t *testing.T) {
	t.Parallel()
	w := begun(t)
	odd := target(t, w, certifiedFor(t, "a\x00"+strings.Repeat("b", 4000)))
	well := target(t, w, receive(t, good).URL)
	send(t, w)
	w.Append(t, "acme", event.LeadStream(w.NewID()), newLead("Ann"))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, odd, 1))
	require.Equal(t, map[string]int{"delivered": 1}, states(t, w, well, 1))
	stored := pgtest.Value[string](t, w.Pool, `
		SELECT error FROM delivery.attempt JOIN delivery.delivery USING (delivery_id) WHERE webhook_id = $1 LIMIT 1`, odd)
	require.Contains(t, stored, "certificate is valid for a\uFFFDb")
	require.LessOrEqual(t, len(stored), 1100, "it is truncated")
}
