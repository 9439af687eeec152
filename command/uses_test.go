package command_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// noon is the time of the first use.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// sampler samples uses in one process, with its own clock.
type sampler struct {
	*command.Uses
	now time.Time
}

func newSampler(t *testing.T, store eventstore.Store) *sampler {
	t.Helper()
	s := &sampler{now: noon}
	s.Uses = command.NewUses(store, func() time.Time { return s.now }, quiet())
	s.Timeout(time.Minute) // never reached
	return s
}

// flush records the pending samples.
func (s *sampler) flush() {
	ended, end := context.WithCancel(context.Background())
	end()
	s.Run(ended)
}

func (s *sampler) count(eventType string) (recorded, dropped uint64) {
	s.Counts(func(name string, r, d uint64) {
		if name == eventType {
			recorded, dropped = r, d
		}
	})
	return recorded, dropped
}

// facts formats the events of a stream: types, times and metadata.
func facts(t *testing.T, store eventstore.Store, stream string) (lines []string) {
	t.Helper()
	for e, err := range store.Read(t.Context(), stream, 0) {
		require.NoError(t, err)
		m := e.Metadata
		lines = append(lines, fmt.Sprintf("%s %s %s %s %s %s %s", event.PublicName(e.Type), e.At.Format(time.TimeOnly),
			m.Account, m.Actor, m.IP, m.RequestID, e.Data))
	}
	return lines
}

var rotated = &command.RefusedUse{Account: "acme", TokenID: "T", Prefix: "leadlog_T", Reason: token.ReasonRotated}

func TestUses_OncePerMinute(t *testing.T) {
	t.Parallel()
	on := inMemory()
	caller := command.Caller{IP: "198.51.100.9", RequestID: "r-9", UserAgent: "curl"}
	processes := []*sampler{newSampler(t, start(t, on).store), newSampler(t, start(t, on).store)}
	for minute := range 3 {
		var racing sync.WaitGroup
		for _, p := range processes {
			p.now = noon.Add(time.Duration(minute) * time.Minute)
			for range 50 {
				p.Used("acme", "T")
				p.Refused(caller, rotated)
			}
			racing.Go(p.flush)
		}
		racing.Wait()
	}
	late := newSampler(t, start(t, on).store) // a process that starts later, with an empty cache
	late.now = noon.Add(2 * time.Minute).Add(time.Second)
	late.Used("acme", "T")
	late.flush()

	require.ElementsMatch(t, []string{
		`token.used 12:00:00 acme token:T   {}`,
		`token.refused 12:00:00 acme token:T 198.51.100.9 r-9 {"reason":"rotated","prefix":"leadlog_T"}`,
		`token.used 12:01:00 acme token:T   {}`,
		`token.refused 12:01:00 acme token:T 198.51.100.9 r-9 {"reason":"rotated","prefix":"leadlog_T"}`,
		`token.used 12:02:00 acme token:T   {}`,
		`token.refused 12:02:00 acme token:T 198.51.100.9 r-9 {"reason":"rotated","prefix":"leadlog_T"}`,
	}, facts(t, start(t, on).store, "tokenuse-T-2026-03-01"))
}

// A process that checks whether its sample is recorded also reads the samples of other processes, and has more samples
// to record.
func TestUses_OtherProcess(t *testing.T) {
	t.Parallel()
	on := inMemory()
	one, other := newSampler(t, start(t, on).store), newSampler(t, start(t, on).store)
	for range 3 {
		for _, s := range []*sampler{one, other} {
			samples := []func(){func() { s.Used("acme", "T") }, func() { s.Refused(command.Caller{}, rotated) }}
			if s == other { // in the same order, the first read would find both samples
				slices.Reverse(samples)
			}
			for _, sample := range samples {
				sample()
				s.flush()
			}
			s.now = s.now.Add(time.Minute)
		}
	}
	require.Len(t, facts(t, start(t, on).store, "tokenuse-T-2026-03-01"), 6)
}

func TestUses_StreamPerDay(t *testing.T) {
	t.Parallel()
	store := start(t, inMemory()).store
	s := newSampler(t, store)
	s.Used("acme", "T")
	s.flush()
	s.now = noon.AddDate(0, 0, 1)
	s.Used("acme", "T")
	s.flush()
	require.Len(t, facts(t, store, "tokenuse-T-2026-03-01"), 1)
	require.Len(t, facts(t, store, "tokenuse-T-2026-03-02"), 1)
	require.Empty(t, facts(t, store, event.TokenStream("T")))
}

func TestUses_DropsAndCounts(t *testing.T) {
	t.Parallel()
	s := newSampler(t, start(t, inMemory()).store)
	for i := range 1500 { // without a flush
		s.Used("acme", fmt.Sprint(i))
	}
	recorded, dropped := s.count("token.used")
	require.Zero(t, recorded)
	require.EqualValues(t, 1500-1024, dropped)
	s.flush()
	recorded, _ = s.count("token.used")
	require.EqualValues(t, 1024, recorded)
}

// unavailableStore fails appends while down is set.
type unavailableStore struct {
	eventstore.Store
	down bool
}

func (f *unavailableStore) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	if f.down {
		return 0, eventstore.ErrUnavailable
	}
	return f.Store.Append(ctx, writes...)
}

func TestUses_ResamplesAfterDrop(t *testing.T) {
	t.Parallel()
	store := &unavailableStore{Store: start(t, inMemory()).store, down: true}
	s := newSampler(t, store)
	s.Used("acme", "T")
	s.flush()
	_, dropped := s.count("token.used")
	require.EqualValues(t, 1, dropped)
	store.down = false
	s.now = s.now.Add(time.Second)
	s.Used("acme", "T")
	s.flush()
	require.Equal(t, []string{`token.used 12:00:01 acme token:T   {}`}, facts(t, store, "tokenuse-T-2026-03-01"))
}

func TestConfirmToken_RefusalReason(t *testing.T) {
	t.Parallel()
	p := start(t, inMemory())
	issued := p.issue(t)
	forged, err := token.NewValue(issued.ID, zeros{})
	require.NoError(t, err)
	refused := func(value token.Value) *command.RefusedUse {
		var use *command.RefusedUse
		_, err := p.directory.ConfirmToken(t.Context(), value)
		require.ErrorIs(t, err, command.ErrUnauthorized)
		require.NotContains(t, err.Error(), value.Reveal())
		if !errors.As(err, &use) {
			return nil
		}
		return use
	}
	require.Nil(t, refused(forged), "a value that was never issued, of an existing token")
	again, err := p.RotateToken(t.Context(), command.RotateToken{Caller: owner, TokenID: issued.ID})
	require.NoError(t, err)
	require.Equal(t, &command.RefusedUse{
		Account: "acme", TokenID: issued.ID, Prefix: issued.Value.Prefix(), Reason: "rotated",
	}, refused(issued.Value))
	_, err = p.DeleteToken(t.Context(), command.DeleteToken{Caller: owner, TokenID: issued.ID})
	require.NoError(t, err)
	require.EqualValues(t, "rotated", refused(issued.Value).Reason)
	require.EqualValues(t, "deleted", refused(again.Value).Reason)
	require.Nil(t, refused(forged))
}

// zeros is the randomness of a value that was never issued.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
