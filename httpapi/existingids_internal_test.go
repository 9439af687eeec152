package httpapi

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// idView is a view of tokens that takes a while to list them.
type idView struct {
	mu    sync.Mutex
	ids   []string
	takes time.Duration
	err   error
	loads int
}

func (v *idView) load(_ context.Context, after string) (found []string, err error) {
	time.Sleep(v.takes)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.loads++
	for _, id := range v.ids {
		if id > after {
			found = append(found, id)
		}
	}
	return found, v.err
}

func (v *idView) add(age time.Duration) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	id := made(age)
	v.ids = append(v.ids, id)
	return id
}

// made returns the id of a token that was created a while ago.
func made(age time.Duration) string {
	return ulid.MustNew(ulid.Timestamp(time.Now().Add(-age)), ulid.DefaultEntropy()).String()
}

// After a start, callers of one address with valid tokens were refused until the list was there, and so was a token
// that was just created.
func TestExistingIDs_WaitsForList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		view := &idView{takes: 3 * time.Second}
		tokens := newExistingIDs(view.load)
		var waiting sync.WaitGroup
		for range 300 {
			id := view.add(time.Hour)
			waiting.Go(func() {
				exists, err := tokens.has(t.Context(), id)
				assert.NoError(t, err)
				assert.True(t, exists)
			})
		}
		waiting.Wait()
		require.Equal(t, 1, view.loads)

		view.takes = 0
		created := made(0)
		waiting.Go(func() {
			exists, err := tokens.has(t.Context(), created)
			assert.NoError(t, err)
			assert.True(t, exists, "the view shows it later")
		})
		time.Sleep(tokens.lag / 2)
		view.mu.Lock()
		view.ids = append(view.ids, created)
		view.mu.Unlock()
		waiting.Wait()
	})
}

func TestExistingIDs_InventedID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		view := &idView{}
		tokens := newExistingIDs(view.load)
		exists := func(id string) bool {
			exists, err := tokens.has(t.Context(), id)
			assert.NoError(t, err)
			return exists
		}
		require.False(t, exists("no ULID"))
		require.False(t, exists(made(-time.Hour)), "of a later time")
		require.Zero(t, view.loads)
		require.False(t, exists(made(time.Hour)))
		require.False(t, exists(made(time.Hour)), "an old id needs no further load")
		require.Equal(t, 1, view.loads)

		began, loads := time.Now(), view.loads
		var waiting sync.WaitGroup
		var refused atomic.Int64
		for range existingWaiting + 100 {
			waiting.Go(func() {
				assert.False(t, exists(made(-time.Minute)))
				if time.Since(began) == 0 {
					refused.Add(1)
				}
			})
		}
		waiting.Wait()
		require.EqualValues(t, 100, refused.Load(), "the number of callers that wait is bounded")
		require.LessOrEqual(t, view.loads-loads, int(tokens.lag/tokens.pause)+2, "and so is the rate of loads")
	})
}

func TestExistingIDs_ViewUnavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		view := &idView{takes: time.Second, err: errors.New("no connection")}
		tokens := newExistingIDs(view.load)
		var waiting sync.WaitGroup
		for range 10 {
			waiting.Go(func() {
				_, err := tokens.has(t.Context(), made(time.Hour))
				assert.ErrorIs(t, err, view.err)
			})
		}
		waiting.Wait()
		require.Equal(t, 1, view.loads)
	})
}
