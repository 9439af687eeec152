package courier

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/command/worker/outbound"
	"github.com/leadlog/leadlog/eventstore/event"
)

const (
	keptResponse    = 1 << 10  // bytes of a response or error that are recorded
	drainedResponse = 64 << 10 // bytes that are read so that the connection can be reused
)

// outcome is the outcome of an attempt.
type outcome struct {
	at         time.Time
	took       time.Duration
	status     int // 0: no response
	response   string
	retryAfter string
	err        error
	timedOut   bool
}

func (o outcome) success() bool { return o.err == nil && o.status >= 200 && o.status < 300 }

// send makes one attempt.
func send(
	ctx context.Context, client *http.Client, r row, body []byte, traceParent string, now func() time.Time,
) (o outcome) {
	begin := time.Now()
	o.at = now()
	defer func() { o.took = time.Since(begin) }()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		o.err = err
		return o
	}
	timestamp := strconv.FormatInt(o.at.Unix(), 10)
	signature, err := sign(r.signing.Secrets, r.id, timestamp, body)
	if err != nil {
		o.err = err
		return o
	}
	for name, value := range r.headers {
		request.Header.Set(name, value)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "leadlog")
	request.Header.Set("webhook-id", r.id)
	request.Header.Set("webhook-timestamp", timestamp)
	request.Header.Set("webhook-signature", signature)
	if traceParent != "" {
		request.Header.Set("traceparent", traceParent)
	}
	response, err := client.Do(request)
	if err != nil {
		var slow net.Error
		o.err, o.timedOut = outbound.PublicError(err), errors.As(err, &slow) && slow.Timeout()
		return o
	}
	defer response.Body.Close()
	o.status, o.retryAfter = response.StatusCode, response.Header.Get("Retry-After")
	if o.status == http.StatusSwitchingProtocols { // no body follows, and a read would not return
		return o
	}
	kept, _ := io.ReadAll(io.LimitReader(response.Body, keptResponse))
	_, _ = io.CopyN(io.Discard, response.Body, drainedResponse)
	o.response = storable(string(kept))
	return o
}

// storable truncates a text to the stored length, and replaces what PostgreSQL cannot store: NUL and invalid UTF-8. It
// is used for errors too, because they may quote the endpoint.
func storable(text string) string {
	return event.Text(text[:min(len(text), keptResponse)])
}

var errSecretForm = errors.New("a signing secret is not of the form whsec_ and base64")

// sign returns the signatures of the Standard Webhooks specification, one for each secret.
func sign(secrets []string, id, timestamp string, body []byte) (string, error) {
	signatures := make([]string, 0, len(secrets))
	for _, secret := range secrets {
		encoded, ok := strings.CutPrefix(secret, webhook.SecretPrefix)
		key, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil {
			return "", errSecretForm
		}
		mac := hmac.New(sha256.New, key)
		_, _ = io.WriteString(mac, id+"."+timestamp+".") // a hash returns no error
		_, _ = mac.Write(body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(signatures, " "), nil
}
