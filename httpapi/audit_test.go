package httpapi

import (
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/export"
)

// exporting serves an export of events at every path. The export ends with the error last.
func exporting(t *testing.T, media string, events int, last error) *httptest.Server {
	t.Helper()
	all := iter.Seq2[query.TokenEvent, error](func(yield func(query.TokenEvent, error) bool) {
		for range events {
			if !yield(query.TokenEvent{ID: strings.Repeat("x", 1000)}, nil) {
				return
			}
		}
		if last != nil {
			yield(query.TokenEvent{}, last)
		}
	})
	now := (&clock{noon}).now
	log, discard := storetest.Memory(), slog.New(slog.DiscardHandler)
	provision := command.ConfigureAccount{AccountID: "acme"}
	_, _, err := command.NewHandlers(command.Options{Store: log, Log: discard}).ConfigureAccount(t.Context(), provision)
	require.NoError(t, err)
	a := &api{
		Options: Options{
			Log: discard, Now: now, Directory: command.NewDirectory(log, now),
		},
		ids: newRequestIDs(now), metrics: newMetrics(nil), load: newLoad(Options{}),
	}
	server := httptest.NewServer(a.observe(a.serve(route{access: public, handle: func(x *exchange) (answer, error) {
		x.jwt = Identity{Account: "acme", Expires: latest}
		return streamed(x, media, export.TokenEvents(), all), nil
	}})))
	t.Cleanup(server.Close)
	return server
}

func TestExport_CutsConnectionOnError(t *testing.T) {
	t.Parallel()
	for _, media := range []string{mediaCSV, mediaNDJSON, mediaParquet} {
		for _, events := range []int{1, 100} {
			response, err := http.Get(exporting(t, media, events, errors.New("gone")).URL)
			if err != nil {
				continue // the connection was cut before the header
			}
			defer response.Body.Close()
			_, err = io.ReadAll(response.Body)
			require.Error(t, err, "%s after %d", media, events)
		}
	}
}

func TestExport_ErrorBeforeFirstRow(t *testing.T) {
	t.Parallel()
	response, err := http.Get(exporting(t, mediaCSV, 0, eventstore.ErrUnavailable).URL)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	require.Equal(t, `{"success":false,"message":"Service unavailable"}`, string(body))
}

func TestExport_HasEveryEvent(t *testing.T) {
	t.Parallel()
	for media, lines := range map[string]int{mediaCSV: 5001, mediaNDJSON: 5000} {
		response, err := http.Get(exporting(t, media, 5000, nil).URL)
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, lines, strings.Count(string(body), "\n"), media)
	}
}
