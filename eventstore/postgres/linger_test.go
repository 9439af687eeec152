package postgres

import (
	"cmp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestARequestWaitsForThoseWhoCameLatelyAndNotForLong(t *testing.T) {
	const took = time.Millisecond // unless said otherwise
	for name, c := range map[string]struct {
		lately int           // how many the batch before was
		others int           // how many come now, beside the first
		apart  time.Duration // one after another
		batch  int
		waits  time.Duration
		took   time.Duration // to write the batch before
	}{
		"alone":                          {lately: 1, batch: 1},
		"all are there":                  {lately: 3, others: 2, batch: 3},
		"all come soon":                  {lately: 4, others: 3, apart: took / 4, batch: 4, waits: took * 3 / 4},
		"one stays away":                 {lately: 4, others: 2, apart: took / 4, batch: 3, waits: took},
		"one stays away from a slow one": {lately: 2, batch: 1, waits: longestLinger, took: time.Second},
		"one comes beside the last one":  {lately: 1, others: 1, apart: took / 4, batch: 1},
		"of a crowd some are enough":     {lately: 200, others: lingerSize + 10, apart: took / 100, batch: lingerSize, waits: took / 100 * (lingerSize - 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				queue := make(chan *request, c.others)
				go func() {
					for range c.others {
						time.Sleep(c.apart)
						queue <- asked("a", "")
					}
				}()
				var l linger
				l.wrote(c.lately, time.Now().Add(-cmp.Or(c.took, took)), time.Now())
				if c.apart == 0 {
					synctest.Wait()
				}
				began := time.Now()
				batch := l.gather([]*request{asked("b", "")}, queue)
				require.Equal(t, c.waits, time.Since(began))
				require.Equal(t, c.batch, len(batch)+len(queue))
				time.Sleep(time.Hour) // the others end
			})
		})
	}
}

func TestWhoStaysAwayIsSoonWaitedForNoLonger(t *testing.T) {
	t.Parallel()
	var l linger
	now := time.Now()
	l.wrote(5, now, now)
	for n := 4; n > 0; n-- {
		l.wrote(1, now, now)
		require.Equal(t, n, l.size)
	}
}
