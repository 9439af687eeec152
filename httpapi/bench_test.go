package httpapi_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/httpapi"
)

// BenchmarkCapture measures a capture of a new lead without its append, from the request to the answer: as
// served, with a consent, and on a log without sealing.
func BenchmarkCapture(b *testing.B) {
	b.Run("sealed", func(b *testing.B) {
		benchmarkCapture(b, sealing(b), "")
	})
	b.Run("consent", func(b *testing.B) {
		benchmarkCapture(b, sealing(b), `"consent":{"purpose":"whatsapp","text":"Send me offers by WhatsApp",`+
			`"version":"3","url":"https://example.com/form","method":"checkbox"},`)
	})
	b.Run("plain", func(b *testing.B) {
		benchmarkCapture(b, func(below eventstore.Store) eventstore.Store { return below }, "")
	})
}

func sealing(b *testing.B) func(eventstore.Store) eventstore.Store {
	box, err := sealbox.New([]byte(jwtSecret))
	require.NoError(b, err)
	vault := sealed.NewVault(nil, box)
	return func(below eventstore.Store) eventstore.Store {
		return sealed.Wrap(below, vault, true, slog.New(slog.DiscardHandler))
	}
}

func benchmarkCapture(b *testing.B, wrap func(eventstore.Store) eventstore.Store, consent string) {
	below := &discardingLog{events: map[string][]eventstore.Recorded{}, remember: true}
	log := wrap(below)
	directory := command.NewDirectory(log, time.Now)
	commands := command.NewHandlers(command.Options{
		Store: log, Claims: claim.NewNames([]byte(jwtSecret)), Directory: directory, Log: slog.New(slog.DiscardHandler),
	})
	_, _, err := commands.ConfigureAccount(b.Context(), command.ConfigureAccount{
		Caller: command.Caller{Actor: "system:test"}, AccountID: ownAccount,
		Settings: account.Settings{Features: []string{account.FeatureAPI}},
	})
	require.NoError(b, err)
	created, err := commands.CreateToken(b.Context(), command.CreateToken{
		Caller: command.Caller{Account: ownAccount, Actor: "user:ann", ReadsLeads: true}, Name: "bench",
		ExpiresInDays: 1,
	})
	require.NoError(b, err)
	verifier, err := httpapi.NewHS256([]byte(jwtSecret), httpapi.VerifierOptions{})
	require.NoError(b, err)
	handler := httpapi.New(httpapi.Options{
		Commands: commands, Directory: directory, JWT: verifier, Log: slog.New(slog.DiscardHandler),
		RateLimit: 1e9, RateBurst: 1e9, Metrics: prometheus.NewRegistry(),
	})
	below.remember = false
	header := http.Header{"Authorization": {"Bearer " + created.Value.Reveal()}, "Content-Type": {"application/json"}}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		body := fmt.Sprintf(`{"name":"Asha Rao","phone":"+91%d","email":"a%d@example.com",`+
			`"metadata":{%s"source":"website","utm_campaign":"diwali"},"customFields":{"city":"Pune"}}`,
			9_000_000_000+i, i, consent)
		request, err := http.NewRequest(http.MethodPost, "/api/v1/crm/leads", strings.NewReader(body))
		require.NoError(b, err)
		request.Header, request.RemoteAddr = header, "192.0.2.1:1234"
		answer := statusWriter{header: http.Header{}}
		handler.ServeHTTP(&answer, request)
		if answer.status != http.StatusCreated {
			b.Fatal(answer.status)
		}
	}
}

// statusWriter is a response writer that stores only the status.
type statusWriter struct {
	header http.Header
	status int
}

func (a *statusWriter) Header() http.Header         { return a.header }
func (a *statusWriter) WriteHeader(status int)      { a.status = status }
func (a *statusWriter) Write(b []byte) (int, error) { return len(b), nil }

// discardingLog is a log that stores the events of the set-up and discards the events of the benchmark.
type discardingLog struct {
	eventstore.Store // nil: a capture of a new lead does not call its methods
	events           map[string][]eventstore.Recorded
	remember         bool
	position         atomic.Uint64
}

func (l *discardingLog) Append(_ context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	for _, w := range writes {
		for _, e := range w.Events {
			position := eventstore.Position(l.position.Add(1))
			if l.remember {
				l.events[w.Stream] = append(l.events[w.Stream], eventstore.Recorded{
					Event: e, Stream: w.Stream, Revision: eventstore.Revision(len(l.events[w.Stream])),
					Position: position,
				})
			}
		}
	}
	return eventstore.Position(l.position.Load()), nil
}

func (l *discardingLog) Read(
	_ context.Context, stream string, from eventstore.Revision,
) iter.Seq2[eventstore.Recorded, error] {
	return func(yield func(eventstore.Recorded, error) bool) {
		for _, e := range l.events[stream][min(int(from), len(l.events[stream])):] {
			if !yield(e, nil) {
				return
			}
		}
	}
}
