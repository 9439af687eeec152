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

// failingStore fails the appends of leads with the numbers from, which counts from 1, up to until, and counts the
// others.
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

// newTarget returns a target in a new account.
func newTarget(t *testing.T, store eventstore.Store) importer.Target {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	directory := command.NewDirectory(store, time.Now)
	handlers := command.NewHandlers(command.Options{
		Store: store, Claims: claim.NewNames(make([]byte, 32)), Directory: directory, Log: log,
	})
	_, _, err := handlers.ConfigureAccount(t.Context(), command.ConfigureAccount{
		Caller: command.Caller{Account: "acme", Actor: "user:owner"}, AccountID: "acme",
		Settings: account.Settings{Features: []string{account.FeatureAPI}},
	})
	require.NoError(t, err)
	target, err := importer.NewTarget(t.Context(), handlers, directory, "acme", ulid.Make().String())
	require.NoError(t, err)
	return target
}

// importFile imports a file, and returns the lines of the outcome, how many rows were done before and the error of Run.
func importFile(t *testing.T, target importer.Target, name, text string) (lines []string, repeated uint64, err error) {
	t.Helper()
	source, err := importer.Open(bytes.NewReader([]byte(text)), name, importer.Options{})
	require.NoError(t, err)
	_, err = source.Survey(target.Settings(), time.Now())
	require.NoError(t, err)
	var written bytes.Buffer
	ledger := importer.NewOutcomes(func() (io.Writer, error) { return &written, nil })
	err = importer.Run(t.Context(), source, target, ledger, func(uint64, uint64) {})
	require.NoError(t, ledger.Close())
	return strings.Split(strings.TrimSpace(written.String()), "\n")[1:], ledger.Counts().Repeated, err
}

// importRows imports 30 rows, and returns the lines of the outcome, the number of leads and the error of Run.
func importRows(t *testing.T, store *failingStore) (outcome []string, leads int, err error) {
	t.Helper()
	store.Store = storetest.Memory()
	text := "name,phone\n"
	for i := range 30 {
		text += fmt.Sprintf("Person %d,98765432%02d\n", i, i)
	}
	outcome, _, err = importFile(t, newTarget(t, store), "leads.csv", text)
	return outcome, int(store.leads.Load()), err
}

// Two files may use one id for different persons, and only the same person's row was imported before.
func TestRun_IDsOfTwoFiles(t *testing.T) {
	t.Parallel()
	const header = "id,form_id,name,email,phone,note\n"
	for name, c := range map[string]struct {
		first, second string
		repeated      uint64
	}{
		"ids of two programs":    {"1,3,Asha,asha@example.com,9876512345,x", "1,7,Binu,binu@example.com,9876512346,x", 0},
		"rounded ids":            {"8.27641E+14,3,Asha,,9876512345,x", "8.27641E+14,3,Binu,,9876512346,x", 0},
		"one id, two persons":    {"l:827641000000123,f:3,Asha,,9876512345,x", "l:827641000000123,f:3,Binu,,9876512346,x", 0},
		"one person, a new note": {"l:827641000000123,f:3,Asha,,9876512345,x", "l:827641000000123,f:3,Asha,,+919876512345,y", 1},
		"one person, a new name": {"827641000000123,3,Asha,A@example.com,,x", "827641000000123,3,Asha Rao,a@example.com,,x", 1},
		"the same row, own id":   {"1,3,Asha,asha@example.com,,x", "1,3,Asha,asha@example.com,,x", 1},
	} {
		target := newTarget(t, storetest.Memory())
		var leads []string
		for _, row := range []string{c.first, c.second} {
			outcome, repeated, err := importFile(t, target, "leads.csv", header+row+"\n")
			require.NoError(t, err, name)
			require.Contains(t, outcome[0], "2,1,201,", name)
			if len(leads) > 0 {
				require.Equal(t, c.repeated, repeated, name)
			}
			leads = append(leads, strings.Split(outcome[0], ",")[3])
		}
		require.Equal(t, c.repeated == 1, leads[0] == leads[1], name)
	}
}

// JSON lines are read like the rows of other files: the country beside a phone counts. Their own source is checked.
func TestRun_JSONLines(t *testing.T) {
	t.Parallel()
	store := storetest.Memory()
	outcome, _, err := importFile(t, newTarget(t, store), "leads.ndjson",
		`{"name":"Joe","phone":"9845012345","country":"United States"}`+"\n"+
			`{"name":"Asha","phone":"9876512345","metadata":{"source":"expo"}}`+"\n")
	require.NoError(t, err)
	for i, want := range []string{"+19845012345 ", "+919876512345 UNKNOWN_SOURCE"} {
		cells := strings.Split(outcome[i], ",")
		require.Equal(t, "201", cells[2], outcome[i])
		for recorded, err := range store.Read(t.Context(), event.LeadStream(cells[3]), 0) {
			require.NoError(t, err)
			fact, err := recorded.Fact()
			require.NoError(t, err)
			require.Equal(t, want, fact.Data.(event.LeadCreated).Phone+" "+cells[4])
		}
	}
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
