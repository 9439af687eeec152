package importer_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/worker/importer"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// failingStore fails the appends of leads with the numbers from, which counts from 1, up to until, and counts the others.
type failingStore struct {
	eventstore.Store
	from, until    int64
	appends, leads atomic.Int64
}

func (s *failingStore) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	if !strings.HasPrefix(writes[len(writes)-1].Stream, event.LeadPrefix) {
		return s.Store.Append(ctx, writes...)
	}
	if n := s.appends.Add(1); s.from <= n && n <= s.until {
		return 0, eventstore.ErrUnavailable
	}
	position, err := s.Store.Append(ctx, writes...)
	if err == nil {
		s.leads.Add(1)
	}
	return position, err
}

// importRows imports 30 rows, and returns the lines of the outcome, the number of leads and the error of Run.
func importRows(t *testing.T, store *failingStore) (outcome []string, leads int, err error) {
	store.Store = storetest.Memory()
	log := slog.New(slog.DiscardHandler)
	directory := command.NewDirectory(store, time.Now)
	handlers := command.NewHandlers(command.Options{
		Store: store, Claims: claim.NewNames(make([]byte, 32)), Directory: directory, Log: log,
	})
	_, _, err = handlers.ConfigureAccount(t.Context(), command.ConfigureAccount{
		Caller: command.Caller{Account: "acme", Actor: "user:owner"}, AccountID: "acme",
		Settings: account.Settings{Features: []string{account.FeatureAPI}},
	})
	require.NoError(t, err)
	target, err := importer.NewTarget(t.Context(), handlers, directory, "acme", ulid.Make().String())
	require.NoError(t, err)
	text := "name,phone\n"
	for i := range 30 {
		text += fmt.Sprintf("Person %d,98765432%02d\n", i, i)
	}
	source, err := importer.Open(bytes.NewReader([]byte(text)), "leads.csv", importer.Options{})
	require.NoError(t, err)
	_, err = source.Survey(target.Settings(), time.Now())
	require.NoError(t, err)
	var written bytes.Buffer
	ledger := importer.NewOutcomes(func() (io.Writer, error) { return &written, nil })
	err = importer.Run(t.Context(), source, target, ledger, func(uint64, uint64) {})
	require.NoError(t, ledger.Close())
	return strings.Split(strings.TrimSpace(written.String()), "\n")[1:], int(store.leads.Load()), err
}

func TestRun_UnavailableForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &failingStore{from: 10, until: 13}
		outcome, leads, err := importRows(t, store)
		require.NoError(t, err)
		require.Equal(t, 30, leads)
		require.Len(t, outcome, 30, "each row once")
		for i, line := range outcome {
			require.True(t, strings.HasPrefix(line, fmt.Sprintf("%d,1,201,", i+2)), line)
		}
	})
}

func TestRun_UnavailableForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &failingStore{from: 10, until: math.MaxInt64}
		began := time.Now()
		outcome, leads, err := importRows(t, store)
		var stopped *importer.StoppedError
		require.ErrorAs(t, err, &stopped)
		require.ErrorIs(t, err, eventstore.ErrUnavailable)
		require.Equal(t, len(outcome)+2, stopped.Line, "the rows before have an outcome")
		require.Equal(t, 9, leads)
		require.Less(t, time.Since(began), 30*time.Second)
	})
}
