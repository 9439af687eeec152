package query

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// The log has one refused arrival a minute, of two accounts. Clocks differ by up to a day. The second account has few
// arrivals.
func TestRefused_BoundsPositionsByTime(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	const rows = 6000
	random := rand.New(rand.NewPCG(7, 7))
	var accounts []string
	var times []time.Time
	for n := range rows {
		accounts = append(accounts, []string{"acme", "other"}[min(1, n%97/96)])
		times = append(times,
			projectiontest.Start.Add(time.Duration(n)*time.Minute+time.Duration(random.IntN(24*60)-12*60)*time.Minute))
	}
	pgtest.Exec(t, w.Pool, `
		INSERT INTO views.refused (account, at, position, source, code, lead_id, other_lead_id, credential, request_id)
		SELECT a, t, 10 * n, '', '', '', '', '', ''
		FROM unnest($1::text[], $2::timestamptz[]) WITH ORDINALITY AS u (a, t, n)`, accounts, times)
	r := New(w.Pool, w.Store)
	spans := [][2]time.Time{
		{}, {latestTime, {}}, {{}, firstDay}, {firstDay, latestTime}, {times[17], {}}, {{}, times[17]},
	}
	for range 10 {
		since := times[random.IntN(rows)]
		spans = append(spans, [2]time.Time{since, {}}, [2]time.Time{{}, since},
			[2]time.Time{since, since.Add(time.Duration(random.IntN(10000)) * time.Second)})
	}
	for _, account := range []string{"acme", "other", "missing", "\x00"} {
		for _, span := range spans {
			since, until := span[0], span[1]
			var want []time.Time
			for n, at := range times {
				if accounts[n] == account && !at.Before(since) && (until.IsZero() || at.Before(until)) {
					want = append(want, at)
				}
			}
			refused, err := r.Refused(t.Context(), account,
				RefusedFilter{Since: since, Until: until}, Page{Limit: rows})
			require.NoError(t, err)
			require.Equal(t, len(want), len(refused.Items))
			for i, at := range want {
				require.True(t, at.Equal(time.Time(refused.Items[i].At)))
			}
		}
	}
	for n := 1; n < rows; n += 61 {
		before, last, err := r.bisectPosition(t.Context(), "acme", times[n])
		require.NoError(t, err)
		require.LessOrEqual(t, last-before, int64(nearPositions))
		require.InDelta(t, 10*n, before, nearPositions+10*24*60, "the error is bounded by the difference of the clocks")
	}
}

var latestTime = time.UnixMilli(latest).UTC()
